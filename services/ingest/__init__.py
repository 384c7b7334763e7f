"""Ingest: what is in the cluster, as facts in the log.

`differ` is the core: what an observation adds to the last fact of each object. `books` keeps these facts, in a book for
each kind of object. `decoding` and `normalise` make facts of Kubernetes' objects, `dialects` has one file for each
project that declares gangs, `service` is the only file that talks to the outside.
"""
