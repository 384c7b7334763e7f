"""Seed 000: Coscheduling plugin based on the scheduler framework (SIG Scheduling, 2020).

QueueSort and Pre-Filter are the planner's (here); Permit and Unreserve are the binder's
(`services.binder.rules.coscheduling`), because a quorum is judged where bindings are decided.
"""
