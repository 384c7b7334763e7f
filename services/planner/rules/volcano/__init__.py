"""Volcano: what its PodGroups ask for beyond a minimum of the whole. Permit's part is the binder's."""
