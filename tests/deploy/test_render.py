"""The generated manifests: fresh, and taken by the server that they configure."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.render import MANIFESTS, new_password, rendered, secret, server_configuration
from events.permissions import ROLES, password_variable
from events.server import find_binary


@pytest.mark.parametrize("name", sorted(rendered()))
def test_the_committed_manifest_is_what_would_be_rendered_now(name: str) -> None:
    assert (MANIFESTS / name).read_text() == rendered()[name], "stale: run `python -m deploy.render`"


def test_the_server_accepts_its_configuration_with_the_secret_in_its_environment(tmp_path: Path) -> None:
    file = tmp_path / "nats.conf"
    file.write_text(server_configuration("default"))
    passwords = {name: base64.b64decode(value).decode() for name, value in json.loads(secret())["data"].items()}
    binary, _ = find_binary()
    command = [binary, "-t", "--config", str(file)]
    done = subprocess.run(command, env=os.environ | passwords, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    missing = subprocess.run(command, capture_output=True, text=True, check=False)
    assert missing.returncode != 0, "a server without its passwords must not start"


def test_the_secret_has_a_password_of_its_own_for_each_role() -> None:
    passwords = json.loads(secret())["data"]
    assert set(passwords) == {password_variable(role) for role in ROLES}
    assert len(set(passwords.values())) == len(ROLES)
    assert json.loads(secret())["data"] != passwords


def test_each_service_is_given_its_own_password_only() -> None:
    for document in yaml.safe_load_all(rendered()["40-services.yaml"]):
        name = document["metadata"]["name"]
        (container,) = document["spec"]["template"]["spec"]["containers"]
        keys = [entry["valueFrom"]["secretKeyRef"]["key"] for entry in container["env"] if "valueFrom" in entry]
        assert keys == [password_variable(name)]


def test_a_password_begins_with_a_letter_so_that_the_server_takes_it_for_text() -> None:
    assert all(new_password()[0].isalpha() for _ in range(100))
