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
