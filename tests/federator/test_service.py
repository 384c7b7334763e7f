"""The federator as it runs: its log in memory, clusters over real HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import events as ev
from events.envelope import decode
from events.micro import Unfit
from services.federator import mcc, observing, requests
from services.federator.bodies import Cipher
from services.federator.clusters import Limits
from services.federator.explain import Said, explained
from services.federator.mcc import InvalidJob
from services.federator.records import PLACED, SETTLED
from services.federator.service import agenda, effects, polling, told
from services.federator.specialize import to_yaml
from services.simulator.openpai.jobs import Refusal
from tests.federator import field as fields
from tests.federator.backends.sites import job
from tests.federator.field import NAMES, Field
from tests.waiting import until


async def test_the_first_good_cluster_keeps_the_job(field: Field) -> None:
    field.cluster("a", waiting_ms=600_000, notice_ms=50)
    field.cluster("b", waiting_ms=100)
    field.cluster("c", waiting_ms=600_000)
    await field.start()
    await field.federate("train", a=0, b=0, c=0)
    await field.settled("train")
    assert field.job("train").winner == "b"
    assert field.alive() == {"train": ["b"]}
    assert field.blobs.data, "a cluster that is restored may hold it again"
    await field.federator.cancel(field.job("train"))
    await until(lambda: not field.blobs.data, "the body to go")


async def test_a_cluster_of_higher_priority_gets_the_job_in_its_extra_time(field: Field) -> None:
    field.cluster("a", waiting_ms=50)
    field.cluster("b", waiting_ms=400)
    await field.start()
    await field.federate("train", a=0, b=20)  # 20 points: 1.2 s
    await field.settled("train")
    assert field.job("train").winner == "b"
    assert field.alive() == {"train": ["b"]}


async def test_log_time_goes_on_between_two_lists(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """R2: a guard time ends although clusters are listed less often than what counts as a jump."""
    monkeypatch.setattr(observing, "JUMP_NS", 500_000_000)
    monkeypatch.setattr(polling, "HEARTBEAT_NS", 100_000_000)
    monkeypatch.setattr(fields, "POLL_S", 0.7)
    field.cluster("a", waiting_ms=50)
    await field.start()
    await field.federate("train", a=0)
    await field.settled("train")
    assert field.job("train").winner == "a"


async def test_what_a_limit_leaves_no_room_for_is_not_prepared(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: each job was written as YAML, and read again, only to hear that, and nobody else had a turn before all
    had heard it. Thirty of 90 KB held the federator up for good."""
    prepared = 0

    def counted(special: dict[str, Any]) -> str:
        nonlocal prepared
        prepared += 1
        return to_yaml(special)

    monkeypatch.setattr(effects, "to_yaml", counted)
    monkeypatch.setattr(fields, "NO_LIMITS", Limits(submissions_per_hour=1))
    field.cluster("a", waiting_ms=600_000)
    await field.start()
    for number in range(50):
        await field.federate(f"train-{number}", a=0)
    (agenda,) = field.federator.effects.agendas.values()
    await field.until(lambda: len(agenda.tries) == 49, "all but one to have been tried")
    assert prepared <= effects.WORKERS + 1
    assert 3_500 < agenda.submits_from_s - asyncio.get_running_loop().time() <= 3_600


async def test_intent_is_in_the_log_before_anything_is_submitted_or_stopped(field: Field) -> None:
    for alias in NAMES:
        cluster = field.cluster(alias, waiting_ms=50)
        submit, execute = cluster.submit, cluster.execute

        def submitting(user: str, body: str, submit: Callable[..., Any] = submit) -> Any:
            assert any(b"JobFederated" in stored.payload for stored in field.log.commits)
            return submit(user, body)

        def stopping(user: str, framework: str, value: str, execute: Callable[..., Any] = execute) -> Any:
            assert any(b"StopIntended" in stored.payload for stored in field.log.commits)
            return execute(user, framework, value)

        cluster.submit, cluster.execute = submitting, stopping  # type: ignore[method-assign]
    await field.start()
    await field.federate("train", a=0, b=0, c=0)
    await field.settled("train")
    assert len(field.alive()["train"]) == 1


async def test_a_submission_that_was_limited_and_is_not_wanted_any_more_is_withdrawn_at_once(field: Field) -> None:
    """Nothing came of it: it need not be submitted, when the limit ends in an hour, only to be stopped."""
    field.cluster("a", waiting_ms=50)
    limited = field.cluster("b")
    limited.faults.plan(verb="submit", status=429, retry_after_s=3_600, times=0)
    await field.start()
    job = await field.federate("train", a=0, b=0)
    await field.settled("train")
    assert (job.winner, limited.jobs) == ("a", {})
    assert ev.SubmissionWithdrawn(job=job.uid, cluster="b") in field.said()


async def test_while_a_cluster_takes_no_submissions_it_is_not_asked_by_other_jobs_either(field: Field) -> None:
    limited = field.cluster("a")
    fault = limited.faults.plan(verb="submit", status=429, retry_after_s=3_600, times=0)
    federator = await field.start()
    first = await field.federate("first", a=0)
    agenda = federator.effects.agendas[first.places["a"].account]
    await field.until(lambda: agenda.tries.get((first.uid, "a")), "the limit")
    second = await field.federate("second", a=0)
    await field.until(lambda: agenda.tries.get((second.uid, "a")), "the turn of the other")
    assert fault.hits == 1
    in_s = [due_s - asyncio.get_running_loop().time() for due_s, _, _ in agenda.due]
    assert min(in_s) > 3_000, "and both are tried again when it ends"


async def test_a_foreign_job_of_the_same_name_is_never_touched(field: Field) -> None:
    cluster = field.cluster("a", waiting_ms=50)
    cluster.submit("alice", to_yaml(job("train-a", None)))
    await field.start()
    await field.federate("train", a=0)
    await field.settled("train")
    assert cluster.jobs["alice", "train-a"].stop_ms is None
    assert field.job("train").places["a"].name == "train-a-2"


async def test_a_content_that_is_refused_when_it_is_repeated_may_have_been_taken_before(field: Field) -> None:
    """R16. OpenPAI's hived validates a job by what its virtual cluster has at the time, and before the server looks at
    names. As it was: the run that had been taken was nobody's, and its job placed nowhere."""
    cluster = field.cluster("a", waiting_ms=50)
    cluster.faults.plan(verb="submit", hang_up=True, applied=True)
    submit = cluster.submit

    def validated(user: str, body: str) -> Any:
        if cluster.jobs:
            raise Refusal(400, "InvalidProtocolError", "Job requests 8 SKUs, exceeds maximum 4 SKUs in VC default.")
        return submit(user, body)

    cluster.submit = validated  # type: ignore[method-assign]
    await field.start()
    await field.federate("train", a=0)
    await field.settled("train")
    assert field.job("train").winner == "a"
    assert field.alive() == {"train": ["a"]}


async def test_a_content_that_is_refused_behind_a_lost_request_ends_the_place(field: Field) -> None:
    cluster = field.cluster("a")
    cluster.faults.plan(verb="submit", hang_up=True)
    cluster.faults.plan(verb="submit", status=500)
    cluster.submit = _refused  # type: ignore[method-assign]
    await field.start()
    await field.federate("train", a=0)
    await field.settled("train")
    assert (field.job("train").winner, field.job("train").places["a"].refusal) == ("", "InvalidProtocolError")


@pytest.mark.parametrize("landed", [True, False])
async def test_what_cannot_be_submitted_again_as_its_body_is_lost_ends(field: Field, landed: bool) -> None:
    """As it was: it was tried for ever, and cancelling the job did not end it either. What an attempt before had come
    to is found."""
    cluster = field.cluster("a", waiting_ms=50)
    fault = cluster.faults.plan(verb="submit", hang_up=True, applied=landed, times=0)
    await field.start()
    await field.federate("train", a=0)
    await field.until(lambda: fault.hits, "an attempt")
    await field.kill()
    field.blobs.data.clear()
    await field.start()
    await field.settled("train")
    assert field.job("train").winner == ("a" if landed else "")


async def test_what_no_key_opens_waits_for_its_key(field: Field, caplog: pytest.LogCaptureFixture) -> None:
    cluster = field.cluster("a", waiting_ms=50)
    cluster.faults.plan(verb="submit", status=500, times=1)
    await field.start()
    await field.federate("train", a=0)
    await field.kill()
    cipher, field.bodies._cipher = field.bodies._cipher, Cipher([Cipher.new_key()])
    await field.start()
    await field.until(lambda: "cannot be submitted" in caplog.messages, "a word")
    await field.kill()
    field.bodies._cipher = cipher
    await field.start()
    await field.settled("train")
    assert field.job("train").winner == "a"


def _refused(user: str, body: str) -> Any:
    raise Refusal(400, "InvalidProtocolError", "")


async def test_a_cancelled_job_ends_everywhere(field: Field) -> None:
    for alias in NAMES:
        field.cluster(alias, waiting_ms=50, notice_ms=50)
    federator = await field.start()
    await field.federate("train", a=0, b=0, c=0)
    await until(lambda: field.job("train").phase in (PLACED, SETTLED), "a decision")
    assert await federator.cancel(field.job("train"))
    await until(lambda: field.job("train").cancelled and not field.alive(), "its end")
    await field.settled("train")
    await until(lambda: not field.blobs.data, "its body to go")


async def test_what_the_log_says_shows_no_secret(field: Field) -> None:
    field.cluster("a", waiting_ms=50)
    federator = await field.start()
    text = field.text("train", a=0) + "\nsecrets: {password: hunter2}\n"
    await federator.federate(text)
    await field.settled("train")
    written = b"".join(stored.payload for stored in field.log.commits)
    assert b"hunter2" not in written
    assert b"secret" not in written


async def test_what_is_refused(field: Field) -> None:
    field.cluster("a", waiting_ms=50)
    federator = await field.start()
    text = field.text("train", a=0)
    await federator.federate(text)
    for wrong, said in (
        (text, "there was a job 'train' already"),
        (
            text.replace("user: alice", "user: mallory"),
            "clusters.a: mallory@.*: expected user and uri of the clusters file",
        ),
        (text + "\nsecrets: {token-a: hunter2}\n", "tokens are the federator's"),
        ("a: [", "expected YAML"),
    ):
        with pytest.raises(InvalidJob, match=said) as error:
            await federator.federate(wrong)
        assert "hunter2" not in str(error.value)
    everything = text.replace("user: alice", "user: mallory") + "\nsecrets: {token-a: hunter2}\n"
    with pytest.raises(InvalidJob) as error:
        await federator.federate(everything)
    assert len(error.value.problems) == 3, "all of it is told at once"
    assert len(field.blobs.data) <= 1


async def test_of_two_that_take_a_name_at_once_one_is_refused_and_leaves_nothing(field: Field) -> None:
    field.cluster("a", waiting_ms=600_000)

    put, stored = field.blobs.put, asyncio.Barrier(2)

    async def both_stored(name: str, data: bytes) -> None:
        await put(name, data)
        await stored.wait()

    field.blobs.put = both_stored  # type: ignore[method-assign]
    federator = await field.start()
    both = [federator.federate(field.text("train", a=0)) for _ in range(2)]
    answers = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(isinstance(answer, InvalidJob) for answer in answers) == [False, True]
    assert list(field.blobs.data) == [field.job("train").digest]


async def test_a_job_that_is_read_slowly_holds_up_nobody(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: sixty documents, each a second's work, cost the federator its lease."""
    field.cluster("a")
    federator = await field.start()
    read, load = threading.Event(), mcc.load

    def slowly(text: str) -> mcc.MultiClusterJob:
        assert read.wait(60), "nobody else had a turn"
        return load(text)

    monkeypatch.setattr(mcc, "load", slowly)
    asked = asyncio.create_task(federator.federate(field.text("train", a=0)))
    await asyncio.sleep(0.05)
    assert await federator.handlers()["list"](b"{}") == []
    assert not asked.done()
    read.set()
    await asked
    await field.settled("train")


async def test_a_token_that_is_not_there_is_told_once(
    field: Field, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was: a federator without a token took jobs, submitted none of them, and printed nothing."""
    caplog.set_level("INFO", "muster.federator")
    field.cluster("a")
    (tmp_path / "token").write_text("")
    await field.start()
    await field.federate("train", a=0)
    await until(lambda: "a cluster does not answer" in caplog.messages, "its silence to be told")
    (tmp_path / "token").write_text("secret")
    await field.settled("train")
    await until(lambda: "the cluster answers again" in caplog.messages, "its answer to be told")
    told = [record for record in caplog.records if record.getMessage() == "a cluster does not answer"]
    assert [vars(record)["reason"] for record in told] == [f"{tmp_path}/token: expected a secret, found nothing"]


async def test_a_refusal_that_goes_on_is_believed(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """R11, R13; what is not wanted any more does not wait for that."""
    monkeypatch.setattr(agenda, "AGAIN_S", 0.05)
    monkeypatch.setattr(effects, "BELIEVED_AFTER_S", 0.2)
    fault = field.cluster("a", waiting_ms=50).faults.plan(verb="submit", status=401, times=0)
    federator = await field.start()
    await field.federate("refused", a=0)
    await field.settled("refused")
    assert fault.hits > 2
    (refused,) = [event for event in field.said() if isinstance(event, ev.SubmissionRefused)]
    assert refused.code == "UnauthorizedUserError"
    monkeypatch.setattr(effects, "BELIEVED_AFTER_S", 3_600.0)
    job = await field.federate("cancelled", a=0)
    hits = fault.hits
    await field.until(lambda: fault.hits > hits, "an attempt")
    await federator.cancel(job)
    await field.settled("cancelled")
    assert isinstance(field.said()[-2], ev.SubmissionWithdrawn)


async def test_what_waits_for_a_cluster_that_was_away_is_tried_when_it_answers_again(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: a job waited up to a minute more for its only cluster, and a loser ran on as long."""
    monkeypatch.setattr(agenda, "AGAIN_S", 3_600.0)
    monkeypatch.setattr(agenda, "SELDOM_S", 3_600.0)
    cluster = field.cluster("a", waiting_ms=50)
    federator = await field.start()
    cluster.cut_off = True
    job = await field.federate("train", a=0)
    account = job.places["a"].account
    await field.until(lambda: federator.state.clusters[account].silent, "its silence")
    await field.until(lambda: federator.effects.agendas[account].tries, "an attempt")
    cluster.cut_off = False
    await field.settled("train")
    fault = cluster.faults.plan(verb="stop", status=500)
    await federator.cancel(job)
    await field.until(lambda: fault.hits, "a stop")
    cluster.cut_off = True
    await field.until(lambda: federator.state.clusters[account].silent, "its silence")
    cluster.cut_off = False
    await field.until(lambda: not field.alive(), "its end")


async def test_that_the_clusters_file_has_lost_a_cluster_on_which_jobs_are_open_is_told(
    field: Field, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was: its run went on for ever beside the one that was kept, and nobody was told why."""
    field.cluster("a", waiting_ms=600_000)
    field.cluster("b", waiting_ms=50)
    await field.start()
    job = await field.federate("train", a=20, b=0)
    await field.until(lambda: job.places["a"].run == "waiting", "its run to be seen")
    await field.kill()
    away = field.pai.clusters.pop("a")
    await field.start()
    account = job.places["a"].account
    told = [vars(record) for record in caplog.records if record.getMessage() == "a cluster does not answer"]
    assert [(one["account"], one["reason"]) for one in told] == [(account, polling.NOT_IN_FILE)]
    assert ev.ClusterSilent(account=account, reason=polling.NOT_IN_FILE, asked_ns=-1) in field.said()
    await field.until(lambda: field.job("train").phase == PLACED, "the other to be kept")
    await field.kill()
    field.pai.clusters["a"] = away
    await field.start()
    await field.settled("train")
    assert field.alive() == {"train": ["b"]}


async def test_a_job_whose_body_is_lost_is_told_of_and_holds_nobody_up(
    field: Field, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = field.cluster("a", waiting_ms=50)
    fault = cluster.faults.plan(verb="submit", status=500, times=0)
    await field.start()
    await field.federate("lost", a=0)
    await field.until(lambda: fault.hits, "an attempt")
    await field.kill()
    field.blobs.data.clear()
    cluster.faults.lift()
    await field.start()
    await field.until(lambda: "cannot be submitted" in caplog.messages, "a word")
    await field.federate("train", a=0)
    await field.settled("train")


async def test_of_jobs_that_were_parsed_so_many_are_kept(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "PARSED", 1)
    field.cluster("a", waiting_ms=50)
    federator = await field.start()
    for name in ("first", "second"):
        await field.federate(name, a=0)
        await field.settled(name)
    assert list(federator.effects._parsed) == [field.job("second").digest]


async def test_requests_that_are_out_of_bounds(field: Field) -> None:
    """A job as large as a message would keep everybody waiting while it is read; before the first there is no job."""
    field.cluster("a", waiting_ms=50)
    asks = (await field.start()).handlers()
    large = field.text("train", a=0) + "\n#" + "x" * requests.MOST_DOCUMENT
    for verb, request in (("submit", {"document": large}), ("list", {"offset": -1}), ("list", {"offset": 1 << 70})):
        with pytest.raises(Unfit) as refused:
            await asks[verb](json.dumps(request).encode())
        assert refused.value.code == 400
    assert await asks["list"](b'{"offset": 9007199254740992}') == []


async def test_programs_are_told_a_jobs_story_from_the_log(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: people alone, and those who may read the log."""
    monkeypatch.setattr(told, "FOLD_BYTES", 1)
    field.cluster("a", waiting_ms=50)
    asks = (await field.start()).handlers()
    for name in ("train", "other"):
        await field.federate(name, a=0)
        await field.settled(name)
    lines = await asks["explain"](b'{"name": "train"}')
    commits = [decode(stored) for stored in field.log.commits]
    said = [Said(commit.sequence, commit.header.time_ns, commit.events) for commit in commits]
    assert lines == (explained(said, "train") or [])[: len(lines)]
    assert [line.what for line in lines][:2] == ["accepted", "submitted"]
    assert "settled" in [line.what for line in lines]
    monkeypatch.setattr(requests, "PAGE", 2)
    folded, tell = list[str](), told._told
    monkeypatch.setattr(told, "_told", lambda log, name: folded.append(name) or tell(log, name))
    assert await asks["explain"](b'{"name": "train", "offset": 1}') == lines[1:3]
    assert await asks["explain"](b'{"name": "train", "offset": 3}') == lines[3:5]
    assert folded == [], "as it was: for each page of it"
    assert await asks["explain"](b'{"name": "other", "offset": 1}') != lines[1:3]
    assert await asks["explain"](json.dumps({"name": "train", "offset": len(lines)}).encode()) == []
    assert await asks["explain"](b'{"name": "train"}') == lines[:2]
    assert folded == ["other", "train", "train"], "who may know all of it is told what is new"
    with pytest.raises(Unfit, match="no job 'nobody' in the log") as refused:
        await asks["explain"](b'{"name": "nobody"}')
    assert refused.value.code == 404
