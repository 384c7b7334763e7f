"""The binder: the one writer of verdicts in a cluster; it binds, evicts and reports.

`core` decides: `judge` judges the proposals one by one, each by what of it is `standing` on the room that `bench` has
left; `replacement` keeps the room of failed members; `rules` are the published ones. `report` says what users read,
`service` is the only part that talks to the outside.
"""
