"""Of a gang's members the oldest that declares something speaks for it, whoever came, went, or was edited."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import events as ev
from events.objects import Declaration, Membership
from services.state import declarations, snapshot
from services.state.fold import State
from services.state.records import Gang
from tests import facts
from tests.facts import scheduling_class
from tests.world import World

PODS = st.integers(0, 7)
SAYS = st.sampled_from(["silent", "declares", "other gang", "no gang"])
CANDIDATE = st.integers(0, 5).map(bool)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("observed"), PODS, SAYS, CANDIDATE),
        st.tuples(st.just("deleted"), PODS),
        st.tuples(st.just("assigned"), PODS),
        st.tuples(st.sampled_from(["planned", "judged", "restored"])),
    ),
    max_size=40,
)
DECLARED = Declaration(min_member=1, waiting_time_ms=0, said=("min_member",))


def membership(says: str) -> Membership | None:
    if says == "no gang":
        return None
    declared = DECLARED if says in ("declares", "other gang") else None
    return Membership(
        "default/other" if says == "other gang" else "default/g", "koordinator/v1alpha1", declared=declared
    )


def naive(state: State, gang: Gang) -> str:
    for uid in gang.members:
        said = state.pods[uid].fact.gang
        if said is not None and said.gang == gang.key and said.declared is not None:
            return uid
    return ""


@given(STEPS)
@settings(deadline=None, max_examples=300)
def test_the_next_that_declares_is_the_oldest_that_does(steps: list[tuple]) -> None:
    found = declarations._next_declarer

    def checked(state: State, gang: Gang) -> str:
        assert found(state, gang) == naive(state, gang)
        return found(state, gang)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(declarations, "LOOKED_AT", 1)
        patch.setattr(declarations, "_next_declarer", checked)
        world = World()
        world.node("n0")
        for step in steps:
            match step:
                case "observed", number, says, candidate:
                    there = world.state.pods.get(f"p{number}")
                    world.facts(
                        scheduling_class("x", {"cpu_milli": 1_000, "pods": 1}),
                        facts.pod(
                            f"p{number}",
                            "x",
                            version=world.version(),
                            gang=membership(says),
                            candidate=candidate,
                            node=there.node if there is not None else "",
                        ),
                    )
                case "deleted", number:
                    world.deleted(f"p{number}")
                case "assigned", number:
                    world.assigned(f"p{number}", "n0")
                case ("planned",):
                    world.plan()
                case ("judged",):
                    world.judge()
                case ("restored",):
                    world.state = snapshot.decode(snapshot.encode(world.state))
            for gang in world.state.gangs.values():
                checked(world.state, gang)


@pytest.mark.parametrize("then", ["another comes", "an older one begins to"])
def test_who_declares_something_later_is_heard_when_its_turn_comes(then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also once the members were looked through for one that does."""
    monkeypatch.setattr(declarations, "LOOKED_AT", 1)
    world = World()

    def says(uid: str, what: str) -> None:
        world.facts(facts.pod(uid, "x", gang=membership(what), version=world.version()))

    world.facts(scheduling_class("x", {"cpu_milli": 1_000, "pods": 1}))
    for uid, what in (("a", "silent"), ("b", "silent"), ("c", "declares")):
        says(uid, what)
    world.deleted("c")
    says("d", "declares")
    later = ("z", "e") if then == "another comes" else ("b",)
    for uid in later:
        says(uid, "declares")
    world.deleted("d")
    assert world.state.gangs["default/g"].declarer == later[0]


def test_silent_members_are_looked_at_once_however_many_speakers_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    declares = declarations.declares

    def look(state: State, gang: str, uid: str) -> bool:
        looks.append(uid)
        return declares(state, gang, uid)

    monkeypatch.setattr(declarations, "declares", look)
    world = World()
    of_class = scheduling_class("x", {"cpu_milli": 1_000, "pods": 1})
    silent = [facts.pod(f"a{number}", "x", gang=membership("silent")) for number in range(100)]
    speaking = [facts.pod(f"b{number}", "x", gang=membership("declares")) for number in range(50)]
    world.facts(of_class, *silent, *speaking)
    for number in range(49):
        assert world.state.gangs["default/g"].declarer == f"b{number}"
        world.facts(ev.PodDeleted(uid=f"b{number}", namespace="default", name=f"b{number}"))
    assert len(looks) < 1_000  # and not 100 with each that left
