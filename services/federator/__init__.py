"""The federator: one job, described once for many clusters, is kept on the first good cluster that starts it.

`mcc` reads the description, `specialize` makes of it the job for one cluster, `clusters` says which clusters there
are. `core` decides, by the `rules` of the published text, over `state`: the fold of the federation's own log, in
which `transitions` say what each event does and `records` has the nouns, with the life of a job on one cluster as a
table. `observing` says what a cluster's answer adds to the log, `requests` what users ask and are told, `explain` and
`timeline` why a job is where it is. Behind the port in `backends` stand the clusters; `bodies` keeps what is
submitted, encrypted and outside of the log; `cluster_log` says when a cluster's own Muster log is a reason to look.
`service` is all of it as a process.
"""
