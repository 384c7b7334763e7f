"""The tests. Most folders mirror the code: `tests/planner` is about `services/planner`, `tests/events` about `events`.

Helpers, in the order in which a reader meets them:

    world        a cluster's log in memory with the real cores around it: given events, when …, then events
    facts, manifests      ingest's facts, and Kubernetes' objects, with no more in them than a test asks for
    waiting      waiting for a condition, never for a duration
    homes, nats_server    logs in each of the three homes; a NATS server
    second, bounds        a second version of rules and fold; commits that take little
    shared       the folder beside the repository with published texts and manifests; tests of it skip without it

What is more than a service's own tests:

    walk         random walks over everything that a cluster may do, invariants checked after every commit
    simulation   the services in virtual time, every fault and every step from one seed (`make faults`); planted bugs
    contract     one suite for the simulated API server and a real one
    dialects     every published manifest, and what each dialect does in each situation
    fuzz         decoders and parsers, given what is wrong (`make fuzz`)
    failover     NATS servers that are lost one after another
    e2e, chaos   a real control plane: end to end, and hurt at random (`make e2e`, `make chaos`)
"""
