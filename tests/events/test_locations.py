"""What the name of a log's home says, and what of it is shown."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.answers import Refused
from events.homes import is_server, open_log, split, without_credentials
from events.log import LogError
from events.server import EmbeddedServer


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("nats://u:secret@h:1,v:hidden@i:2", "nats://h:1,i:2"),
        ("nats://u:secret@h:1,nats://v:hidden@i:2", "nats://h:1,nats://i:2"),
        ("nats://h:1,i:2", "nats://h:1,i:2"),
        ("nats://u:sec,ret@h:1", "nats://h:1"),
        ("u:sec,ret@h", "h"),
        ("u:sec@ret,more@h", "h"),
        ("nats://u:secret@h:1/prod.db", "nats://h:1/prod.db"),
        ("at@home.db", "at@home.db"),
    ],
)
def test_what_may_be_a_password_is_shown_to_nobody(location: str, shown: str) -> None:
    assert without_credentials(location) == shown


@given(st.text(alphabet="nats:/[]@,%.1-é℀ \t", max_size=30))
def test_any_text_is_a_location_or_none(text: str) -> None:
    """℀ is a/c to a URL, and may not stand in a host."""
    with suppress(LogError):
        servers, _ = split(f"nats://{text}")
        assert is_server(servers)
        assert split(servers) == (servers, "")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://h:1/prod", ("nats://h:1", "prod")),
        ("nats://h:1/,i:2/prod/", ("nats://h:1,nats://i:2", "prod")),
        ("nats://h:1,i:2/", ("nats://h:1,nats://i:2", "")),
        ("tls://h:1,nats://u:p@i:2", ("tls://h:1,nats://u:p@i:2", "")),
    ],
)
def test_a_cluster_stands_behind_any_of_its_servers(url: str, expected: tuple[str, str]) -> None:
    assert split(url) == expected


@pytest.mark.parametrize("url", ["nats://h:1,http://i:2", "nats://h:0", "nats://", "nats://h:1,,i:2", "nats://h:x"])
def test_what_one_of_its_servers_makes_no_url_is_none(url: str) -> None:
    with pytest.raises(LogError, match="expected a NATS URL such as"):
        split(url)


async def test_a_log_is_made_with_as_many_replicas_as_are_asked_for(server: EmbeddedServer, cluster: str) -> None:
    """One server alone has no place for three."""
    with pytest.raises(Refused):
        await open_log(server.url, cluster, create=True, replicas=3)
