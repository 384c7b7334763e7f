"""Seed 000, the part that is judged where bindings are decided: Permit and Unreserve."""
