"""A planner shard: queue order, gang rules, filter, score, placement — as a pure function of the state.

`core` is the cycle, `gangs` what a group needs and why not, `attempt` one try to place it, `placement` the arithmetic,
`rules` the published rules by the document that they implement, `service` the only file that talks to the outside.
"""
