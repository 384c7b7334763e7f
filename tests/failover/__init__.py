"""NATS as users run it: three servers, three replicas, TLS, a user for each service; one server after another is lost.

`field` is what runs: Muster's services as processes over such servers and a simulated cluster, in which gangs come all
the time, and a reader who notes every commit. ``python -m benchmarks.nats_failover`` measures the same.
"""
