"""The one door to Kubernetes' API: `access` (where, and as whom), `transport` (requests and watches), `share` (how
many at a time), `client` (what ingest and binder ask), `gang_jobs` (what the federator asks), `objects` (as much of
the answers as is read).
"""
