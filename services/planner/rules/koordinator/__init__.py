"""Seed 002: Koordinator, gang scheduling (2022): queue order, PreFilter, the schedule cycle.

Permit and Un-reserve are the binder's (`services.binder.rules.koordinator`).
"""
