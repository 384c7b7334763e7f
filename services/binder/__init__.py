"""The binder: the one writer of verdicts in a cluster; it binds, evicts and reports.

`core` decides: `assignment` says which shard owns what; `judge` judges the proposals one by one, each by what of it is
`standing` on the room that `bench` has left beside what is `reserved`, and by the `quorum` of its gangs; `replacement`
keeps the room of failed members, and `nominations` says when that of gangs which lost to other shards ends; `rules` are
the published ones. `binding` says what an answer of the API server means, `report` and `group_status` what users read.
`service` is the only part that talks to the outside.
"""
