"""``muster job submit``: what it sends, and how it waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from events.answers import Unanswered
from events.log import Unavailable
from events.micro import Unfit
from services.cli.muster import app
from services.console import jobs
from services.federator.specialize import to_yaml
from tests.federator.jobs import EXAMPLE, document

JOB = {"name": "train", "job": "f.u1", "phase": "racing", "cancelled": False, "cluster": "", "clusters": []}
SETTLED = JOB | {"phase": "settled", "cluster": "a1"}


class Federator:
    """In the place of a connection: these answers, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.request: dict[str, str] = {}
        """What the last of them was asked with."""
        self.federation = ""

    async def open(self, _: str | None, federation: str) -> Federator:
        self.federation = federation
        return self

    async def __aenter__(self) -> Federator:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def ask(self, verb: str, *_: object, **request: str) -> Any:
        self.asked.append(verb)
        self.request = request
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def submitted(federator: Federator, text: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    file = directory / "job.yaml"
    file.write_text(text)
    monkeypatch.setattr(jobs, "_Asking", federator)
    monkeypatch.setattr(jobs, "WATCH_S", 0.0)
    return CliRunner().invoke(app, ["job", "submit", str(file), "--watch"])


def without_tokens() -> str:
    made = document()
    del made["secrets"]
    return to_yaml(made)


def test_a_token_in_a_job_is_refused_before_it_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federator = Federator()
    done = submitted(federator, EXAMPLE, tmp_path, monkeypatch)
    assert (done.exit_code, federator.asked) == (2, [])
    assert "secrets.token-" in done.stderr
    for token in document()["secrets"].values():
        assert token not in done.stderr


def test_who_watches_waits_for_the_next_federator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = [
        Unavailable("nobody answers"),
        Unavailable("nobody answers"),
        Unanswered("no answer"),
        Unfit(503, "replaced"),
    ]
    federator = Federator(JOB, JOB, *gone, SETTLED)
    done = submitted(federator, without_tokens(), tmp_path, monkeypatch)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == ["racing", "settled on a1"]
    assert done.stderr.splitlines() == [f"{why}; asking again" for why in ("nobody answers", "no answer", "replaced")]


def test_a_job_can_be_watched_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who pressed Ctrl-C while it was submitted cannot submit it again."""
    monkeypatch.setattr(jobs, "WATCH_S", 0.0)
    monkeypatch.setattr(jobs, "_Asking", Federator(JOB, JOB, SETTLED))
    said = CliRunner().invoke(app, ["job", "status", "train", "--watch"])
    assert (said.exit_code, said.stdout.splitlines()) == (0, ["racing", "settled on a1"])


def test_a_job_that_was_cancelled_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: it read as one that its cluster kept."""
    cancelled = SETTLED | {"cancelled": True}
    monkeypatch.setattr(jobs, "_Asking", Federator(cancelled, [cancelled | {"clusters": 3}]))
    said = CliRunner().invoke(app, ["job", "status", "train"], env={"COLUMNS": "200"})
    assert "train: settled on a1, cancelled" in said.stdout
    said = CliRunner().invoke(app, ["job", "list"], env={"COLUMNS": "200"})
    assert "settled, cancelled" in said.stdout


def test_who_watches_a_job_that_is_cancelled_is_told_that_no_cluster_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: 0, as of one that runs."""
    monkeypatch.setattr(jobs, "_Asking", Federator(SETTLED | {"cancelled": True}))
    said = CliRunner().invoke(app, ["job", "status", "train", "--watch"])
    assert (said.exit_code, said.stdout.splitlines()) == (1, ["settled on a1, cancelled"])


def test_a_job_that_a_cluster_refuses_is_watched_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    at = {"cluster": "a1", "phase": "refused", "run": "", "in_doubt": False, "given_up": "", "stopped_for": ""}
    nowhere = SETTLED | {"cluster": "", "clusters": [at | {"refusal": "InvalidProtocolError: no such image"}]}
    monkeypatch.setattr(jobs, "_Asking", Federator(nowhere))
    said = CliRunner().invoke(app, ["job", "status", "train", "--watch"])
    assert said.stdout.splitlines()[0] == "a1: refused: InvalidProtocolError: no such image"


def test_a_stop_that_a_cluster_refuses_is_told_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: only why it is to be stopped, for as long as the cluster did not let it."""
    at = {"cluster": "a1", "priority": 1.0, "name": "train-a1", "run": "running", "in_doubt": False, "given_up": ""}
    at |= {"silent": "", "stopped_for": "NotEarliest", "refusal": "Forbidden"}
    clusters = [at | {"phase": "stopping"}, at | {"cluster": "b1", "phase": "ended"}]
    monkeypatch.setattr(jobs, "_Asking", Federator(SETTLED | {"clusters": clusters}))
    said = CliRunner().invoke(app, ["job", "status", "train", "--watch"])
    assert said.stdout.splitlines()[:2] == [
        "a1: stopping running: NotEarliest, refused: Forbidden",
        "b1: ended running: NotEarliest",
    ], "what has ended was let go"


def test_a_job_that_is_too_long_is_named_with_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: words of the federator about `$.document`."""
    monkeypatch.setattr(jobs, "MOST_DOCUMENT", 10)
    federator = Federator()
    said = submitted(federator, "name: a job that is longer\n", tmp_path, monkeypatch)
    assert said.exit_code == 2
    assert "job.yaml: 27 characters: expected at most 10" in said.output
    assert not federator.asked


def test_a_job_that_no_cluster_keeps_is_said_to_be_on_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """R13. As it was: `settled`, and whoever watched it saw no other end than that of a job that runs."""
    nowhere = SETTLED | {"cluster": ""}
    monkeypatch.setattr(jobs, "_Asking", Federator(JOB, nowhere, [nowhere | {"clusters": 3}]))
    said = CliRunner().invoke(app, ["job", "status", "train", "--watch"])
    assert (said.exit_code, said.stdout.splitlines()) == (1, ["racing", "settled, on no cluster"])
    said = CliRunner().invoke(app, ["job", "list"], env={"COLUMNS": "200"})
    assert "settled, on" not in said.stdout, "there is a column for it"


def test_a_cluster_that_does_not_answer_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: `v100: submitting`, for as long as one looked."""
    at = {"cluster": "v100", "priority": 1.0, "name": "train-v100", "phase": "submitting", "run": ""}
    at |= {"in_doubt": False, "stopped_for": "", "given_up": "", "refusal": "", "silent": "connection refused"}
    racing = JOB | {"clusters": [at]}
    monkeypatch.setattr(jobs, "_Asking", Federator(racing))
    said = CliRunner().invoke(app, ["job", "status", "train"], env={"COLUMNS": "200"})
    assert said.stdout.splitlines()[-1] == "v100 does not answer: connection refused"
    federator = Federator(racing, racing, SETTLED)
    done = submitted(federator, without_tokens(), tmp_path, monkeypatch)
    assert done.stdout.splitlines()[0] == "v100: submitting, no answer"


def test_a_job_that_is_not_known_any_more_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federator = Federator(JOB, JOB, Unfit(404, "there is no job 'train'"))
    done = submitted(federator, without_tokens(), tmp_path, monkeypatch)
    assert (done.exit_code, done.stderr) == (2, "error: there is no job 'train'\n")


def test_who_has_no_name_gives_up_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Muster's image the user is a number that no file names; the command ended with a traceback."""

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")

    federator = Federator({"given_up": True})
    monkeypatch.setattr(jobs, "_Asking", federator)
    monkeypatch.setattr("getpass.getuser", nobody)
    monkeypatch.setattr("os.getuid", lambda: 65532)
    said = CliRunner().invoke(app, ["job", "give-up", "train", "--cluster", "v100", "--reason", "it burned"])
    assert (said.exit_code, federator.request["by"]) == (0, "uid 65532")


GIVEN_UP = {"name": "train", "cluster": "a1", "by": "ann", "reason": "it burned"}
ASKED: list[tuple[list[str], Any, dict[str, Any], int, str]] = [
    (["cancel", "train"], {"cancelled": True}, {"name": "train"}, 0, "train: is being stopped on every cluster"),
    (["cancel", "train"], {"cancelled": False}, {"name": "train"}, 1, "train: nothing of it was left"),
    (
        ["give-up", "train", "--cluster", "a1", "--by", "ann", "--reason", "it burned"],
        {"given_up": True},
        GIVEN_UP,
        0,
        "train: a1 is given up; the log says that ann declared it",
    ),
    (["status", "train"], SETTLED, {"name": "train"}, 0, "train: settled on a1"),
    (["list"], [SETTLED | {"clusters": 3}], {"offset": 0}, 0, "│ train │ settled │ a1      │ 3  │"),
]


@pytest.mark.parametrize(("command", "answer", "request_", "code", "line"), ASKED)
def test_each_asks_what_it_was_told_and_ends_with_what_was_answered(
    command: list[str], answer: Any, request_: dict[str, Any], code: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    federator = Federator(answer, answer)
    monkeypatch.setattr(jobs, "_Asking", federator)
    said = CliRunner().invoke(app, ["job", *command])
    assert (said.exit_code, federator.asked, federator.request) == (code, [command[0]], request_)
    assert line in said.stdout.splitlines()
    said = CliRunner().invoke(app, ["job", *command, "--json"])
    assert (said.exit_code, json.loads(said.stdout)) == (code, answer)


def test_a_job_that_is_submitted_and_not_watched_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(without_tokens())
    federator = Federator(JOB, JOB)
    monkeypatch.setattr(jobs, "_Asking", federator)
    said = CliRunner().invoke(app, ["job", "submit", str(file)])
    assert (said.exit_code, said.stdout) == (0, "train: accepted as f.u1\n")
    assert (federator.asked, federator.request) == (["submit"], {"document": without_tokens()})
    said = CliRunner().invoke(app, ["job", "submit", str(file), "--json"])
    assert (said.exit_code, json.loads(said.stdout)) == (0, JOB)


def test_a_job_has_a_row_for_each_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    at = {
        "cluster": "a1",
        "priority": 1.5,
        "name": "train-a1",
        "phase": "submitted",
        "run": "waiting",
        "in_doubt": True,
    }
    at |= {"stopped_for": "", "given_up": "", "refusal": ""}
    over = at | {"cluster": "b1", "phase": "ended", "in_doubt": False, "given_up": "ann"}
    monkeypatch.setattr(jobs, "_Asking", Federator(JOB | {"clusters": [at, over]}))
    rows = CliRunner().invoke(app, ["job", "status", "train"]).stdout.splitlines()[-3:-1]
    assert [[cell.strip() for cell in row.strip("│").split("│")] for row in rows] == [
        ["a1", "1.5", "submitted, in doubt", "waiting", "train-a1", ""],
        ["b1", "1.5", "ended", "waiting", "train-a1", "given up by ann"],
    ]


@pytest.mark.parametrize(
    ("flags", "federation"),
    [
        ([], "federation"),
        (["--nats", "nats://host"], "federation"),
        (["--nats", "nats://host/labs"], "labs"),
        (["--nats", "nats://host/labs", "--federation", "lab"], "lab"),
    ],
)
def test_whom_a_job_is_asked_of(flags: list[str], federation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stood behind `--nats` was overlooked, and another federation answered about its job of the same name."""
    monkeypatch.setenv("MUSTER_NATS_URL", "nats://host/prod")
    federator = Federator({"cancelled": True})
    monkeypatch.setattr(jobs, "_Asking", federator)
    said = CliRunner().invoke(app, ["job", "cancel", "train", *flags])
    assert (federator.asked, federator.federation) == (["cancel"], federation), said.output
