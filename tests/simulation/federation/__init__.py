"""Federated histories: two clusters with all of their services and faults, and a federator above them, from one seed.

``--workload federated``. Each member is a `World`, as it is alone, with a part of the history's steps and faults. Over it
the federator's own service runs with its backend for Kubernetes, on the members' API servers, and hears the logs of some
of them; it has a log, users and faults of its own. What it submits is scheduled by the members' planners and bound by
their binders; a Job's controller and kubelets do the rest.

The federator's rules of time (guard and extra time) are compared with another reading by its own histories
(`tests.federator`), over clusters that a table describes; here it is what no table says: that what it means to happen on
a cluster happens there, whatever becomes of requests, answers, processes, logs and servers on the way (design, 7.8).
"""
