"""What a class tolerates, so that a taint is looked up there and not compared with each toleration.

A pod may have thousands of tolerations, all of one key, and each node a taint of its own: a look at each for each would
take longer than a planner may be silent. A toleration is kept by all that it wants to be equal. Of those that compare
integers only the one that lets most values through counts, for each key and effect.
"""

from __future__ import annotations

from collections.abc import Iterable

from events.objects import Taint, Toleration
from services.state.integers import OF_TAINTS, read

_Whose = tuple[str, str]
"""Key and effect as a toleration says them; empty: any."""


class Tolerations:
    """Kubernetes' ToleratesTaint for all tolerations of a class: an empty effect matches each, and so does an empty key
    unless the values must be equal."""

    __slots__ = ("_above", "_below", "_met")

    def __init__(self, said: Iterable[Toleration]) -> None:
        self._met: set[tuple[str, ...]] = set()
        """Key and effect of those that want no more (Exists), with the value of those that want it to be equal."""
        self._above: dict[_Whose, int] = {}
        """The least that a taint's value must be above."""
        self._below: dict[_Whose, int] = {}
        """The most that it must be below."""
        for one in said:
            match one.operator:
                case "Exists":
                    self._met.add((one.key, one.effect))
                case "" | "Equal" if one.key:
                    self._met.add((one.key, one.effect, one.value))
                case "Gt" | "Lt":
                    self._compare(one)

    def _compare(self, one: Toleration) -> None:
        number = read(one.value, OF_TAINTS)
        if number is not None:
            limits, wider = (self._above, min) if one.operator == "Gt" else (self._below, max)
            whose = one.key, one.effect
            limits[whose] = wider(number, limits.get(whose, number))

    def cover(self, taint: Taint) -> bool:
        """Whether one of them tolerates the taint."""
        met = self._met
        for key in (taint.key, ""):
            for effect in (taint.effect, ""):
                if (key, effect) in met or (key, effect, taint.value) in met:
                    return True
        return bool(self._above or self._below) and self._within(taint)

    def _within(self, taint: Taint) -> bool:
        number = read(taint.value, OF_TAINTS)
        if number is None:
            return False
        for key in (taint.key, ""):
            for effect in (taint.effect, ""):
                whose = key, effect
                if number > self._above.get(whose, number) or number < self._below.get(whose, number):
                    return True
        return False

    def untolerated(self, taints: Iterable[Taint]) -> Taint | None:
        """The first taint that keeps the pod off: NoSchedule or NoExecute and tolerated by none."""
        for taint in taints:
            if taint.effect != "PreferNoSchedule" and not self.cover(taint):
                return taint
        return None
