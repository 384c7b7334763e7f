"""Planted bugs of the leases: found by histories that have real ones alone."""

from __future__ import annotations

from tests.simulation.planting import LEASED_FROM, Plant, plants_from

LEASE, LAUNCH = "events.lease", "services.console.launch"


_plant = plants_from(LEASED_FROM)

LEASES: dict[str, Plant] = {
    "dead too soon": _plant(
        "a standby takes a holder for dead who has not renewed for half of the lease's time",
        LEASE,
        ("        return seen_s >= LIVES * (word.ttl_s or self._ttl_s)\n", "        return seen_s >= word.ttl_s / 2\n"),
    ),
    "another's lease kept": _plant(
        "a holder goes on renewing a lease that is another's by now",
        LEASE,
        ("        if last is not None and last.held not in (self._held, _NO_LEASE):\n", "        if False:\n"),
    ),
    "waits to be told": _plant(
        "a standby tries again only when somebody says something of the lease",
        LEASE,
        (
            "                    async with asyncio.timeout(self.ttl_s / 5):",
            "                    async with asyncio.timeout(None):",
        ),
    ),
    "lease lost unheard": _plant(
        "a service goes on when its lease is lost",
        LAUNCH,
        (
            "            running.cancel()\n            raise SteppedDown",
            "            await running\n            raise SteppedDown",
        ),
    ),
    "claimed and not held": _plant(
        "a standby that claims is not told that it has",
        LEASE,
        (
            "            return await asyncio.shield(claiming)\n",
            "            return not await asyncio.shield(claiming)\n",
        ),
    ),
}
