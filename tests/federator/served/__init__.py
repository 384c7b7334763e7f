"""Histories of the federator's service as it is: its tasks, agendas, polls, handlers and log in virtual time.

The clusters, users, operators and what must hold are those of `tests.federator.simulation`, which drives the core alone,
without a loop, in a thirtieth of the time. Here `services.federator.service` itself runs, over the log's own client and a
NATS server in virtual time (`tests.simulation`), and may end or stand still at any await: between an answer and its
outcome, between a body and the commit that names it, while a request is answered.
"""

from tests.federator.served.world import HeldServed, Served

__all__ = ["HeldServed", "Served"]
