"""The demo, in two acts: a cluster's gangs (`cluster`), and one job for many clusters (`federation`)."""
