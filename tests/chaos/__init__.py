"""Chaos on real processes: Muster as it is deployed, hurt for minutes, and what must hold of it afterwards.

Three nats-servers with TLS, permissions and three replicas; a kube-apiserver over an etcd that syncs; KWOK for kubelets;
ingest and binder with a standby each, two planners with ``--shard auto`` and a third that joins and leaves. A workload
of gangs and single pods goes on all the while, in a cluster that is too small for it. Beside it a federation of simulated
OpenPAI clusters with two federators (`federation`). Then (`plan`): kill -9, SIGSTOP, restart storms, full disks, lost
packets. One seed says what is hurt and when; the machine's timing remains free.

A run is a row of episodes: a minute of hurting, then everything is healed and must come to rest (`rest`). A witness
follows the API server all the while (`witness`), a ledger the log (`ledger`). At the end services are told to end, and
their own acknowledgements are compared with the log, which is verified.

Where root allows, all of it runs in namespaces of its own (`isolation`): they take every process, mount and packet rule
with them, however a run ends. Elsewhere packets are not lost but held back by TCP proxies (`network`).

    make chaos MINUTES=10 SEED=7 KILLS=200
"""
