"""A planner shard: queue order, gang rules, filter, score, placement — as a pure function of the state.

`core` is the cycle, `gangs` what keeps a group from its place, `roll` who of its gangs is there, `demand` what it asks
for, `attempt` one try to place that, `placement` the arithmetic, `rules` the published rules by the document that they
implement, `service` the only file that talks to the outside.
"""
