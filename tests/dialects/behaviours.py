"""What a dialect's gang does in each situation: the columns of the matrix.

Each is one small scenario over the real cores: given a cluster, when something happens, then what was observed, in a few
words that follow from it. Nothing here knows what a dialect should do; what no gang may do, whatever its dialect, is
asserted on the way.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

import events as ev
from events.policy import DEFAULT_POLICY
from tests.dialects.cluster import Cluster
from tests.dialects.declare import Asked, Dialect
from tests.world import SECOND_NS

TRAIN = Asked("train")
LONG_S = 330
"""Longer than whatever is tried again by time alone (`Policy.retry_ms`)."""


def minimum(dialect: Dialect) -> str:
    """Three that must start together: two have come, then there is room for two, then for all."""
    cluster = Cluster(dialect)
    cluster.nodes("n0", "n1")
    cluster.gang(TRAIN, 2)
    cluster.rest()
    incomplete = cluster.bound()
    cluster.member(TRAIN, "train-2")
    cluster.rest()
    short, held = cluster.bound(), list(cluster.state.claims)
    cluster.nodes("n2")
    cluster.rest(20)
    assert len(cluster.bound()) == 3
    if incomplete or short:
        return f"{len(incomplete or short)} of 3 start"
    return f"all or none, {len(held)} hold room meanwhile" if held else "all or none"


def timeout(dialect: Dialect) -> str:
    """Two of three wait at permit, for 5 s where the dialect can say so; afterwards there is room for all."""
    cluster = Cluster(dialect)
    cluster.nodes("n0", "n1", "n2")
    uids = cluster.gang(TRAIN._replace(timeout_s=5))
    cluster.propose(cluster.state.pods[uids[0]].group, {uids[0]: "n0", uids[1]: "n1"})
    cluster.judge()
    assert cluster.said(ev.GangHeld)

    def released() -> bool:
        cluster.judge()
        return bool(cluster.said(ev.GangReleased))

    seconds = _seconds_until(cluster, released)
    assert not cluster.state.claims
    marked = cluster.mark()
    waits = not cluster.plan_would()
    cluster.rest(LONG_S)
    then = ["released"]
    if marked:
        then.append("all pods say so" if len(marked) == len(uids) else f"{len(marked)} pods say so")
    if waits and cluster.bound():
        then.append("backs off")
    then.append("retried" if cluster.bound() else "never retried")
    return f"after {seconds} s {', '.join(then)}"


def group(dialect: Dialect) -> str:
    """Two gangs that name each other, of which the second lacks a pod at first."""
    cluster = Cluster(dialect)
    cluster.nodes("n0", cpu=6)
    first, second = (Asked(name, groups=("a", "b")) for name in ("a", "b"))
    cluster.gang(first)
    cluster.gang(second, 2)
    cluster.rest()
    before = cluster.bound()
    cluster.member(second, "b-2")
    cluster.rest(20)
    after = cluster.bound()
    assert len(before) in (0, 3)
    if len(after) == 6:
        return "each gang alone" if before else "both or none"
    return "refused" if not after else f"{len(after)} of 6 start"


def order(dialect: Dialect) -> str:
    """By what two gangs, both ready and with room for both, come one after the other: under its project's profile."""
    factors = []
    if _first(dialect, lambda c, x, y: (_come(c, x, priority=10, at_s=9), _come(c, y))) == "x":
        factors.append("priority")
    if _first(dialect, lambda c, x, y: (_start(c, x), _come(c, y, at_s=9), c.member(x, f"{x.name}-3"))) == "y":
        factors.append("started gangs last")
    if _minimums_first(dialect):
        factors.append("minimums before the rest")
    winner = _first(dialect, lambda c, x, y: (_come(c, x, declared_s=0, at_s=9), _come(c, y, declared_s=9, at_s=0)))
    factors.append({"x": "age of the PodGroup", "y": "age of the first pod", "": ""}[winner])
    if _first(dialect, lambda c, x, y: (_come(c, x), _fail(c, x), _come(c, y, at_s=9))) == "y":
        factors[-1] += " or last failure"
    if _first(dialect, lambda c, x, y: (_come(c, x), _come(c, y))) == "":
        factors.append("name")
    return ", ".join(filter(None, factors))


def after_gang(dialect: Dialect) -> str:
    """A gang that ran loses two of its three; one new pod comes."""
    cluster = Cluster(dialect)
    cluster.nodes("n0", cpu=6)
    uids = cluster.gang(TRAIN)
    cluster.rest()
    assert cluster.bound() == uids
    for uid in uids[1:]:
        cluster.deleted(uid)
    cluster.rest()
    cluster.member(TRAIN, "train-new")
    cluster.rest(LONG_S)
    return "a later pod starts alone" if "train-new" in cluster.bound() else "a later pod waits for the minimum"


def failed_binding(dialect: Dialect) -> str:
    """One of three bindings is refused for good."""
    cluster = Cluster(dialect)
    cluster.nodes("n0", "n1", "n2")
    uids = cluster.gang(TRAIN)
    cluster.plan()
    cluster.judge()
    assert sorted(cluster.state.permitted) == uids
    cluster.fail_binding(uids[1])
    cluster.bind()
    stay = cluster.bound()
    cluster.rest(LONG_S)
    again = "it is tried again" if uids[1] in cluster.bound() else "it is given up"
    return f"{'the others stay' if len(stay) == 2 else 'all go'}, {again}"


def member_replaced(dialect: Dialect) -> str:
    """A member of a gang that fills its nodes is deleted; a stranger of a higher priority waits for room."""

    def running() -> tuple[Cluster, str]:
        cluster = Cluster(dialect)
        cluster.nodes("n0", "n1", "n2")
        uids = cluster.gang(TRAIN)
        cluster.rest()
        cluster.stranger("stranger", priority=100)
        cluster.rest()
        [node] = cluster.where(uids[1])
        cluster.deleted(uids[1])
        cluster.rest()
        return cluster, node

    cluster, node = running()
    cluster.member(TRAIN, "train-new")
    cluster.rest()
    if cluster.where("train-new", "stranger") != [node, ""]:
        return "a stranger takes its place"
    cluster, _ = running()

    def taken() -> bool:
        cluster.settle()
        return bool(cluster.where("stranger")[0])

    return f"place kept {_seconds_until(cluster, taken)} s"


Behaviour = Callable[[Dialect], str]
BEHAVIOURS: dict[str, Behaviour] = {
    "minimum": minimum,
    "timeout": timeout,
    "group": group,
    "order": order,
    "after gang": after_gang,
    "failed binding": failed_binding,
    "member replaced": member_replaced,
}
"""Column → scenario."""


# ---------------------------------------------------------------------------------------------------------------- parts


def _seconds_until(cluster: Cluster, happened: Callable[[], bool]) -> int:
    """Whole seconds of log time."""
    start_ns = cluster.now_ns
    while not happened():
        cluster.pass_s(0.1)
        assert cluster.now_ns - start_ns < 1_000 * SECOND_NS, "it never happens"
    return (cluster.now_ns - start_ns) // SECOND_NS


def _first(dialect: Dialect, given: Callable[[Cluster, Asked, Asked], object]) -> str:
    """Which of the gangs x and y goes first, whatever their names are; '' where the names decide."""
    winners = set()
    for names in (("a", "b"), ("b", "a")):
        x, y = map(Asked, names)
        cluster = _under_own_profile(dialect)
        given(cluster, x, y)
        cluster.nodes("n0", cpu=6)
        placed = [event.group for event in cluster.plan() if isinstance(event, ev.GangPlaced)]
        group = {cluster.state.pods[f"{asked.name}-0"].group: role for asked, role in ((x, "x"), (y, "y"))}
        assert len(placed) == 2
        winners.add(group[placed[0]])
    return winners.pop() if len(winners) == 1 else ""


def _minimums_first(dialect: Dialect) -> bool:
    """Whether of two gangs, with room for six pods, the second gets its minimum before the first has more than that."""
    cluster = _under_own_profile(dialect)
    first, second = Asked("a"), Asked("b")
    cluster.gang(first, 6)
    cluster.gang(second, 3)
    cluster.nodes("n0", cpu=6)
    cluster.rest()
    assert len(cluster.bound()) == 6
    return len([uid for uid in cluster.bound() if uid.startswith("b")]) == 3


def _under_own_profile(dialect: Dialect) -> Cluster:
    profile = msgspec.structs.replace(DEFAULT_POLICY.profile, queue_order=dialect.queue_order)
    return Cluster(dialect, msgspec.structs.replace(DEFAULT_POLICY, profile=profile))


def _come(cluster: Cluster, asked: Asked, *, priority: int = 0, declared_s: int = 0, at_s: int = 0) -> None:
    cluster.declare(asked, declared_s)
    cluster.members(asked, 3, at_s, priority=priority)


def _start(cluster: Cluster, asked: Asked) -> None:
    """The gang runs."""
    _come(cluster, asked)
    cluster.nodes("before", cpu=3)
    cluster.rest()
    assert len(cluster.bound()) == 3


def _fail(cluster: Cluster, asked: Asked) -> None:
    """The gang is tried, finds no room, and has waited long enough since."""
    cluster.settle()
    assert cluster.said(ev.GroupsRefused)
    cluster.pass_s(3)
