"""What a request adds to the log."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events import envelope, subjects
from events.envelope import Header, decode_events
from events.federation import RunSeen
from events.log import MAX_COMMIT_BYTES
from events.memory import MemoryLog
from services.federator import core, snapshot
from services.federator import state as state_module
from services.federator.explain import Said, Story
from services.federator.mcc import MOST_CLUSTERS, InvalidJob, MultiClusterJob, parse
from services.federator.state import State
from services.start import state_at
from services.state.slices import at_once
from tests.federator.jobs import document, plugin


def named(name: str, alias: str) -> MultiClusterJob:
    """A job for as many clusters as there may be, with aliases that end so."""
    made = document()
    del made["secrets"]
    aliases = [f"{number:02}{alias}" for number in range(MOST_CLUSTERS)]
    made["name"] = name
    plugin(made)["clusters"] = {key: {"uri": "https://pai.example", "user": "alice"} for key in aliases}
    plugin(made)["params"] = {name: dict.fromkeys(aliases, 1) for name in ("gpuNum", "storageConfigs")}
    return parse(made)


@pytest.mark.parametrize(("letter", "most"), [("x", 240), ("\U0001f600", 63), ('"', 126)])
def test_what_is_said_of_as_many_jobs_as_are_decided_at_once_fits_into_a_commit(letter: str, most: int) -> None:
    """As it was: of aliases of 255 such letters it was 30 MB, which no log takes. The federator ended, and the next one
    had the same to say."""
    state, one = State(), named("job", letter * most)
    for number in range(core.JOBS):
        made = msgspec.structs.replace(one, name=f"job-{number}")
        said = core.federated(state, made, f"{'o' * 16}.{number:016}", "d" * 64)
        state.apply(state.sequence + 1, [said])
    for uid in state.jobs:
        state.apply(state.sequence + 1, [ev.JobCancelled(job=uid)])
    decided = core.decide(state)
    assert len(decided) == core.JOBS * MOST_CLUSTERS
    assert len(envelope.encode_events(decided)) < MAX_COMMIT_BYTES
    if letter != "x":
        with pytest.raises(InvalidJob, match="expected an alias of at most 255 bytes, as JSON has it"):
            core.federated(state, named("longer", letter * (most + 1)), "o.1", "")


def test_an_answer_about_all_jobs_is_folded_and_a_snapshot_of_them_restored_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 30,000 jobs it was one slice of 310 ms, and one of 690 ms."""
    state = State()
    jobs = [core.federated(state, named(f"job-{number}", "x"), f"{'o' * 16}.{number:016}", "d") for number in range(9)]
    state.apply(1, jobs)
    account = next(iter(state.clusters))
    for number, job in enumerate(jobs):
        place = job.clusters[0]
        state.apply(2 + number, [ev.SubmissionAccepted(job=job.job, cluster=place.cluster, uid="", adopted=False)])
    seen = [
        RunSeen(job=job.job, cluster=job.clusters[0].cluster, state="running", attempt=0, started_ns=0) for job in jobs
    ]
    monkeypatch.setattr(state_module, "SLICE_JOBS", 1)
    monkeypatch.setattr(snapshot, "SLICE_JOBS", 1)
    observed = ev.ClusterObserved(account=account, asked_ns=0, runs=tuple(seen))
    packed, digest = snapshot.FORM.pack(state)
    whole = at_once(snapshot.FORM.unpack(packed, digest))
    assert sum(1 for _ in snapshot.FORM.unpack(packed, digest)) > len(jobs)
    whole.apply(20, [observed])
    assert sum(1 for _ in state.apply_in_slices(20, [observed])) == len(jobs)
    assert snapshot.FORM.digest(state) == snapshot.FORM.digest(whole)


def test_a_takeover_is_folded_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: of 30,000 jobs on 20 clusters it was one slice of half a second, in which the lease had no turn."""
    log, state = MemoryLog("federation"), State()
    jobs = [core.federated(state, named(f"job-{number}", "x"), f"{'o' * 16}.{number:016}", "d") for number in range(9)]
    header = Header(writer="federator", epoch=0, basis=0, time_ns=0, cause="")
    subject = subjects.subject("federation", "federator")
    log.append_now(subject, header, envelope.encode_events(jobs), 0)
    log.append_now(subject, header, envelope.encode_events([ev.FederatorTaken(holder="next")]), 1)
    monkeypatch.setattr(state_module, "SLICE_JOBS", 1)
    monkeypatch.setattr(state_module, "SLICE_PLACES", 1)
    first, taken = log.commits
    whole = State()
    for stored in log.commits:
        whole.apply_stored(stored)
    turns = sum(1 for _ in state_at(log, form=snapshot.FORM).__await__())
    state.apply_stored(first)
    looked_at = sum(len(job.clusters) + 2 for job in jobs)  # each place; each job in its order, and again by the rules
    assert sum(1 for _ in state.apply_stored_in_slices(taken)) == looked_at
    assert turns >= looked_at, "a start gives others their turn between these"
    story = Story("job-3", State())
    story.add(Said(1, 0, jobs))
    assert sum(1 for _ in story.add_in_slices(Said(2, 0, decode_events(taken)))) == looked_at, "and who tells a story"
    assert snapshot.FORM.digest(state) == snapshot.FORM.digest(whole)


@pytest.mark.parametrize("letter", ["\x1b", "\x9b", "\x07", "\n", "\u202e"])
def test_what_a_terminal_would_obey_is_no_alias_and_no_gpu_type(letter: str) -> None:
    """As it was: whoever looked at the list of jobs had what another user liked done to their terminal."""
    for field in ("alias", "gpu_type"):
        job = named("job", "")
        job = msgspec.structs.replace(job, clusters=(msgspec.structs.replace(job.clusters[0], **{field: letter}),))
        with pytest.raises(InvalidJob, match="expected an alias and a GPU type without control characters"):
            core.federated(State(), job, "o.1", "")
