"""Seed 001, "Describing a multi-cluster job": the specialization method."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from services.cli.muster import app
from services.documents import load_all
from services.federator.backends import MARKER, Owner
from services.federator.mcc import InvalidJob, load, parse
from services.federator.specialize import name_on, specialize, to_yaml
from tests import shared
from tests.federator.jobs import EXAMPLE, document, federated

SHARED = shared.SHARED / "manifests" / "openpai"
A1 = Owner(federation="fed", job="u1", cluster="a1")


def test_the_placeholder_is_replaced_by_its_corresponding_value() -> None:
    """gpu: <gpu-num-1> # <% $mcc.gpuNum %>; storageConfigNames: a list"""
    special = specialize(load(EXAMPLE), "a1", A1)
    assert special["taskRoles"]["main"]["resourcePerInstance"]["gpu"] == 1
    assert special["extras"]["com.microsoft.pai.runtimeplugin"] == [
        {"plugin": "teamwise_storage", "parameters": {"storageConfigNames": ["storage-1", "storage-2"]}}
    ]


def test_within_a_longer_text_the_value_is_written_out() -> None:
    special = specialize(load(EXAMPLE), "b2", A1)
    assert special["taskRoles"]["main"]["commands"] == ["python train.py --gpus 4 --out /out/4"]
    changed = document()
    changed["extra"]["com.microsoft.pai.runtimeplugin"][1]["parameters"]["params"]["gpuNum"] = {"a1": "all", "b2": 0.5}
    commands = [specialize(parse(changed), alias, A1)["taskRoles"]["main"]["commands"] for alias in ("a1", "b2")]
    assert commands == [["python train.py --gpus all --out /out/all"], ["python train.py --gpus 0.5 --out /out/0.5"]]


def test_the_name_has_the_alias_behind_it() -> None:
    """name: mc-job-name-<alias-1>"""
    assert specialize(load(EXAMPLE), "a1", A1)["name"] == "mc-job-name-a1"
    assert specialize(load(EXAMPLE), "a1", A1, 2)["name"] == name_on("mc-job-name", "a1", 2) == "mc-job-name-a1-2"


def test_the_protocol_is_the_servers() -> None:
    """protocolVersion: '2' # super-2"""
    special = specialize(load(EXAMPLE), "a1", A1)
    assert (special["protocolVersion"], special["type"]) == ("2", "job")
    assert "extra" not in special


def test_plugin_and_tokens_are_gone_and_other_secrets_stay() -> None:
    changed = document()
    changed["secrets"]["registry"] = "kept <% $mcc.gpuNum %>"
    special = specialize(parse(changed), "a1", A1)
    assert special["secrets"] == {"registry": "kept 1"}
    assert "aaa-secret" not in str(special)
    assert "super_scheduler" not in str(special)
    assert "secrets" not in specialize(load(EXAMPLE), "a1", A1)


def test_other_extras_stay_and_without_other_plugins_no_empty_list_is_left() -> None:
    changed = document()
    changed["extra"]["hivedScheduler"] = {"gpus": "<% $mcc.gpuNum %>"}
    special = specialize(parse(changed), "b2", A1)["extras"]
    assert list(special) == ["hivedScheduler", "com.microsoft.pai.runtimeplugin", MARKER]
    assert special["hivedScheduler"] == {"gpus": 4}
    del changed["extra"]["hivedScheduler"], changed["extra"]["com.microsoft.pai.runtimeplugin"][0]
    del changed["extra"]["com.microsoft.pai.runtimeplugin"][0]["parameters"]["params"]["storageConfigs"]
    assert list(specialize(parse(changed), "a1", A1)["extras"]) == [MARKER]


def test_the_marker_says_whose_it_is() -> None:
    special = specialize(load(EXAMPLE), "a1", A1)
    assert special["extras"][MARKER] == {"federation": "fed", "job": "u1", "cluster": "a1"}
    assert msgspec.convert(special["extras"][MARKER], Owner) == A1


def test_the_job_itself_stays_as_it_is() -> None:
    job = load(EXAMPLE)
    specialize(job, "a1", A1)
    assert job == load(EXAMPLE)


def test_an_unknown_alias_is_refused() -> None:
    with pytest.raises(InvalidJob, match="no cluster 'c3'; there are a1, b2"):
        specialize(load(EXAMPLE), "c3", A1)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8"), max_size=20)
    | st.sampled_from(["<% $mcc.storageConfigs %>", "<%", "%>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(values, values)
def test_any_value_takes_the_placeholders_place_with_its_type(first: Any, second: Any) -> None:
    changed = document()
    changed["parameters"] = {"x": "<% $mcc.storageConfigs %>"}
    parameters = changed["extra"]["com.microsoft.pai.runtimeplugin"][1]["parameters"]["params"]
    parameters["storageConfigs"] = {"a1": first, "b2": second}
    try:
        job = parse(changed)
    except InvalidJob as refused:
        assert "<%" in str([first, second])
        assert "placeholder" in str(refused)  # noqa: PT017
        return
    assert "<% $" not in str([first, second])
    assert specialize(job, "a1", A1)["parameters"] == {"x": first}
    assert specialize(job, "b2", A1)["parameters"] == {"x": second}


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), values))
def test_what_is_submitted_is_read_back_as_it_was(special: dict[str, Any]) -> None:
    assert load_all(to_yaml(special)) == [special]


@pytest.mark.parametrize(
    "text", ["1e3", "0o14", "yes", "12:30", "2020-01-01", "~", "null", "", "- a", "on", ".5", "0x1F"]
)
def test_a_text_that_looks_like_something_else_is_quoted(text: str) -> None:
    assert to_yaml({"x": text}) in (f'x: "{text}"\n', f"x: '{text}'\n", f'"x": "{text}"\n')


def test_it_is_written_as_people_would_in_the_jobs_order_and_without_anchors() -> None:
    shared = ["x"]
    assert to_yaml({"b": shared, "a": shared, "run": "cd /\n./go\n"}) == "b:\n- x\na:\n- x\nrun: |\n  cd /\n  ./go\n"


def test_the_command_shows_it_without_submitting(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(EXAMPLE)
    shown = CliRunner().invoke(app, ["job", "specialize", str(file), "--cluster", "b2"])
    assert shown.exit_code == 0
    assert yaml.safe_load(shown.stdout)["taskRoles"]["main"]["resourcePerInstance"]["gpu"] == 4
    as_json = CliRunner().invoke(app, ["job", "specialize", str(file), "--cluster", "b2", "--json"])
    assert json.loads(as_json.stdout) == yaml.safe_load(shown.stdout)


def test_the_command_says_what_is_wrong_and_ends_with_2(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(EXAMPLE.replace("b2: 4", "c3: 4"))
    told = CliRunner().invoke(app, ["job", "specialize", str(file), "--cluster", "b2"])
    assert told.exit_code == 2
    assert "parameter gpuNum has a value for c3" in told.stderr
    assert "parameter gpuNum has no value for b2" in told.stderr


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published jobs are not here")
@pytest.mark.skipif(importlib.util.find_spec("services.simulator.openpai") is None, reason="no server's schema here")
def test_published_jobs_for_two_clusters_are_accepted_by_the_servers_schema() -> None:
    from services.simulator.openpai.schema import validate

    names = sorted(SHARED.glob("*.yaml"))
    assert names
    for path in names:
        published = load_all(path.read_text())[0]
        was_refused = bool(validate(published))
        job = parse(federated(published, fast=90, slow=10))
        for number, alias in enumerate(("fast", "slow")):
            special = specialize(job, alias, Owner(federation="fed", job="u1", cluster=alias))
            assert load_all(to_yaml(special)) == [special]
            assert bool(validate(special)) == was_refused, (path.name, validate(special))
            for name, role in special["taskRoles"].items():
                expected = published["taskRoles"][name]["resourcePerInstance"]["gpu"] + number
                assert role["resourcePerInstance"]["gpu"] == expected
