"""Volcano, the part that is judged where bindings are decided."""
