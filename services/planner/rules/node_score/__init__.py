"""Node scores: seed 004 (binpack) and the kube-scheduler's default (least allocated). Integers only.

Both look at the share of a node that would be left free behind one more pod, in 1/1024, summed over cpu, memory and
whatever extended resources the pod asks for; of a pod that asks for none of these, the number of pods counts as well.
Least allocated likes much of it (spread); binpack likes little (fill a node before the next is touched, so that large
gaps remain for large pods).
"""

from services.planner.rules.node_score import binpack, least_allocated

SCORES = {"least-allocated": least_allocated, "binpack": binpack}
"""The names that a profile may give."""
