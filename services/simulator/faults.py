"""Faults that a test can plan: an answer is late, wrong, or never comes, and its effect took hold or not.

A `SimulatedCluster` has them as `faults`:

    cluster.faults.plan(verb="bind", status=500, times=3)           # refused three times, nothing applied
    cluster.faults.plan(verb="bind", status=504, applied=True)      # applied, but the answer says otherwise
    cluster.faults.plan(verb="bind", hang_up=True, applied=True)    # applied, and the connection breaks
    cluster.faults.plan(verb="bind", delay_s=9, applied=True)       # applied at once, answered after 9 s
    cluster.faults.plan(verb="watch", status=410)                   # too old, told as HTTP status
    cluster.faults.plan(verb="list", resource="pods", delay_s=0.2, times=0)   # each, until it is lifted
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Fault:
    """What goes wrong with requests that match: empty `verb`, `resource`, `name`, `token` match all."""

    verb: str = ""
    """get, list, watch, create, update, patch, delete, deletecollection, bind, evict."""
    resource: str = ""
    """The plural, e.g. pods."""
    subresource: str | None = None
    """``status``, ``resize``; None matches with and without."""
    name: str = ""
    token: str = ""
    """The bearer token of the request."""
    status: int = 0
    """The answer's HTTP status; 0: the true answer."""
    message: str = ""
    """What it says, where that matters."""
    applied: bool = False
    """Whether the request takes effect first, whatever its answer; without it only a true answer has an effect."""
    hang_up: bool = False
    """Break the connection instead of answering."""
    delay_s: float = 0.0
    """Before the answer, or the broken connection."""
    retry_after_s: int = 0
    """Told with a 429 or 503."""
    times: int = 1
    """How many requests it hits; 0: all, until it is lifted."""
    hits: int = 0


@dataclass(slots=True)
class Faults:
    """The planned faults; the first that matches a request hits it."""

    planned: list[Fault] = field(default_factory=list)

    def plan(self, fault: Fault | None = None, /, **what: object) -> Fault:
        """Plan one fault, given whole or by `Fault`'s fields; returns it, so that a test can see its `hits`."""
        fault = fault or Fault(**what)  # type: ignore[arg-type]
        self.planned.append(fault)
        return fault

    def lift(self, fault: Fault | None = None) -> None:
        """End one fault, or all."""
        self.planned = [other for other in self.planned if fault is not None and other is not fault]

    def hit(self, verb: str, resource: str, subresource: str, name: str, token: str = "") -> Fault | None:
        """The fault that hits this request, counted."""
        for fault in self.planned:
            if (
                fault.verb in ("", verb)
                and fault.resource in ("", resource)
                and fault.subresource in (None, subresource)
                and fault.name in ("", name)
                and fault.token in ("", token)
            ):
                fault.hits += 1
                if fault.times and fault.hits >= fault.times:
                    self.planned.remove(fault)
                return fault
        return None
