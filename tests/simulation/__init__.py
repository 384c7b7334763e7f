"""The simulator of faults: Muster's services in virtual time, with every fault and every step from one seed.

`world` is one history: a cluster, a log, the services as processes, what users do (`workload`) and what goes wrong
(`faults`), all of it chosen by a `plan`. `loop` is the event loop in virtual time; `broker`, `kube` and `network` stand
in for NATS, the API server and what lies between; `supervisor` starts and kills the services. `witness` checks what must
always hold as it happens, `rest` what must hold when nothing moves any more. `runner` plays many seeds, `shorten` makes a
failing one shorter, and `plants` are bugs that must be found. Where seeds draw faults, `sweep` strikes each place of
`small` histories with each of them, one after the other.
"""
