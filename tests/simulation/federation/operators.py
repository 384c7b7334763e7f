"""Who runs the federation: a hasty operator gives up what he may, wherever it is; another takes a cluster out of the
clusters file and starts the federator anew, and mostly declares behind that that nothing is left there. Both may be
wrong: what goes on is theirs (R21).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.federator.served.people import Clients

if TYPE_CHECKING:
    from tests.simulation.federation.history import Federation

UNLISTED_S, DECLARED, DECLARES_EVERY_S = (8.0, 40.0), 0.6, 3.0
"""For how long a cluster is out of the file; of how many it is said that nothing is left there, and how often."""
DECOMMISSIONED = "decommissioned"


class Operators(Clients):
    """And users."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)  # type: ignore[arg-type]
        self._federation = federation
        self.unlisted: dict[str, None] = {}
        """Accounts that the file does not have."""

    def rush(self) -> None:
        """As soon as somebody answers."""
        if self._federation.serving() is None:
            self._federation.loop.after(1.0, self._federation.safely, self.rush)
        else:
            super().rush()

    def unlist(self, source: random.Random) -> None:
        federation = self._federation
        account, out_s = source.choice(federation.members).account, source.uniform(*UNLISTED_S)
        if account in self.unlisted:
            return
        federation.count["a cluster out of the file"] += 1
        self.unlisted[account] = None
        federation.supervisor.restart()
        if source.random() < DECLARED:
            federation.loop.after(source.uniform(0.1, 0.9) * out_s, federation.safely, self._declare, account)
        federation.loop.after(out_s, federation.safely, self._list_again, account)

    def _declare(self, account: str) -> None:
        """Of all jobs that have a place there."""
        federation = self._federation
        if account not in self.unlisted:
            return
        for job in list(federation.folded.jobs.values()):
            for place in [one for one in job.places.values() if one.account == account]:
                self.give_up(job.uid, place.cluster, DECOMMISSIONED)
        federation.loop.after(DECLARES_EVERY_S, federation.safely, self._declare, account)

    def _list_again(self, account: str) -> None:
        del self.unlisted[account]
        self._federation.supervisor.restart()
