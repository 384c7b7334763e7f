"""A NATS server for all tests of the feed, and a cluster of its own for each."""

from tests.nats_server import cluster, own_server, server

__all__ = ["cluster", "own_server", "server"]
