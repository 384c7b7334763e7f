"""OpenPAI clusters: the REST server of microsoft/pai (2.2) over HTTP, many clusters in one process.

`schema` says what a job may look like, `jobs` how one lives on a cluster and who may do what (no transport, a clock
that is given), `server` has the paths, the codes and the faults; `__main__` is the same as a process.
"""
