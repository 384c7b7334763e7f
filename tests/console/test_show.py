"""What the console prints for people, part by part."""

from __future__ import annotations

import msgspec
import pytest

from events.cloudevents import FeedMessage
from services.console import show
from services.console.explain import Explained, Told
from services.console.retention import Retained
from services.console.story import Line
from services.console.verify import Difference, Report


def test_of_a_long_table_it_is_said_how_much_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    for rows in (show.LONGEST, show.LONGEST + 7):
        show.console().print(show.table("Pods", ("pod",), [(f"pod-{number}",) for number in range(rows)]))
    said = capsys.readouterr().out
    assert said.count("pod-99 ") == 2
    assert ("… 7 more" in said, said.count(" more"), "pod-100" in said) == (True, 1, False)


def test_a_table_shows_what_a_terminal_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of a cell stay lines. A job's title names a cluster by its alias, which is anything."""
    rows = [("ml/a\nml/b", "names \x1b[2Jml/\x07[/red]")]
    show.console().print(show.table("train: racing on a\x1b[2J", ("pods", "why"), rows))
    said = capsys.readouterr().out
    assert r"train: racing on a\x1b[2J" in said
    assert r"names \x1b[2Jml/\x07[/red]" in said
    assert [line.split()[1] for line in said.splitlines() if "ml/b" in line] == ["ml/b"]


def test_of_a_difference_the_events_that_differ_are_shown_around_their_first_line_that_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = {f"field-{number:03}": number for number in range(100)}
    first = Difference(
        sequence=7,
        basis=5,
        writer="binder",
        what="the payload",
        logged=[{"same": 1}, long],
        decided=[{"same": 1}, long | {"field-080": "other"}, {"third": 1}],
    )
    show.report(Report(cluster="c", first=1, last=9, differences=1, difference=first))
    said = capsys.readouterr().out
    assert "1 difference; the first at commit 7 of binder, basis 5: the payload" in said
    assert ("field-080" in said, "field-001" in said, "field-099" in said, '"same"' in said) == (True, *[False] * 3)
    assert ("—" in said, '"third"' in said) == (True, True), "of what only one side has the other has nothing"


def test_of_a_purged_log_it_is_said_on_what_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    for start in (0, 40):
        show.report(Report(cluster="c", first=start + 1, last=50, start=start, start_digest="d1", before=3))
    said = capsys.readouterr().out
    assert said.count("everything before was purged") == 1
    assert "folded from the snapshot of 40, digest d1; 3 decisions and outcomes depend on what is gone" in said


def test_a_log_of_which_nothing_could_be_folded_has_no_commits_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    show.report(Report(cluster="c", first=90_000, unverifiable=1, why_unverifiable="no snapshot"))
    said = capsys.readouterr().out
    assert "log of 'c': none that could be folded" in said
    assert "not verifiable here: 1 commit; no snapshot" in said


def test_retention_names_who_begins_anew(capsys: pytest.CaptureFixture[str]) -> None:
    for emptied in ([], ["planner.7"]):
        show.retained(Retained(cluster="c", first=5, last=9, purged=4, emptied=emptied))
    said = capsys.readouterr().out
    assert said.count("4 commits purged; the log of 'c' holds 5 to 9") == 2
    assert said.count("they begin anew when they come back: planner.7") == said.count("begin anew") == 1


def test_a_list_has_a_row_for_each_of_its_values(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in a row: of one cell with 100,000 lines, rejected objects, rich copied what was left for each of them."""
    cells: list[str] = []
    monkeypatch.setattr(show, "printable", lambda text: cells.append(text) or text)
    show.facts_of("State", {"none_of_them": [], "some_of_them": [f"Pod {i}" for i in range(150)], "one": 1})
    said = [line.strip("┃│ ").split("│") for line in capsys.readouterr().out.splitlines()]
    shown = [[cell.strip() for cell in line] for line in said if len(line) == 2 or line[0].startswith("Pod")]
    some = [["some of them", "Pod 0"], *([f"Pod {i}"] for i in range(1, 150))]
    assert shown == [["none of them", "none"], *some, ["one", "1"]]
    assert cells.pop(0) == "State"
    assert len(cells) == 2 * 152


def test_a_digest_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    show.facts_of("State", {"some_pods": 1, "digest": "d" * 64})
    said = capsys.readouterr().out
    assert (said.splitlines()[-1], said.count("d" * 64)) == (f"digest {'d' * 64}", 1)


def test_in_a_pipe_nothing_is_folded_but_where_columns_are_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns, lines in (("", 1), ("0", 1), ("40", 3)):
        monkeypatch.setenv("COLUMNS", columns)
        show.console().print("word " * 20)
        assert len(capsys.readouterr().out.splitlines()) == lines


def test_in_a_pipe_no_line_ends_in_blanks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: a table's title, and each cell of its last column, was as wide as the widest of its lines."""
    line = Line(3, 0, "binder", "refused", "long " * 30 + "end", 1, 3, 0)
    for columns in ("", "60"):
        monkeypatch.setenv("COLUMNS", columns)
        show.stories(Explained(3, 0, [Told("gang", "ml/a", [line], "waits")], []))
        show.console().print(show.table("Pods", ("pod",), [("a-long-name",)]))
        show.console().print(show.table("Pods", ("pod", "why"), [("a", "b"), ("aa", "because")], low=True))
        said = capsys.readouterr().out.splitlines()
        assert [line for line in said if line != line.rstrip()] == []
        assert said.count("Pods") == 2
        assert [sum(line.endswith(end) for line in said) for end in (" end", ": waits")] == [1, 1]


def test_a_message_is_one_line_whatever_is_in_it() -> None:
    event = {
        "specversion": "1.0",
        "id": "1.0",
        "source": "muster/c",
        "type": "dev.muster.PodBound",
        "time": "now",
        "datacontenttype": "application/json",
        "dataschema": "urn:muster:event:PodBound",
        "writer": "binder",
        "subject": "a\x1b[2Jb\nc",
        "data": {},
    }
    message = FeedMessage(id="1.0", subject="s", body=msgspec.json.format(msgspec.json.encode(event), indent=2))
    assert show.cloud_event(message) == r"now 1.0 PodBound a\x1b[2Jb\nc {}"
    assert msgspec.json.decode(show.json_event(message)) == event
    assert "\n" not in show.json_event(message)


def test_what_verify_found_is_told_in_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    counted = {"causes": {"taken": 3, "decide": 2}, "folded": 5, "decided": 2, "reproduced": 2, "decisions": 9}
    good = Report(cluster="c", first=1, last=5, outcomes=4, snapshots=1, digest="d", **counted)
    show.report(good)
    assert capsys.readouterr().out.splitlines() == [
        "log of 'c': commits 1 to 5 (3 taken, 2 decide)",
        "decided again: 2 of 2 commits reproduced, 9 decisions; 4 intended outcomes; 1 snapshot reproduced; 5 commits"
        " folded",
        "digest d",
        "verified: every decision is reproduced",
    ]
    parts = {"violation": "room of n is exceeded", "unverifiable": 2, "why_unverifiable": "of rules 9", "snapshots": 0}
    show.report(msgspec.structs.replace(good, folded=3, last=3, **parts))
    assert capsys.readouterr().out.splitlines() == [
        "log of 'c': 5 commits, commits 1 to 3 of these (3 taken, 2 decide)",
        "decided again: 2 of 2 commits reproduced, 9 decisions; 4 intended outcomes; 3 commits folded",
        "digest d",
        "not sound: room of n is exceeded",
        "not verifiable here: 2 commits; of rules 9",
    ]
    show.report(Report(cluster="c", start=40, unfolded=7, start_digest="d1", first=41, last=50))
    assert "no snapshot is left for the 7 before: folded from the snapshot of 40, digest d1" in capsys.readouterr().out


def test_retention_names_the_archives_end_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = Retained(cluster="c", first=5, last=9, purged=4, archived=6, archive_end=8, because="it is young")
    for one in (found, msgspec.structs.replace(found, archive_end=None)):
        show.retained(one)
    purged = ["4 commits purged; the log of 'c' holds 5 to 9", "nothing more goes: it is young"]
    archived = "6 commits archived; the archive ends at 8"
    assert capsys.readouterr().out.splitlines() == [archived, *purged, *purged]


def test_what_simulate_found_is_in_a_table_for_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    gang = {"dialect": "coscheduling/v1alpha1", "min": None, "pods": 6, "bound": 1, "waiting": 5, "phase": "Pending"}
    waiting = {**{f"ml/w-{i}": "no room" for i in range(5)}, **{f"ml/v-{i}": "no PodGroup" for i in range(4)}}
    found = {"gangs": {"ml/g": gang}, "bound": {"ml/a": "n1"}, "waiting": waiting, "evicted": ["ml/e"]}
    show.answer(
        found | {"rejected": ["Pod ml/r: why"], "unread": {"Pood v1": 2}, "warnings": ["a field"], "digest": "d"}
    )
    lines = [line for line in capsys.readouterr().out.splitlines() if not set(line) <= set("┏━┳┓┡╇┩└─┴┘")]
    assert [[cell.strip() for cell in line.strip("┃│").replace("┃", "│").split("│")] for line in lines] == [
        *(["Gangs"], ["gang", "dialect", "min", "pods", "bound", "waiting", "phase"]),
        ["ml/g", "coscheduling/v1alpha1", "–", "6", "1", "5", "Pending"],
        *(["Bound"], ["pod", "node"], ["ml/a", "n1"]),
        *(["Waiting"], ["pod", "why"], ["ml/w-0", "no room"], ["ml/w-1", ""], ["ml/w-2", ""], ["… 2 more", ""]),
        *(["ml/v-0", "no PodGroup"], ["ml/v-1", ""], ["ml/v-2", ""], ["ml/v-3", ""]),
        *(["Evicted"], ["pod"], ["ml/e"], ["Rejected"], ["object"], ["Pod ml/r: why"]),
        *(["Warnings"], ["object"], ["a field"]),
        ["not read, and without effect: 2 Pood v1"],
        ["1 bound, 9 waiting; digest d"],
    ]
    nothing = {part: {} for part in ("gangs", "bound", "waiting", "evicted", "rejected", "unread", "warnings")}
    show.answer(nothing | {"digest": "d"})
    assert capsys.readouterr().out == "0 bound, 0 waiting; digest d\n"


def test_a_line_of_a_story_says_how_often_and_until_when(capsys: pytest.CaptureFixture[str]) -> None:
    second = 1_000_000_000
    lines = [
        Line(3, 0, "ingest", "seen", "it came", 1, 3, 0),
        Line(5, 86_400 * second + second // 2, "binder", "bound", "1 of 1", 1, 7, 86_401 * second),
        Line(8, 86_402 * second, "binder", "refused", "no room", 2, 9, 86_403 * second),
    ]
    show.stories(Explained(9, 86_404 * second, [Told("pod", "ml/a", lines, "waits"), Told("pod", "ml/b", [], "-")], []))
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "pod ml/a, since 1970-01-02 00:00:00.5Z",
        "3 – ingest seen: it came",
        "5 01-02 00:00:00.5 binder bound: 1 of 1 (until 7, 01-02 00:00:01.0)",
        "8 01-02 00:00:02.0 binder refused: no room (2 times, until 9, 01-02 00:00:03.0)",
        "9 01-02 00:00:04.0 stands: waits",
        "",
        "pod ml/b",
        "9 01-02 00:00:04.0 stands: -",
    ]


def test_versions_are_in_a_row_for_each_writer(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"sequence": 9, "rules": 1, "state": 2, "supports": {"binder": {"rules": [1, 2], "state": []}}}
    for switched in (None, True, False):
        show.versions(found if switched is None else found | {"switched": switched})
        first, *rest = capsys.readouterr().out.splitlines()
        assert first == f"{'already ' * (switched is False)}in force at 9: rules version 1, state version 2"
        assert [cell.strip() for cell in rest[-2].strip("│").split("│")] == ["binder", "1, 2", "–"]
        assert [cell.strip() for cell in rest[2].strip("┃").split("┃")] == ["writer", "rules", "state"]
