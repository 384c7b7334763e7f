"""Seed 002: Gang scheduling (Koordinator, 2022), the part that is judged where bindings are decided."""
