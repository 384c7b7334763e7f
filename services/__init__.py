"""Muster's processes, and what the log means to them.

`state` is the fold of a cluster's log. Around it stand those who write into that log: `ingest` (facts), `planner`
(proposals), `binder` (verdicts and effects). `federator` has a log of its own, `feed` tells outsiders, `console` replays,
verifies and simulates, behind the commands in `cli`. The processes never import each other; `console` starts them all. In
each, `service` alone awaits and talks to the outside, and the federator's `backends` and `bodies`.

Here beside them stands what they share as processes: `start` (a state from snapshot and tail), `decider` (the loop of
planner and binder), `writer` (how to append), `snapshots` (when to take one), `settings`, `health`, `telemetry` and
`tracing`; and how they read what others wrote: `documents` (YAML and JSON), `misfits` (what does not fit its type),
`answers` (over HTTP), `background_call` (what may hang). `kubernetes` is the one door to its API, `simulator` the cluster
without a cluster.
"""
