"""The checks of a state catch what they name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.state.fold import State
from services.state.records import Cohort
from services.state.validate import Violated, validate_state
from tests.state.test_snapshot import busy


def _claim_of_nobody(state: State) -> None:
    claim = next(claim for claim in state.claims.values() if claim.stage == "bound")
    del state.pods[claim.uid]


def _finished_pod_with_room(state: State) -> None:
    uid = next(uid for uid, claim in state.claims.items() if claim.stage == "bound")
    state.pods[uid].status = "succeeded"


def _bound_elsewhere(state: State) -> None:
    uid = next(uid for uid, claim in state.claims.items() if claim.stage == "bound")
    state.pods[uid].node = "n7"


def _unlisted(state: State) -> None:
    uid, claim = next(iter(state.claims.items()))
    del state.nodes[claim.node].claims[uid]


def _listed_twice(state: State) -> None:
    state.nodes["n0"].claims["ghost"] = None


def _open_intent(state: State) -> None:
    state.permitted["ghost"] = None


def _no_proposal(state: State) -> None:
    state.proposals.clear()


def _no_hold(state: State) -> None:
    state.groups["default/held"].held.clear()


def _no_nomination(state: State) -> None:
    state.nominations.clear()


def _room_miscounted(state: State) -> None:
    state.table.held[0, 0] += 1


def _proposed_miscounted(state: State) -> None:
    state.table.proposed[0, 0] += 1


def _wrong_phase(state: State) -> None:
    state.groups["default/huge"].phase = "ready"


def _forgotten(state: State) -> None:
    group = state.groups["default/huge"]
    del state.cohorts[group.cohort].groups[group.key]
    group.phase, group.cohort = "idle", 0


def _empty_cohort(state: State) -> None:
    state.cohorts[1] = Cohort(1, "x", "x", "x", 0, 0, 0, "a", {})


def _no_deadlines_of(kind: str, writer: str) -> Callable[[State], None]:
    def damage(state: State) -> None:
        clock = state.clocks[writer]
        clock.unarmed = [one for one in clock.unarmed if one[1] != kind]
        clock.armed = [one for one in clock.armed if one.kind != kind]

    return damage


def _elsewhere(state: State) -> None:
    state.groups["default/train"].partition += 1


CASES: list[tuple[Callable[[State], None], str]] = [
    (_claim_of_nobody, r"has no pod \(7\.13\)"),
    (_finished_pod_with_room, r"finished pod .* holds room \(7\.13\)"),
    (_bound_elsewhere, r"bound elsewhere \(7\.1\)"),
    (_unlisted, "is not listed by node"),
    (_listed_twice, r"lists a claim that does not exist \(7\.13\)"),
    (_open_intent, r"open intents and permitted claims differ \(rule 5\)"),
    (_no_proposal, r"has no proposal \(7\.13\)"),
    (_no_hold, r"is not held by its group \(7\.4\)"),
    (_no_nomination, r"has no bound \(7\.13\)"),
    (_room_miscounted, "held room is not the sum"),
    (_proposed_miscounted, "proposed room is not the sum"),
    (_wrong_phase, "listed otherwise"),
    (_forgotten, r"something to place, and nobody will try it \(7\.12\)"),
    (_empty_cohort, "is empty"),
    (_no_deadlines_of("permit", "binder"), r"the hold of default/held has no bound \(7\.4\)"),
    (_no_deadlines_of("nomination", "binder"), r"a replacement of train-0 has no bound \(7\.13\)"),
    (_no_deadlines_of("backoff", "planner.a"), r"backs off for ever \(7\.12\)"),
    (_no_deadlines_of("retry", "planner.a"), r"is never tried again \(7\.12\)"),
    (_elsewhere, r"not in that of default/train \(section 2\)"),
]


@pytest.mark.parametrize(("damage", "sentence"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_a_damaged_state_is_named(damage: Callable[[State], None], sentence: str) -> None:
    state = busy().state
    validate_state(state)
    damage(state)
    with pytest.raises(Violated, match=sentence):
        validate_state(state)
