"""Another version of Kubernetes for the end-to-end tests: what is fetched and built, and what its gangs ask for."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.e2e import native_gangs, release

LIBRARIES = ("k8s.io/api", "k8s.io/component-helpers")


class Go:
    """Answers as Go does, for a Kubernetes with two libraries in its repository."""

    def __init__(self) -> None:
        self.builds: list[tuple[str, ...]] = []
        self.module = ""

    def run(self, go: str, *arguments: str, module: Path = release.MODULE) -> str:
        if arguments[:2] == ("mod", "download"):
            assert arguments[-1].startswith("k8s.io/kubernetes@v1.")
            return json.dumps({"GoMod": "/cache/go.mod"})
        if arguments[:2] == ("mod", "edit"):
            assert arguments[-1] == "/cache/go.mod"
            staged = [{"Old": {"Path": name}, "New": {"Path": release.STAGED + name}} for name in LIBRARIES]
            forked = {"Old": {"Path": "example.com/x"}, "New": {"Path": "example.com/y", "Version": "v1.0.0"}}
            godebug = [{"Key": "default", "Value": "go1.26"}]
            return json.dumps({"Go": "1.26.0", "Godebug": godebug, "Replace": [*staged, forked]})
        self.builds.append(arguments)
        self.module = (module / "go.mod").read_text()
        for package in arguments[arguments.index("bin") + 1 :]:
            (module / "bin" / package.rpartition("/")[2]).write_text("built")
        return ""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    fake = Go()
    monkeypatch.setattr(release, "BUILD", tmp_path)
    monkeypatch.setattr(release, "run_go", fake.run)
    monkeypatch.setattr(release, "fingerprint", lambda go: f"built by {go}")
    return fake


def test_its_libraries_are_those_that_were_published_with_it(tmp_path: Path, go: Go) -> None:
    made = release.build("go", "1.37.2")
    assert made == tmp_path / "kubernetes-1.37.2"
    assert [line for line in go.module.splitlines()[1:] if line] == [
        "go 1.26.0",
        "godebug default=go1.26",
        "require k8s.io/kubernetes v1.37.2",
        "replace k8s.io/api => k8s.io/api v0.37.2",
        "replace k8s.io/component-helpers => k8s.io/component-helpers v0.37.2",
    ]
    names = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "podrequests"]
    assert sorted(file.name for file in made.iterdir()) == [".stamp", *names]
    assert [file.name for file in tmp_path.iterdir()] == [made.name], "nothing else is left behind"
    release.build("go", "1.37.2")
    assert len(go.builds) == 1, "what is there is not built again"
    release.build("another go", "1.37.2")
    assert len(go.builds) == 2


def test_the_helper_is_that_of_the_pinned_version_where_there_was_no_such_one(go: Go) -> None:
    made = release.build("go", "1.33.13")
    assert sorted(file.name for file in made.iterdir()) == [".stamp", *sorted(release.PROGRAMS)]
    assert "k8s.io/api v0.33.13" in go.module


def test_a_version_that_cannot_be_fetched_is_named_with_gos_reason(monkeypatch: pytest.MonkeyPatch, go: Go) -> None:
    def refuse(*_: object, **__: object) -> str:
        said = json.dumps({"Error": "unknown revision v1.37.99"})
        raise subprocess.CalledProcessError(1, ["go", "mod", "download"], output=said)

    monkeypatch.setattr(release, "run_go", refuse)
    with pytest.raises(SystemExit, match=r"^Kubernetes 1\.37\.99: unknown revision v1\.37\.99$"):
        release.build("go", "1.37.99")


@pytest.mark.parametrize(
    ("text", "version"), [("1.37.2", "1.37.2"), ("v1.30.14", "1.30.14"), ("1.38.0-beta.0", "1.38.0-beta.0")]
)
def test_a_version_is_written_with_a_v_or_without(text: str, version: str) -> None:
    assert release.version(text) == version


@pytest.mark.parametrize("text", ["1.37", "", "latest", "2.0.0", "1.37.2/../x", "1.37.2-gke.1"])
def test_what_is_no_version_is_named(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"not a version of Kubernetes, such as 1\.37\.2"):
        release.version(text)


@pytest.fixture
def apiserver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program that is to say its version."""
    monkeypatch.setattr(release, "BIN", tmp_path)
    release.installed_minor.cache_clear()
    yield tmp_path / "kube-apiserver"
    release.installed_minor.cache_clear()


@pytest.mark.parametrize(
    ("version", "group", "flag"),
    [
        ("v1.36.3", "v1alpha2", "--feature-gates=GenericWorkload=true,GangScheduling=true"),
        ("v1.37.2", "v1beta1", "--feature-gates=GenericWorkload=true"),
    ],
)
def test_gates_of_its_own_gangs(apiserver: Path, version: str, group: str, flag: str) -> None:
    apiserver.write_text(f"#!/bin/sh\necho Kubernetes {version}\n")
    apiserver.chmod(0o755)
    found = native_gangs.native_gangs()
    assert found.scheduler_flags == (flag,)
    jobs = f"{flag},WorkloadWithJob=true"
    assert found.apiserver_flags == (jobs, f"--runtime-config=scheduling.k8s.io/{group}=true")


def test_a_version_whose_gangs_are_not_known_is_named(apiserver: Path) -> None:
    apiserver.write_text("#!/bin/sh\necho Kubernetes v1.35.4\n")
    apiserver.chmod(0o755)
    with pytest.raises(LookupError, match=r"Kubernetes 1\.35 is none of .* known: 1\.36, 1\.37"):
        native_gangs.native_gangs()


def test_what_says_no_version_is_named(apiserver: Path) -> None:
    apiserver.write_text("#!/bin/sh\necho Hello\n")
    apiserver.chmod(0o755)
    with pytest.raises(
        ValueError, match=r"kube-apiserver --version says 'Hello\\n', expected a version such as v1\.37\.2"
    ):
        release.installed_minor()
