"""What an answer means, whoever gave it: the API server, a webhook, a gateway, a login page."""

from __future__ import annotations

import json
import socket
from types import SimpleNamespace
from unittest.mock import Mock

import aiohttp
import pytest
from tenacity import Future, RetryCallState

from services.kubernetes import binding, nesting
from services.kubernetes.access import direct
from services.kubernetes.client import Client
from services.kubernetes.errors import ApiError, Conflict, NotFound, Unreachable
from services.kubernetes.resources import Resource
from services.kubernetes.transport import Answer, Transport, error_of, heeding, retrying, worth_repeating

TOO_LARGE = "etcdserver: request is too large"


def test_of_a_long_answer_the_beginning_is_repeated() -> None:
    """Two thousand outcomes share a commit: what a webhook says at length must not make it too large."""
    said = json.dumps(
        {
            "kind": "Status",
            "reason": "Denied" * 1_000,
            "message": f'pod is already assigned to node "n7" {"x" * 1_000_000}',
        }
    )
    result = binding.result("create pods/binding default/p", Answer(409, said.encode()))
    assert (result.outcome, result.node) == ("assigned", "n7")
    assert len(result.message) < 3_000


@pytest.mark.parametrize(
    ("code", "body", "outcome"),
    [
        (201, b"", "bound"),
        (200, b"<html>please log in</html>", "in_doubt"),
        (204, b"", "in_doubt"),
        (101, b"", "in_doubt"),
        (302, b"", "in_doubt"),
        (399, b"", "in_doubt"),
        (400, b'{"kind": "Status", "code": 400, "reason": "BadRequest"}', "rejected"),
        (529, b"<html>the site is overloaded</html>", "in_doubt"),
    ],
)
def test_only_the_api_servers_own_yes_is_one(code: int, body: bytes, outcome: str) -> None:
    """As it was: a login page bound a pod in the log, and nobody ever bound it on a node."""
    found = binding.result("create pods/binding default/p", Answer(code, body))
    assert found.outcome == outcome
    assert outcome == "bound" or f"create pods/binding default/p: {code}" in found.message


@pytest.mark.parametrize(
    ("code", "message", "final", "going"),
    [
        (409, f"binding pods: {TOO_LARGE}", True, False),
        (500, TOO_LARGE, True, False),
        (503, f"a webhook's etcd: {TOO_LARGE}", False, False),
        (500, f"{TOO_LARGE}, says a webhook", False, False),
        (403, 'unable to create new content in namespace "a" because it is being terminated', False, True),
        (409, "a pod of that name is there, because it is being terminated", False, False),
        (403, 'events is forbidden: User "binder" cannot create resource "events"', False, False),
    ],
)
def test_which_refusal_is_for_good_and_which_the_end_of_a_namespace(
    code: int, message: str, final: bool, going: bool
) -> None:
    error = ApiError("create events a/b", code, "", message)
    assert (error.final, error.namespace_is_going) == (final, going)
    assert error.retryable == (code >= 500 and not final)


def test_what_is_always_served_and_not_found_is_in_doubt_unless_a_status_says_it() -> None:
    """A gateway that lost its way says nothing of what the API server did with it."""
    error = NotFound("create jobs a/b", 404, "", "404 page not found").of_served()
    assert isinstance(error, Unreachable)
    assert error.sent
    told = NotFound("create jobs a/b", 404, "NotFound", 'namespaces "a" not found')
    assert told.of_served() is told


@pytest.mark.parametrize("code", [409, 500])
def test_a_binding_that_etcd_can_never_take_is_refused_for_good(code: int) -> None:
    body = json.dumps({"kind": "Status", "message": f"binding pods: {TOO_LARGE}"}).encode()
    found = binding.result("create pods/binding default/p", Answer(code, body))
    assert (found.outcome, found.final, found.answered) == ("rejected", True, True)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"kind": "Status", "code": 404, "reason": "NotFound"}', NotFound),
        (b"404 page not found\n", NotFound),
        (b"<html>404: no such host</html>", Unreachable),
        (b'{"message": "no Route matched with those values"}', Unreachable),
        (b'{"code": 404, "reason": "NotFound", "message": "no such host"}', Unreachable),
        (b"null", Unreachable),
    ],
)
def test_what_is_not_there_is_the_api_servers_to_say(body: bytes, kind: type[ApiError]) -> None:
    """As it was: a gateway's page deleted the PodGroups of a cluster."""
    error = error_of("list podgroups", Answer(404, body))
    assert type(error) is kind
    assert not isinstance(error, Unreachable) or error.sent, "who answers may have passed the question on"


@pytest.mark.parametrize(("code", "succeeds"), [(200, True), (299, True), (300, False), (302, False)])
def test_a_redirection_is_no_success(code: int, succeeds: bool) -> None:
    answer = Answer(code, b"")
    if succeeds:
        assert answer.raise_for("get pods default/p") is answer
    else:
        with pytest.raises(ApiError, match=f"get pods default/p: {code}"):
            answer.raise_for("get pods default/p")


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (422, "Pod p is invalid: metadata.uid: Invalid value: field is immutable", Conflict),
        (422, "Pod p is invalid: spec: Forbidden: pod updates may not change other fields", ApiError),
        (400, "metadata.uid: a webhook does not like it", ApiError),
    ],
)
def test_a_patch_that_names_another_uid_is_a_precondition_that_failed(
    code: int, message: str, kind: type[ApiError]
) -> None:
    body = json.dumps({"kind": "Status", "reason": "Invalid", "message": message}).encode()
    assert type(error_of("patch pods/status default/p", Answer(code, body))) is kind


async def test_that_a_pod_is_gone_is_said_by_a_status_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods are always served: the words for a path that is not are a gateway's, written in Go as well. As it was: it
    settled a binding that was in doubt, and an eviction."""
    async with Client(direct("http://127.0.0.1:1")) as client:
        answers = [b"404 page not found\n", b'{"kind": "Status", "code": 404, "reason": "NotFound"}']

        async def answer(*_: object) -> Answer:
            return Answer(404, answers[0])

        monkeypatch.setattr(client, "send", answer)
        monkeypatch.setattr(client, "_reading", retrying(attempts=1))
        with pytest.raises(Unreachable, match="get pods default/p"):
            await client.get_pod("default", "p")
        answers.pop(0)
        assert await client.get_pod("default", "p") is None


async def test_that_a_pod_group_is_gone_is_said_by_a_status_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it is the kind, or a gateway says so. As it was: its status counted as written, and was not (520773)."""
    async with Client(direct("http://127.0.0.1:1")) as client:
        answers = [b"404 page not found\n", b'{"kind": "Status", "code": 404, "reason": "NotFound"}']

        async def answer(*_: object) -> Answer:
            return Answer(404, answers[0])

        monkeypatch.setattr(client, "send", answer)
        groups = Resource.custom("scheduling.x-k8s.io/v1alpha1", "podgroups")
        with pytest.raises(NotFound, match="404 page not found"):
            await client.get_pod_group(groups, "default", "g")
        answers.pop(0)
        assert await client.get_pod_group(groups, "default", "g") is None


def test_a_page_in_place_of_an_answer_is_told_in_one_line() -> None:
    assert str(error_of("list podgroups", Answer(404, b"404 page not found\n"))).splitlines() == [
        "list podgroups: 404 : 404 page not found"
    ]
    page = b"<html>\r\n<body>\n  503 Service\tUnavailable</body>\n"
    assert str(error_of("list pods", Answer(503, page))).endswith(": <html> <body> 503 Service Unavailable</body>")


@pytest.mark.parametrize(("asked", "waits"), [("7", 7.0), ("99999", 3_600.0), ("-7", 0.0), ("0", None)])
def test_a_status_says_when_to_ask_again_where_the_header_does_not(asked: str, waits: float | None) -> None:
    body = f'{{"kind":"Status","details":{{"retryAfterSeconds":{asked}}}}}'.encode()
    assert error_of("list pods", Answer(429, body)).retry_after_s == waits
    assert error_of("list pods", Answer(429, body, 3.0)).retry_after_s == 3.0


@pytest.mark.parametrize(
    ("error", "pause_s"),
    [
        (ApiError("list pods", 429, "", "", 7.0), 7.0),
        (ApiError("list pods", 429, "", "", 3_600.0), 30.0),
        (ApiError("list pods", 429, "", "", 0.2), 0.5),
        (ApiError("list pods", 503, "", ""), 0.5),
        (ValueError("no answer at all"), 0.5),
    ],
)
def test_before_it_is_repeated_a_request_pauses_for_as_long_as_the_server_asks_within_bounds(
    error: Exception, pause_s: float
) -> None:
    state = RetryCallState(retrying(), None, (), {})
    state.outcome = Future(1)
    state.outcome.set_exception(error)
    assert heeding(lambda _: 0.5)(state) == pause_s
    if pause_s > 5.0:  # more than chance makes it
        assert retrying().wait(state) == pause_s


def test_what_is_no_answer_is_not_repeated() -> None:
    assert worth_repeating(ApiError("list pods", 503, "", ""))
    assert not worth_repeating(ValueError("a mistake of ours"))


@pytest.mark.parametrize(
    ("code", "message", "final", "retryable"),
    [
        (500, TOO_LARGE, True, False),
        (409, f"binding pods: {TOO_LARGE}", True, False),
        (500, f"{TOO_LARGE}, a webhook says", False, True),
        (503, TOO_LARGE, False, True),
        (422, TOO_LARGE, False, False),
        *((code, "", False, True) for code in (0, 408, 429, 500, 520, 561)),
        *((code, "", False, False) for code in (400, 401, 404, 409, 410, 499)),
    ],
)
def test_what_may_be_answered_otherwise_a_moment_later(code: int, message: str, final: bool, retryable: bool) -> None:
    """Any error of a server may, but for what etcd can never take: a mistake of the API server's own, or a conflict."""
    error = ApiError("create pods default/p", code, "", message)
    assert (error.final, error.retryable) == (final, retryable)


@pytest.mark.parametrize(("asked_s", "worth"), [(None, True), (0.5, True), (0.6, False)])
def test_who_asks_for_more_patience_than_there_is_is_not_asked_again(asked_s: float | None, worth: bool) -> None:
    assert worth_repeating(ApiError("patch pods/status default/p", 429, "", "", asked_s), patience_s=0.5) == worth


def test_a_page_that_is_cut_within_a_letter_is_told_all_the_same() -> None:
    page = b"<html>" + "\u00fc".encode() * 200
    assert "<html>\u00fc" in str(error_of("list pods", Answer(503, b"x" + page)))


async def test_a_connection_whose_other_end_is_dead_is_noticed_within_about_a_minute() -> None:
    """A watch sends nothing of its own for hours: the kernel asks in its place."""
    async with Transport(direct("http://127.0.0.1:1"), connections=7) as transport:
        connector = transport._session.connector
        assert isinstance(connector, aiohttp.TCPConnector)
        assert connector.limit == 7
        factory = connector._socket_factory
        assert factory is not None
        with factory((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 1))) as opened:
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            idle_s, every_s, times = (opened.getsockopt(socket.IPPROTO_TCP, option) for option in options)
            assert 30 <= idle_s + every_s * times <= 60
            assert not opened.getblocking()


NO_WAY = aiohttp.ClientConnectorError(SimpleNamespace(host="h", port=1, ssl=True), OSError("no route"))  # type: ignore


@pytest.mark.parametrize(
    ("error", "sent", "said"),
    [
        (NO_WAY, False, "no route"),
        (aiohttp.ConnectionTimeoutError("no answer to SYN"), False, "no answer to SYN"),
        (aiohttp.ServerDisconnectedError(), True, "Server disconnected"),
        (ConnectionResetError("reset"), True, "reset"),
        (TimeoutError(), True, "no answer in time"),
    ],
)
async def test_only_who_was_never_connected_sent_nothing(
    monkeypatch: pytest.MonkeyPatch, error: Exception, sent: bool, said: str
) -> None:
    """Of all else nobody knows whether it was executed."""
    async with Transport(direct("http://127.0.0.1:1")) as transport:
        monkeypatch.setattr(transport._session, "request", Mock(side_effect=error))
        with pytest.raises(Unreachable, match=said) as told:
            await transport.send("create pods/binding default/p", "POST", "/api/v1", b"{}")
    assert told.value.sent == sent


async def test_of_an_address_that_can_be_nobodys_nothing_was_asked() -> None:
    async with Transport(direct(f"http://{'a' * 64}.example")) as transport:
        with pytest.raises(Unreachable, match="create pods/binding default/p") as error:
            await transport.send("create pods/binding default/p", "POST", "/api/v1", b"{}")
        assert not error.value.sent


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a": [', "]}")])
def test_of_what_is_nested_too_deeply_the_outer_levels_are_read_and_all_beside_it(opens: str, closes: str) -> None:
    beside = {"braces": '}]"\\{[', "list": [{}, [[], 1]]}
    deep = opens * 1_000 + closes * 1_000
    text = f'{{"before": {json.dumps(beside)}, "deep": {deep}, "and": {deep}, "behind": {json.dumps(beside)}}}'
    found = json.loads(nesting.pruned(text.encode()))
    assert (found["before"], found["behind"]) == (beside, beside)
    for part in (found["deep"], found["and"]):
        levels, inner = 1, part
        while inner is not None:
            [inner] = inner if isinstance(inner, list) else inner.values()
            levels += 1
        assert levels == nesting.DEEPEST
