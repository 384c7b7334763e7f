"""Starvation, the binder's part: room for a gang that starves is granted (`reserving`) and ends (`ending`).

The rule's text and the planner's part: `services.planner.rules.starvation`.
"""
