"""Where the control plane of the end-to-end tests comes from: binaries that are there, and a Go to build the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.e2e import build


@pytest.fixture(autouse=True)
def binaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Instead of ``.build/bin``."""
    made = tmp_path / "bin"
    made.mkdir()
    monkeypatch.setattr(build, "BIN", made)
    monkeypatch.setattr(build, "BUILD", tmp_path)
    monkeypatch.setattr(build, "STAGES", tmp_path / "stages")
    return made


def program(file: Path, says: str) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\necho '{says}'\n")
    file.chmod(0o755)
    return file


def test_help_builds_nothing(monkeypatch: pytest.MonkeyPatch, binaries: Path) -> None:
    """As it was: whoever asked waited for minutes."""
    binaries.rmdir()
    monkeypatch.setenv("PATH", str(binaries))
    with pytest.raises(SystemExit) as ended:
        build.main(["--help"])
    assert ended.value.code == 0
    assert not binaries.exists()


def test_binaries_that_kubebuilder_assets_holds_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, binaries: Path
) -> None:
    etcd = program(tmp_path / "assets" / "etcd", "theirs")
    program(binaries / "etcd", "ours")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(etcd.parent))
    assert build.take_supplied() == {"etcd"}
    assert (binaries / "etcd").samefile(etcd)
    monkeypatch.delenv("KUBEBUILDER_ASSETS")
    assert build.take_supplied() == set()
    assert not (binaries / "etcd").exists(), "it is built again"


def test_kubebuilder_assets_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: what go.mod has was built, and tested instead."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", f"{tmp_path}/nowhere")
    with pytest.raises(SystemExit, match=r"KUBEBUILDER_ASSETS is '.*/nowhere', expected a directory"):
        build.take_supplied()


def test_kubebuilder_assets_may_name_what_was_built_here(monkeypatch: pytest.MonkeyPatch, binaries: Path) -> None:
    """As it was: each binary was deleted, and a link to itself stood in its place."""
    etcd = program(binaries / "etcd", "ours")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(binaries))
    assert build.take_supplied() == set()
    assert "ours" in etcd.read_text()


@pytest.mark.parametrize(
    ("version", "taken"), [("go1.26.0", True), ("go1.27.1", True), ("go1.9.7", False), ("", False)]
)
def test_a_go_on_path_is_used_if_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, taken: bool
) -> None:
    """Else PyPI's, here one that was installed before."""
    on_path = program(tmp_path / "path" / "go", f"go version {version} linux/amd64")
    (tmp_path / "go" / "bin").mkdir(parents=True)
    supplied = program(tmp_path / "go" / "bin" / "go", "go version go1.26.8 linux/amd64")
    monkeypatch.setenv("PATH", str(on_path.parent), prepend=":")
    assert build.find_go() == str(on_path if taken else supplied)


def test_what_is_up_to_date_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, binaries: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it was: KWOK's stages were fetched and written each time, so that a build that root had made was of no use to
    others, nor any without a network."""
    go = program(tmp_path / "path" / "go", "go version go1.26.8 linux/amd64")
    program(binaries / "etcd", "built")
    (binaries / ".stamp").write_text(build.fingerprint(str(go)))
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(build, "run_go", lambda _, *arguments: asked.append(arguments) or '{"Dir": "/nowhere"}')
    monkeypatch.setattr(build.Path, "replace", lambda *_: None)
    packages = {"etcd": build.PACKAGES["etcd"]}
    build.build(str(go), packages)
    assert [arguments[0] for arguments in asked] == ["list", "build", "mod"], "there were no stages yet"
    build.build(str(go), packages)
    assert len(asked) == 3
    assert "up to date" in capsys.readouterr().out


@pytest.mark.parametrize("home", ["", "there", "nowhere"])
def test_without_a_home_that_can_be_written_to_go_has_its_caches_beside_what_it_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    """As it was: it refused, so that a container's user had no control plane."""
    (tmp_path / "there").mkdir()
    for name in ("GOPATH", "GOCACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / home) if home else "")
    go = program(tmp_path / "path" / "go", "$GOPATH|$GOCACHE")
    go.write_text(go.read_text().replace("'", '"'))
    own = "|" if home == "there" else f"{tmp_path}/gopath|{tmp_path}/gocache"
    assert build.run_go(str(go), "build").strip() == own
    monkeypatch.setenv("GOPATH", "/mine")
    assert build.run_go(str(go), "build").startswith("/mine|")
