"""Settings: where they come from, and what is said of a bad one."""

from __future__ import annotations

import os
import re
import socket
import time

import msgspec
import pytest

from services.settings import InvalidSetting, Settings, read

NAME = "letters, digits, '-' and '_', at most 64, without feed- or leases- in front"


def test_what_is_not_set_has_its_default() -> None:
    settings = read({}, {})
    assert settings.nats_url == "nats://127.0.0.1:4222"
    assert settings.scheduler_names == ("muster",)
    assert settings.bind_concurrency == 64


def test_a_flag_goes_before_the_environment_and_that_before_the_default() -> None:
    environment = {"MUSTER_CLUSTER": "from-environment", "MUSTER_SHARD": "7"}
    settings = read({"cluster": "from-flag", "shard": None}, environment)
    assert (settings.cluster, settings.shard) == ("from-flag", "7")


def test_a_name_behind_the_url_is_the_clusters_as_where_it_names_a_log() -> None:
    """As it was: `muster planner --nats nats://host/prod` took part in a log of its own, that of cluster 'default'."""
    several = read({"nats_url": "nats://u:p@a:4222,b:4223/prod"}, {"MUSTER_CLUSTER": "lab"})
    assert (several.nats_url, several.cluster) == ("nats://u:p@a:4222,nats://b:4223", "prod")
    assert read({}, {"MUSTER_NATS_URL": "nats://a/prod", "MUSTER_CLUSTER": "lab"}).cluster == "prod"
    flagged = read({"cluster": "lab"}, {"MUSTER_NATS_URL": "nats://a/prod"})
    assert (flagged.nats_url, flagged.cluster) == ("nats://a", "lab"), "a child's command would read the URL's"
    assert read({"nats_url": "nats://a:4222"}, {"MUSTER_CLUSTER": "lab"}).cluster == "lab"
    assert read({"nats_url": "nats://a/prod", "shard": "7"}, {}).shard == "7"
    with pytest.raises(InvalidSetting, match=r"^--nats, behind the URL: expected letters, .*, not 'a.b'$"):
        read({"nats_url": "nats://a/a.b"}, {})
    with pytest.raises(InvalidSetting, match=r"^MUSTER_NATS_URL, behind the URL: "):
        read({}, {"MUSTER_NATS_URL": "nats://a/a.b"})
    assert read({"nats_url": "log/x.db"}, {}).nats_url == "log/x.db"


def test_an_empty_variable_is_not_set() -> None:
    assert read({}, {"MUSTER_CLUSTER": ""}).cluster == "default"


def test_lists_are_separated_by_commas() -> None:
    assert read({}, {"MUSTER_SCHEDULER_NAMES": "muster, volcano"}).scheduler_names == ("muster", "volcano")
    assert read({"scheduler_names": ["a", "b"]}, {}).scheduler_names == ("a", "b")


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("MUSTER_BIND_CONCURRENCY", "abc", "expected a whole number, not 'abc'"),
        ("MUSTER_BIND_CONCURRENCY", "0", "expected a whole number >= 1, not '0'"),
        ("MUSTER_BIND_CONCURRENCY", "1.5", "expected a whole number, not '1.5'"),
        ("MUSTER_KUBERNETES_EVENTS_PER_SECOND", "-1", "expected a number > 0.0, not '-1'"),
        ("MUSTER_CLUSTER", "a.b", f"expected {NAME}, not 'a.b'"),
        ("MUSTER_CLUSTER", "prod\n", f"expected {NAME}, not 'prod\\n'"),
        ("MUSTER_CLUSTER", "feed-prod", f"expected {NAME}, not 'feed-prod'"),
        ("MUSTER_CLUSTER", "leases-prod", f"expected {NAME}, not 'leases-prod'"),
        ("MUSTER_SHARD", "0\n", "expected letters, digits, '-' and '_', at most 64, not '0\\n'"),
        ("MUSTER_LOG_LEVEL", "loud", "expected one of debug, info, warning, error, not 'loud'"),
        ("MUSTER_SCHEDULER_NAMES", "a,,b", "expected names, with commas between them, not 'a,,b'"),
        ("MUSTER_HEALTH_PORT", "70000", "expected a whole number <= 65535, not '70000'"),
        ("MUSTER_CLOCK_OFFSET_MS", "soon", "expected a whole number, not 'soon'"),
        # the process became active, and everybody set its commits aside
        ("MUSTER_CLOCK_OFFSET_MS", "10000000000000", "expected a whole number <= 1000000000000, not '10000000000000'"),
        ("MUSTER_HOLDER", "\udcff", "expected text in UTF-8, not '\\udcff'"),
        ("MUSTER_NATS_PASSWORD", "\udcff", "expected text in UTF-8, not ***"),
        ("MUSTER_NATS_URL", "nats://u:hunter2\udcff@h:1", "expected text in UTF-8, not 'nats://h:1'"),
        ("MUSTER_SCHEDULER_NAMES", "a,\udcff", "expected text in UTF-8, not 'a,\\udcff'"),
        ("MUSTER_NATS_INBOX_PREFIX", "a b", "expected a subject of NATS without wildcards, not 'a b'"),
        ("MUSTER_NATS_INBOX_PREFIX", "a.*", "expected a subject of NATS without wildcards, not 'a.*'"),
        ("MUSTER_NATS_INBOX_PREFIX", "a..b", "expected a subject of NATS without wildcards, not 'a..b'"),
        ("MUSTER_FEED_MAX_AGE_S", "10000000000", "expected a whole number <= 9223372036, not '10000000000'"),
        ("MUSTER_FEED_MAX_BYTES", "9" * 19, f"expected a whole number <= {(1 << 63) - 1}, not '{'9' * 19}'"),
        ("MUSTER_SNAPSHOT_AFTER_BYTES", "1e400", "expected a number that is not so large, not '1e400'"),
    ],
)
def test_a_bad_value_is_named_with_what_was_expected(variable: str, value: str, complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(f"{variable}: {complaint}")):
        read({}, {variable: value})


@pytest.mark.parametrize(
    ("setting", "value", "complaint"),
    [
        ("bind_concurrency", "many", "--bind-concurrency: expected a whole number, not 'many'"),
        ("nats_url", "", "--nats: expected some text, not ''"),
        ("scheduler_names", "", "--scheduler-names: expected names, with commas between them, not ''"),
        ("clusters_file", 1, "--clusters: expected str, not 1"),
        ("body_keys_file", 1, "--keys: expected str, not 1"),
        ("nats_password", 1234, "--nats-password: expected str, not ***"),
    ],
)
def test_a_bad_flag_is_named_as_a_flag(setting: str, value: object, complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=f"^{re.escape(complaint)}$"):
        read({setting: value}, {})


def test_an_unknown_flag_is_a_mistake_in_the_program() -> None:
    with pytest.raises(InvalidSetting, match="no such setting: nats"):
        read({"nats": "x"}, {})


def test_a_password_is_shown_to_nobody() -> None:
    settings = read({"nats_url": "nats://u:hunter2@a:4222"}, {"MUSTER_NATS_PASSWORD": "hunter2"})
    assert "hunter2" not in repr(settings)
    assert "nats_url='nats://a:4222', " in repr(settings)
    assert "nats_password='***', " in repr(settings)
    assert "cluster='default', " in repr(settings)


def test_what_is_given_of_the_credentials_for_nats_is_what_it_connects_with() -> None:
    assert read({}, {}).nats_options() == {}
    names = {
        "user": "nats_user",
        "password": "nats_password",
        "user_credentials": "nats_credentials_file",
        "ca_file": "nats_ca_file",
        "certificate_file": "nats_certificate_file",
        "key_file": "nats_key_file",
        "inbox_prefix": "nats_inbox_prefix",
    }
    for option, name in names.items():
        assert read({name: "given"}, {}).nats_options() == {option: "given"}


def test_a_child_reads_the_same_settings_from_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/elsewhere")
    monkeypatch.setenv("MUSTER_CLUSTER", "another")
    chosen = {"cluster": "prod", "scheduler_names": ["a", "b"], "nats_password": "x", "snapshot_after_bytes": 0}
    settings = read({**chosen, "clock_offset_ms": -5}, {})
    environment = settings.environment()
    child = read(environment=environment)
    assert msgspec.structs.replace(child, holder=settings.holder) == settings
    assert child.holder.startswith(f"{settings.holder}-")
    assert {name: value for name, value in environment.items() if not name.startswith("MUSTER_")} == {
        name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")
    }


def test_every_process_holds_under_a_name_of_its_own() -> None:
    assert read({}, {}).holder != read({}, {}).holder
    assert read({}, {}).holder.startswith(f"{socket.gethostname()}-{os.getpid()}-")
    named = [read({}, {"MUSTER_HOLDER": "binder-0"}).holder for _ in range(2)]
    assert all(name.startswith("binder-0-") for name in named)
    assert len(set(named)) == 2, "two containers of one name are two"


def test_a_skewed_clock() -> None:
    hour_ms = 3_600_000
    ahead = read({}, {"MUSTER_CLOCK_OFFSET_MS": str(hour_ms)}).now_ns() - time.time_ns()
    assert ahead > 0.9 * hour_ms * 10**6


def test_every_default_fits_its_own_type() -> None:
    settings = read({}, {})
    assert msgspec.convert(msgspec.to_builtins(settings), Settings) == settings
