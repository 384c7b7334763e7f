"""Seed 004: batch scheduling on Kubernetes, the part on kube-batch (translated from Chinese)."""
