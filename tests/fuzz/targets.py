"""One function for each decoder of bytes: it holds the decoder to what must be true of any bytes, or raises.

`TARGETS` names them with the repository's own samples of what they decode.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_UP, Context, Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

import events as ev
from events import client, cloudevents, credentials, envelope, lease, object_store
from events.answers import Message
from events.cloudevents import FeedMessage, NoCloudEvent, PatternError
from events.credentials import InvalidCredentials
from events.envelope import Header, MalformedCommit, Stored
from events.objects import MAX_QUANTITY
from services.console import show
from services.console.replay import BadPlace, read_place
from services.feed import core as feed
from services.ingest.decoding import KINDS, Kind, Malformed, Unreadable, WatchEnded
from services.ingest.differ import Ingest
from services.ingest.quantities import BadQuantity, counted, nano
from services.kubernetes import access
from services.kubernetes.access import AccessError
from services.kubernetes.errors import ApiError as Answered
from services.kubernetes.errors import Unreachable
from services.kubernetes.transport import Answer, error_of
from services.simulator import traces
from services.simulator.errors import ApiError
from services.simulator.manifests import ManifestError
from services.simulator.resources import BUILT_IN
from services.simulator.selectors import predicate
from services.simulator.traces import TraceError
from services.state import snapshot
from services.state.fold import State
from services.state.form import Damaged, UnknownCommit, UnknownVersion, at_once
from tests.events.writing import HEADER
from tests.fuzz import answers, delivery, federation, requests, seeds
from tests.fuzz.generate import encoded
from tests.manifests import load_yaml


class Target(NamedTuple):
    """`check` raises for bytes that its decoder does not take as it should; `seeds` are samples of what it decodes."""

    check: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]


# ------------------------------------------------------------------------------------------------------------- commits


def header(data: bytes) -> None:
    """A header is one, or MalformedCommit; nobody's header stops nobody."""
    commit = Stored(sequence=7, subject="muster.c.binder", message_id="", header=data, payload=b"[]")
    whose = envelope.header_of(commit)
    try:
        found = envelope.decode_header(commit)
    except MalformedCommit as error:
        assert "commit 7 on muster.c.binder: header: " in str(error)
        assert whose is None
        return
    assert whose in (None, found)
    again = envelope.encode_header(found)
    assert envelope.decode_header(msgspec.structs.replace(commit, header=again)) == found
    feed.is_foreign(commit)


def payload(data: bytes) -> None:
    """Events that come back as they were, or MalformedCommit; the fold and the feed end with the same."""
    for writer in ("ingest", "planner.0", "binder", "admin"):
        fold(data, writer)


def fold(data: bytes, writer: str) -> None:
    made = envelope.encode_header(Header(writer=writer, epoch=0, basis=0, time_ns=1, cause="facts"))
    commit = Stored(sequence=7, subject=f"muster.c.{writer}", message_id="", header=made, payload=data)
    try:
        events = envelope.decode(commit).events
    except MalformedCommit as error:
        assert f"commit 7 on muster.c.{writer}: " in str(error)
        events = None
    try:
        messages = feed.messages(commit, "c")
        assert events is not None
        assert [message.event().id for message in messages] == [message.id for message in messages]
    except MalformedCommit:
        assert events is None
    state = State()
    try:
        state.apply_stored(commit)
    except UnknownVersion as error:
        assert "from 7 on the log is folded by state version " in str(error)
    except UnknownCommit as error:
        assert "commit 7 on " in str(error)
    else:
        assert events is not None
        assert snapshot.digest(snapshot.decode(snapshot.encode(state))) == snapshot.digest(state)
    if events is not None:
        again = envelope.encode_events(events)
        assert envelope.decode(msgspec.structs.replace(commit, payload=again)).events == events


# ---------------------------------------------------------------------------------------------------------- Kubernetes


def page(data: bytes) -> None:
    """A page of a list is read for its objects, or Unreadable, whatever its kind; what is read can go to the log."""
    for kind in KINDS:
        try:
            _, objects = kind.page(data)
        except Unreadable as error:
            assert str(error).startswith(f"list {kind.resource.name}: ")
            continue
        observe(kind, objects)


def line(data: bytes) -> None:
    """So is a line of a watch; WatchEnded where it is the server's ERROR."""
    for kind in KINDS:
        try:
            happened, seen = kind.line(data)
        except Unreadable as error:
            assert str(error).startswith(f"watch {kind.resource.name}: ")
            continue
        except WatchEnded:
            continue
        assert happened != "ERROR"
        observe(kind, [seen])
        Ingest(["muster"]).deleted(kind.name, seen.metadata)


def observe(kind: Kind[Any], objects: list[Any]) -> list[ev.Event]:
    """Observed, written, read and folded: the facts say of each object what it is, or that it cannot be taken."""
    core, again, state = Ingest(["muster"]), Ingest(["muster"]), State()
    facts = [fact for seen in objects for fact in core.observe(seen)]
    assert all(seen.rejected.expected for seen in objects if isinstance(seen, Malformed))
    written = envelope.encode_events(facts)
    assert envelope.decode(seeds.commit_of("ingest", written)).events == facts
    for fact in facts:
        again.fold(fact)
    assert (again.pods, again.named, again.rejected) == (core.pods, core.named, core.rejected)
    state.apply_stored(seeds.commit_of("ingest", written))
    assert all(fact.kind == kind.name for fact in facts if type(fact) is ev.DeclarationRejected)
    return facts


def status(data: bytes) -> None:
    """Any answer of an API server, or of a proxy before it, is an ApiError that says what was asked."""
    for code in (401, 404, 409, 410, 422, 429, 500):
        error = error_of("list pods", Answer(code, data))
        assert isinstance(error, Answered)
        not_its_own = code == 404 and isinstance(error, Unreachable)
        assert str(error).startswith("list pods: no answer" if not_its_own else f"list pods: {code}")
        assert error.retry_after_s is None or error.retry_after_s >= 0


def quantity(data: bytes) -> None:
    """A quantity is what Kubernetes' rules make of it in decimal arithmetic, rounded up; everything else BadQuantity."""
    text = data.decode("utf-8", "replace")
    expected = naive_quantity(text)
    for resource in ("cpu", "memory"):
        try:
            count = counted(nano(text), resource)
        except BadQuantity as bad:
            assert bad.expected
            assert len(str(bad)) < 4_000
            assert expected is None or not 0 <= whole(expected, resource) <= MAX_QUANTITY
        else:
            assert expected is not None
            assert count == whole(expected, resource)


def whole(amount: Decimal, resource: str) -> int:
    """As a count of its unit, rounded up from the billionths of which Kubernetes' quantities are made."""
    nano_units = EXACT.scaleb(amount, 9).to_integral_value(ROUND_UP, EXACT)
    return int(EXACT.scaleb(nano_units, -6 if resource == "cpu" else -9).to_integral_value(ROUND_CEILING, EXACT))


EXACT = Context(prec=5_000, Emin=-99_999, Emax=99_999)
BINARY = {f"{letter}i": Decimal(1024**power) for power, letter in enumerate("KMGTPE", 1)}
METRIC = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def naive_quantity(text: str) -> Decimal | None:
    """The grammar once more, from its end; None for what is no quantity. Huge and tiny ones are brought near."""
    number, factor = text[:257], Decimal(1)
    if text[-2:] in BINARY:
        number, factor = text[:-2], BINARY[text[-2:]]
    elif text[-1:] in METRIC:
        number, factor = text[:-1], EXACT.scaleb(factor, METRIC[text[-1]])
    elif "e" in text.lower():
        number, _, exponent = text.lower().partition("e")
        if not digits(unsigned(exponent)):
            return None
        factor = EXACT.scaleb(factor, max(-999, min(999, int(exponent[:257]))))
    if len(text) > 256 or not digits(unsigned(number).replace(".", "", 1)):
        return None
    return EXACT.multiply(EXACT.create_decimal(number), factor)


def unsigned(number: str) -> str:
    return number[1:] if number[:1] in ("+", "-") else number


def digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()


# --------------------------------------------------------------------------------------------------------------- NATS


def headers(data: bytes) -> None:
    """NATS headers are names and values without anything of a line's end; none has to be there."""
    found = client.parse_headers(data)
    assert all("\r\n" not in name + value for name, value in found.items())
    message = Message("muster.c.binder", 7, data, b"[]")
    assert message.headers == found


def held(data: bytes) -> None:
    """A lease, or nobody's."""
    found = lease._read(data)
    assert isinstance(found.holder, str)
    assert isinstance(found.claim, str)


def meta(data: bytes) -> None:
    """A snapshot in the bucket, or none of ours."""
    found = object_store._meta(data)
    if found is not None:
        object_store._kept(found)


def feed_message(data: bytes) -> None:
    """What `muster subscribe` prints is a line, or NoCloudEvent, whoever published it."""
    message = FeedMessage(id="7.0", subject="muster-feed.c.Ticked.-.-", body=data)
    for told in (show.cloud_event, show.json_event):
        try:
            line = told(message)
        except NoCloudEvent as error:
            assert "muster-feed.c.Ticked.-.-" in str(error)
        else:
            assert "\n" not in line


def words(data: bytes) -> None:
    """What somebody writes on the command line: a pattern, a place, a name of the feed."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        subject = cloudevents.pattern_subject("c", text)
        assert subject.startswith("muster-feed.c.")
        assert subject.isascii()
        assert not any(character.isspace() for character in subject)
    except PatternError as error:
        assert str(error)
    try:
        sequence, time_ns = read_place(text)
        assert (sequence is None) != (time_ns is None)
    except BadPlace as error:
        assert "expected a sequence" in str(error)
    try:
        assert all(number >= 0 for number in feed.place_of(text))
    except ValueError:
        pass
    name = data.decode("utf-8", "replace")
    token = cloudevents.token(name)
    assert len(token) <= cloudevents.MAX_TOKEN
    assert "~" in token or ("" if token == cloudevents.NOTHING else unquote(token)) == name


# --------------------------------------------------------------------------------------------------- simulator, console


def selector(data: bytes) -> None:
    """Label and field selectors ask something of any object, or are a 400."""
    text = data.decode("utf-8", "replace")
    obj: dict[str, Any] = {
        "metadata": {"name": "a", "labels": {"app": "x", "tier": ""}},
        "spec": {"nodeName": "n", "hostNetwork": True},
    }
    for resource in BUILT_IN:
        for labels, fields in ((text, ""), ("", text)):
            try:
                asked = predicate(resource, labels, fields)
            except ApiError as error:
                assert error.code == 400
                continue
            if asked is not None:
                odd: list[dict[str, Any]] = [
                    {"metadata": {}},
                    {"metadata": {"labels": None}, "spec": None, "status": []},
                ]
                for other in (obj, *odd):
                    assert asked(other) in (True, False)


@cache
def scratch() -> Path:
    """A directory of this process's own, for decoders that read files."""
    directory = TemporaryDirectory(prefix="muster-fuzz-")
    _kept.append(directory)
    return Path(directory.name)


_kept: list[TemporaryDirectory[str]] = []


def file(name: str, data: bytes) -> Path:
    path = scratch() / name
    path.write_bytes(data)
    return path


def manifests(data: bytes) -> None:
    """Objects that can be written as JSON, or a ManifestError that names the file."""
    path = file("manifests.yaml", data)
    try:
        objects = load_yaml([path])
    except ManifestError as error:
        assert str(error).startswith(str(path))
        assert len(str(error)) < 2_000
        return
    for obj in objects:
        assert obj["kind"]
        assert obj["metadata"].get("name") or obj["metadata"].get("generateName")
    msgspec.json.encode(objects)


def trace(data: bytes) -> None:
    """Objects, or a TraceError that names the file."""
    for name, load in (("n.csv", traces.openb_nodes), ("p.csv", traces.openb_pods), ("d.csv", traces.dlrm)):
        path = file(name, data)
        try:
            msgspec.json.encode(list(load(path)))
        except TraceError as error:
            assert str(error)


def kubeconfig(data: bytes) -> None:
    """How to reach a server, or an AccessError that names the file."""
    path = file("kubeconfig", data)
    try:
        found = access.from_kubeconfig(str(path))
    except AccessError as error:
        assert str(path) in str(error) or str(error).startswith("TLS: ")
        return
    assert found.base_url.startswith(("http://", "https://"))


def credentials_file(data: bytes) -> None:
    """A user's JWT and seed, or InvalidCredentials that names the file."""
    path = file("user.creds", data)
    try:
        found = credentials.read(str(path))
    except InvalidCredentials as error:
        assert str(path) in str(error)
    else:
        assert len(found.seed) == 32
        assert found.jwt


def packed(data: bytes) -> None:
    """A snapshot is what has this digest, or Damaged."""
    for digest in ("", snapshot.digest(State())):
        try:
            found = at_once(snapshot.FORM.unpack(data, digest))
        except Damaged as error:
            assert str(error)
        else:
            assert snapshot.digest(found) == digest


def unpacked(data: bytes) -> None:
    """The same for its lines."""
    try:
        found = snapshot.decode(data)
    except Damaged as error:
        assert str(error)
    else:
        assert snapshot.digest(snapshot.decode(snapshot.encode(found))) == snapshot.digest(found)


TARGETS: dict[str, Target] = {
    "header": Target(header, lambda: [envelope.encode_header(HEADER)]),
    "payload": Target(payload, seeds.events_stored),
    "page": Target(page, seeds.pages),
    "line": Target(line, seeds.lines),
    "status": Target(
        status, lambda: [encoded({"message": "no", "reason": "R", "code": 429, "details": {"retryAfterSeconds": 3}})]
    ),
    "discovery": Target(answers.served, answers.discoveries),
    "object": Target(answers.object_, answers.jobs_listed),
    "jobs": Target(answers.jobs, answers.jobs_listed),
    "OpenPAI's": Target(answers.openpai_s, answers.openpai_answers),
    "request": Target(requests.asked, requests.asks),
    "write": Target(requests.written, requests.writes),
    "OpenPAI's request": Target(requests.openpai_asked, requests.openpai_asks),
    "quantity": Target(quantity, seeds.texts),
    "headers": Target(headers, lambda: [b"NATS/1.0 100 Idle Heartbeat\r\nMuster-Commit: {}\r\nNats-Msg-Id: a\r\n\r\n"]),
    "delivery": Target(delivery.check, delivery.seeds),
    "lease": Target(held, lambda: [msgspec.json.encode(lease.Held("host", "claim"))]),
    "meta": Target(meta, seeds.metas),
    "feed message": Target(feed_message, seeds.feed_messages),
    "words": Target(words, seeds.texts),
    "selector": Target(selector, seeds.texts),
    "manifests": Target(manifests, seeds.yamls),
    "trace": Target(trace, seeds.csvs),
    "kubeconfig": Target(kubeconfig, seeds.kubeconfigs),
    "credentials": Target(credentials_file, seeds.credential_files),
    "packed snapshot": Target(packed, seeds.packs),
    "snapshot": Target(unpacked, seeds.snapshots),
    "multi-cluster job": Target(federation.job, federation.job_texts),
    "clusters file": Target(federation.clusters_file, federation.cluster_texts),
    "federation's payload": Target(federation.commit, federation.commits),
    "federation's snapshot": Target(federation.kept, federation.raced),
}
