"""The text of the server's permissions: whose passwords, which names. `test_permissions` has what users may do."""

from __future__ import annotations

from pathlib import Path

import pytest

from events import permissions, subjects
from events.server import EmbeddedServer

SHARDS = ("0", "blue")


def test_passwords_come_from_the_servers_environment() -> None:
    text = permissions.configuration("prod", shards=("a-b",))
    for user in permissions.users(("a-b",)):
        assert f'user: "{user}", password: ${permissions.password_variable(user)}' in text
    assert permissions.password_variable("planner-a-b") == "MUSTER_PLANNER_A_B_PASSWORD"


@pytest.mark.parametrize("shards", [("a-b", "a_b"), ("A", "a"), ("0", "0"), ("a.b",), ("*",)])
def test_shards_that_are_no_names_or_would_share_a_password(shards: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        permissions.configuration("prod", shards=shards)


@pytest.mark.parametrize("leaves", [("a b",), ("",), ("prod", "PROD"), ("a-b", "a_b")])
def test_leaves_that_are_no_names_or_would_share_a_password(leaves: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        permissions.configuration("prod", leaves=leaves)


def test_a_name_that_is_no_cluster() -> None:
    with pytest.raises(ValueError, match="expected letters"):
        permissions.configuration("a b")


def test_no_cluster_has_the_federations_name() -> None:
    with pytest.raises(ValueError, match="the federation has this one"):
        permissions.configuration(subjects.FEDERATION)


def test_the_text_is_what_the_server_takes(tmp_path: Path) -> None:
    passwords = dict.fromkeys(permissions.users(SHARDS), "secret")
    with EmbeddedServer(tmp_path, extra=permissions.configuration("prod", passwords, SHARDS)):
        pass
