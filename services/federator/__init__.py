"""The federator: one job, described once for many clusters, is kept on the first good cluster that starts it."""
