"""A planner shard: queue order, gang rules, filter, score, placement — as a pure function of the state.

`core` is the cycle, `sharing` what it looks at and whose nodes come first, `gangs` what keeps a group from its place,
`roll` who of its gangs is there, `demand` what it asks for, `attempt` one try to place that, within the `limits` of a
proposal. `placement` is the arithmetic, beside host `ports` and the room that is `reserved` for others. `rules` are the
published rules by the document that they implement, `service` is the only file that talks to the outside.
"""
