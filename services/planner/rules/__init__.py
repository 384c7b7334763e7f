"""Published rules, one small file each, grouped by the document that they implement.

"Seed 000" to "seed 004" name those documents: docs/design.md has the list.
"""
