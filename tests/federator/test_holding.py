"""The federator over Kubernetes clusters: nothing runs before its acceptance is in the log, and no garbage is left."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

import events as ev
from services.decider import LogTime
from services.federator import mcc
from services.federator.backends import Accepted, Described, Listing, Owner, Reach, Submission
from services.federator.backends.gangs import MANAGED, MANAGER
from services.federator.backends.kubernetes import Kubernetes
from services.federator.records import ENDED, account_of
from services.federator.rules import forgotten
from services.federator.service import agenda, effects
from services.federator.service.polling import Polling
from services.federator.specialize import specialize, to_yaml
from services.kubernetes.access import direct
from services.simulator.cluster import SimulatedCluster
from tests.federator.backends.sites import KubernetesSite
from tests.federator.jobs import document, plugin
from tests.federator.processes import Processes
from tests.waiting import until

NAMES = ("a", "b", "c")
POLL_S = 0.02


class Field(Processes):
    """Three Kubernetes clusters that the test schedules."""

    def __init__(self, sites: dict[str, KubernetesSite]) -> None:
        super().__init__()
        self.sites = sites
        self.backends: dict[str, Kubernetes] = {}

    async def start(self) -> None:
        self.backends = {
            alias: Kubernetes(direct(site.cluster.url), "default", timeout_s=2.0) for alias, site in self.sites.items()
        }
        reaches = {
            account_of("ml", f"https://{alias}.example"): Reach(backend, POLL_S)
            for alias, backend in self.backends.items()
        }
        await self.begin(reaches)

    async def submit(self, name: str, **priorities: int) -> None:
        await self.federator.federate(described(name, **priorities))

    async def cleared(self) -> None:
        await self.until(lambda: not self.federator.state.clearing, "what is left to be cleared")

    def left(self) -> dict[str, list[str]]:
        """Run → where Jobs of it are."""
        found: dict[str, list[str]] = {}
        for alias, site in self.sites.items():
            for job in site.cluster.list("Job"):
                name = job["metadata"]["annotations"]["dev.muster.federator.name"]
                if alias not in found.setdefault(name.removesuffix(f"-{alias}"), []):
                    found[name.removesuffix(f"-{alias}")].append(alias)
        return found


def described(name: str, **priorities: int) -> str:
    made = document()
    del made["secrets"]
    made["name"] = name
    clusters: dict[str, Any] = {
        alias: {"uri": f"https://{alias}.example", "user": "ml", "priority": priority}
        for alias, priority in priorities.items()
    }
    plugin(made).update(
        guardTimeRunning=0.001, timeScale=0.001, clusters=clusters, params={"gpuNum": dict.fromkeys(priorities, 1)}
    )
    made["taskRoles"]["main"]["resourcePerInstance"]["gpu"] = 0
    made["taskRoles"]["server"] = made["taskRoles"]["main"] | {"instances": 2}
    made["extra"]["com.microsoft.pai.runtimeplugin"] = made["extra"]["com.microsoft.pai.runtimeplugin"][-1:]
    return to_yaml(made)


@pytest.fixture
async def field() -> AsyncIterator[Field]:
    async with contextlib.AsyncExitStack() as stack:
        clusters = {alias: await stack.enter_async_context(SimulatedCluster()) for alias in NAMES}
        made = Field({alias: KubernetesSite(cluster) for alias, cluster in clusters.items()})
        await made.start()
        yield made
        await made.kill()


async def scheduling(field: Field, when: Callable[[str], bool]) -> None:
    """The clusters' schedulers, for ever: they bind whole gangs."""
    while True:
        for alias, site in field.sites.items():
            if when(alias):
                for pod in site.cluster.list("Pod"):
                    if not pod["spec"].get("nodeName"):
                        with contextlib.suppress(Exception):  # gone meanwhile
                            site.cluster.bind(pod["metadata"]["name"], "n1")
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def scheduled(field: Field, *aliases: str) -> AsyncIterator[None]:
    task = asyncio.create_task(scheduling(field, lambda alias: alias in aliases))
    yield
    task.cancel()


async def test_losers_leave_nothing_behind(field: Field) -> None:
    async with scheduled(field, "b"):
        await field.submit("train", a=0, b=0, c=0)
        await field.settled("train")
    await field.cleared()
    assert field.job("train").winner == "b"
    await until(lambda: field.left() == {"train": ["b"]}, "nothing to be left of the losers")
    said = field.said()
    assert sum(isinstance(event, ev.RemainsCleared) for event in said) == 2


async def test_what_is_left_is_not_cleared_only_when_another_stop_is_due(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: the pause behind a stop that took many attempts, up to a minute, held up the clearing."""
    monkeypatch.setattr(agenda, "AGAIN_S", 3_600.0)
    monkeypatch.setattr(agenda, "SELDOM_S", 3_600.0)
    async with scheduled(field, "b"):
        await field.submit("train", a=0, b=0)
        await field.settled("train")
    await field.cleared()


async def test_a_run_is_released_when_its_acceptance_is_in_the_log(field: Field) -> None:
    resumed: list[bytes] = []
    for alias, backend in field.backends.items():
        release = backend.release

        async def releasing(given: Submission, uid: str, release: Any = release, alias: str = alias) -> Any:
            accepted = [event for event in field.said() if isinstance(event, ev.SubmissionHeld)]
            assert any(event.cluster == alias and event.uid == uid for event in accepted)
            resumed.append(given.body)
            return await release(given, uid)

        backend.release = releasing  # type: ignore[method-assign]
    async with scheduled(field, *NAMES):
        await field.submit("train", a=0, b=0)
        await field.settled("train")
    assert resumed


async def test_a_replaced_process_releases_nothing(field: Field) -> None:
    """It wakes up when everything is over and cleared, submits once more, and meets the log."""
    async with scheduled(field, "b"):
        await field.submit("train", a=0, b=0)
        await field.settled("train")
    await field.cleared()
    job = field.job("train")

    special = specialize(mcc.load(described("train", a=0, b=0)), "a", field.federator.effects.owner((job.uid, "a")))
    answer = await field.backends["a"].submit(Submission(name="train-a", body=to_yaml(special).encode()))
    assert isinstance(answer, Accepted), "the name is free again"
    assert answer.held
    await field.kill()
    await field.start()  # it lists once, whether a job is open or not
    await until(lambda: field.left() == {"train": ["b"]}, "what came late to be cleared")
    found = [event for event in field.said() if isinstance(event, ev.RemainsFound)]
    assert [(event.cluster, event.name, event.uid) for event in found] == [("a", "train-a", answer.uid)]
    assert field.sites["a"].pods("train-a") == []


async def test_what_an_api_server_refuses_while_it_restarts_is_asked_for_again(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R11. As it was: it refuses everybody until it has read its roles, and jobs were placed nowhere for that."""
    monkeypatch.setattr(agenda, "AGAIN_S", 0.05)
    refusing = field.sites["a"].cluster.faults
    refused = [refusing.plan(verb="create", resource=kind, status=403, times=2) for kind in ("jobs", "podgroups")]
    async with scheduled(field, "a"):
        await field.submit("train", a=0)
        await field.settled("train")
    assert [fault.hits for fault in refused] == [2, 2]
    assert field.job("train").winner == "a"
    assert not any(isinstance(event, ev.SubmissionRefused) for event in field.said())


async def test_an_unwanted_submission_never_runs(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled before its acceptance is known: it is stopped without having been released."""
    monkeypatch.setattr(agenda, "AGAIN_S", 0.05)
    planned = field.sites["a"].plan("submit", hang_up=True, applied=True, times=1)
    await field.submit("train", a=0)
    await until(lambda: planned.hits, "a lost answer")
    assert await field.federator.cancel(field.job("train"))
    await field.settled("train")
    await field.cleared()
    assert not any(isinstance(event, ev.RunReleased) for event in field.said())
    assert field.left() == {}


async def test_a_run_that_somebody_deletes_is_out_of_the_race(field: Field) -> None:
    """And not before its pods are over: who left them on a node may have left them running."""
    await field.submit("train", a=0, b=0)
    site = field.sites["a"]
    await until(lambda: len(site.pods("train-a")) == 3 and field.job("train").places["a"].run == "waiting", "its pods")
    kept = site.pods("train-a")[0]
    site.cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "left", "labels": {MANAGED: MANAGER}, "annotations": kept["metadata"]["annotations"]},
            "spec": kept["spec"],
        }
    )
    for made in site.cluster.list("Job"):
        site.cluster.delete("Job", made["metadata"]["name"])
    await field.until(lambda: field.job("train").places["a"].run == "unknown", "its Jobs to be missed")
    before = site.requests()
    await field.until(lambda: site.requests() > before + 10, "ten more lists")
    assert field.job("train").places["a"].phase != ENDED
    site.cluster.delete("Pod", "left")
    await field.until(lambda: field.job("train").places["a"].phase == ENDED, "its end")
    assert field.job("train").places["a"].run == "gone"
    async with scheduled(field, "b"):
        await field.settled("train")
    assert field.job("train").winner == "b"


async def test_a_run_whose_body_is_lost_is_told_of_and_holds_nobody_up(
    field: Field, caplog: pytest.LogCaptureFixture
) -> None:
    fault = field.sites["a"].cluster.faults.plan(verb="create", resource="podgroups", status=500, times=0)
    await field.submit("lost", a=0)
    await field.until(lambda: fault.hits, "an attempt to release it")
    await field.kill()
    field.blobs.data.clear()
    await field.start()
    await field.until(lambda: "cannot be released" in caplog.messages, "a word")
    async with scheduled(field, "b"):
        await field.submit("train", b=0)
        await field.settled("train")
    await field.settled("lost")
    assert field.job("lost").places["a"].refusal == "BodyGone"
    await field.cleared()


async def test_a_cluster_that_will_not_let_it_go_is_out_of_the_race(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one without PodGroups."""
    monkeypatch.setattr(effects, "BELIEVED_AFTER_S", 0.0)
    field.sites["a"].cluster.faults.plan(verb="create", resource="podgroups", status=404, times=0)
    async with scheduled(field, *NAMES):
        await field.submit("train", a=0)
        await field.settled("train")
    await field.cleared()
    refused = [event for event in field.said() if isinstance(event, ev.SubmissionRefused)]
    assert [event.cluster for event in refused] == ["a"]
    assert field.job("train").winner == ""
    assert field.left() == {}


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_one_survives_and_nothing_is_left(
    field: Field, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes killed at random moments, requests and answers lost, of jobs of two task roles."""
    monkeypatch.setattr(agenda, "AGAIN_S", 0.05)
    rng = random.Random(seed)
    names = [f"job-{number}" for number in range(5)]
    waiting = list(names)
    async with scheduled(field, *NAMES):
        for _ in range(25):
            site = field.sites[rng.choice(NAMES)]
            verb, resource = rng.choice(
                [("create", "jobs"), ("create", "podgroups"), ("patch", "jobs"), ("delete", "jobs"), ("list", "pods")]
            )
            site.cluster.faults.plan(verb=verb, resource=resource, hang_up=True, applied=rng.random() < 0.7)
            site.cluster.faults.plan(verb=verb, resource=resource, status=rng.choice((403, 429, 500)))
            if waiting:
                await field.submit(waiting.pop(), a=rng.randrange(3), b=rng.randrange(3), c=rng.randrange(3))
            await asyncio.sleep(rng.random() * 0.1)
            if rng.random() < 0.4:
                await field.kill()
                await field.start()
        for site in field.sites.values():
            site.cluster.faults.lift()
        await field.settled(*names)
        await field.cleared()
        kept = {name: [winner] for name in names if (winner := field.job(name).winner)}
        await until(lambda: field.left() == kept, "one of each, and nothing else")
    again = field.folded()
    assert again.jobs == field.federator.state.jobs
    assert not again.intents()
    for name in names:
        for place in field.job(name).places.values():
            assert place.phase == ENDED or place.cluster == field.job(name).winner


async def test_what_comes_late_of_a_forgotten_job_is_cleared(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what another federation of the same name holds there is not."""
    monkeypatch.setattr(forgotten, "KEPT", 0)
    ended = asyncio.create_task(ending(field, "b"))
    async with scheduled(field, "b"):
        await field.submit("train", a=0, b=0)
        job = field.job("train")
        await field.until(lambda: not field.federator.state.jobs, "it to be forgotten")
    ended.cancel()
    assert job.winner == "b"
    await until(lambda: field.left() == {"train": ["b"]}, "the garbage collector to take the rest of what was cleared")
    other = Owner(federation="federation", job="0123456789abcdef.0123456789abcdef", cluster="c")
    for owner in (field.federator.effects.owner((job.uid, "a")), other):
        special = specialize(mcc.load(described("train", a=0, c=0)), owner.cluster, owner)
        body = to_yaml(special).encode()
        answer = await field.backends[owner.cluster].submit(Submission(name=f"train-{owner.cluster}", body=body))
        assert isinstance(answer, Accepted), "the name is free again"
    await field.kill()
    await field.start()
    await field.until(lambda: field.left() == {"train": ["b", "c"]}, "what came late to be cleared")
    await field.until(lambda: not field.federator.state.strays, "the log to know it")
    said = [event for event in field.said() if isinstance(event, ev.StrayFound | ev.StrayCleared)]
    assert [(type(event), event.job, event.cluster) for event in said] == [
        (ev.StrayFound, job.uid, "a"),
        (ev.StrayCleared, job.uid, "a"),
    ]


async def test_a_list_from_before_it_was_forgotten_clears_nothing(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked before the winner was let go, and its answer came when all was over: it shows it held."""
    monkeypatch.setattr(forgotten, "KEPT", 0)
    backend, lists = field.backends["b"], []
    observe = backend.observe

    async def observing() -> Any:
        lists.append(await observe())
        return lists[-1]

    backend.observe = observing  # type: ignore[method-assign]
    ended = asyncio.create_task(ending(field, "b"))
    async with scheduled(field, "b"):
        await field.submit("train", b=0)
        job = field.job("train")
        await field.until(lambda: not field.federator.state.jobs, "it to be forgotten")
    ended.cancel()
    run = next(run for listing in reversed(lists) for run in listing.runs)
    owner = field.federator.effects.owner((job.uid, "b"))
    old = Listing(runs=(run,), clock_ms=0, held=(Described(run=msgspec.structs.replace(run, held=True), owner=owner),))
    await field.kill()
    await field.start()
    federator, first = field.federator, [old]
    fresh = field.backends["b"].observe

    async def answered() -> Any:
        return first.pop() if first else await fresh()

    field.backends["b"].observe = answered  # type: ignore[method-assign]
    polling = Polling(federator.decider, LogTime(0), federator.effects.agendas)
    await polling._sweep(job.places["b"].account, field.backends["b"])
    assert list(federator.state.strays[job.places["b"].account]) == [run.uid]
    await field.until(lambda: not federator.state.strays, "a list from after it")
    assert field.left() == {"train": ["b"]}


async def ending(field: Field, alias: str) -> None:
    """What runs there succeeds."""
    site = field.sites[alias]
    while True:
        phases = {pod["status"].get("phase") for pod in site.pods(f"train-{alias}")}
        if "Running" in phases and phases <= {"Running", "Succeeded"}:  # some may have come behind the others' end
            site.finish(f"train-{alias}", 0)
        await asyncio.sleep(0.05)
