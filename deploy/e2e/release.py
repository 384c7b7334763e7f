"""Builds another version of Kubernetes than ``kubernetes/go.mod`` has, for the end-to-end tests to run on.

    python -m deploy.e2e.release 1.37.2
    KUBEBUILDER_ASSETS=.build/kubernetes-1.37.2 make e2e

``make e2e KUBERNETES=1.37.2`` does both, and ``make chaos`` and ``make bench`` take it as well. Etcd and KWOK stay those
of ``go.mod``. Kubernetes' module names its own libraries by their place in its repository; to build it as a module each
is replaced by the one that was published with it. No sums are kept here: Go compares what it fetches with its checksum
database. From nothing this takes four to seven minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from deploy.e2e.build import BIN, BUILD, MODULE, find_go, fingerprint, run_go, say

KUBERNETES = "k8s.io/kubernetes"
PROGRAMS = ("kube-apiserver", "kube-scheduler", "kube-controller-manager")
STAGED = "./staging/src/"
"""Where its repository has the libraries that are published with it."""
HELPER_SINCE = (1, 36)
"""``podrequests`` gives options that the helper of older versions does not have."""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.e2e.release",
        description="Builds another version of Kubernetes; from nothing in minutes.",
    )
    parser.add_argument("version", type=version, help="such as 1.37.2")
    build(find_go(), parser.parse_args(arguments).version)


def version(text: str) -> str:
    """1.37.2 of ``v1.37.2``; a release to come is ``1.38.0-beta.0``."""
    if not re.fullmatch(r"v?1\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a version of Kubernetes, such as 1.37.2")
    return text.removeprefix("v")


def build(go: str, wanted: str) -> Path:
    """Its programs; returns the directory that holds them."""
    made = BUILD / f"kubernetes-{wanted}"
    names = (*PROGRAMS, "podrequests") if minor(wanted) >= HELPER_SINCE else PROGRAMS
    stamp, of = made / ".stamp", fingerprint(go)
    if all((made / name).exists() for name in names) and stamp.exists() and stamp.read_text() == of:
        say(f"Kubernetes {wanted}: up to date")
        return made
    started = time.monotonic()
    say(f"building {', '.join(names)} of Kubernetes {wanted}")
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as directory:
        module = Path(directory)
        write_module(go, module, wanted)
        packages = [f"{KUBERNETES}/cmd/{name}" for name in PROGRAMS] + [f"./{name}" for name in names[len(PROGRAMS) :]]
        flags = ["-mod=mod", "-trimpath", "-gcflags=all=-dwarf=false"]
        flags += ["-ldflags", f"-s -w -X k8s.io/component-base/version.gitVersion=v{wanted}"]
        (module / "bin").mkdir()
        run_go(go, "build", *flags, "-o", "bin", *packages, module=module)
        made.mkdir(exist_ok=True)
        stamp.unlink(missing_ok=True)
        for name in names:
            (module / "bin" / name).replace(made / name)
    stamp.write_text(of)
    say(f"built in {time.monotonic() - started:.0f} s")
    return made


def minor(of: str) -> tuple[int, int]:
    """(1, 37) of 1.37.2."""
    major, number, _ = of.split(".", 2)
    return int(major), int(number)


@cache
def installed_minor() -> int:
    """37 of the kube-apiserver in ``.build/bin`` that is Kubernetes 1.37.2."""
    said = subprocess.run([BIN / "kube-apiserver", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"v1\.(\d+)\.", said)
    if found is None:
        raise ValueError(f"{BIN / 'kube-apiserver'} --version says {said!r}, expected a version such as v1.37.2")
    return int(found[1])


def write_module(go: str, module: Path, wanted: str) -> None:
    """A go.mod in which Kubernetes' libraries are those of its version, and podrequests beside it."""
    try:
        fetched = json.loads(run_go(go, "mod", "download", "-json", f"{KUBERNETES}@v{wanted}"))
    except subprocess.CalledProcessError as error:  # there is no such version, or it asks for a newer Go
        raise SystemExit(f"Kubernetes {wanted}: {json.loads(error.stdout)['Error']}") from error
    its: dict[str, Any] = json.loads(run_go(go, "mod", "edit", "-json", fetched["GoMod"]))
    published = f"v0.{wanted.partition('.')[2]}"
    libraries = sorted(one["Old"]["Path"] for one in its["Replace"] if one["New"]["Path"].startswith(STAGED))
    lines = [f"module muster/e2e/kubernetes-{wanted}", f"go {its['Go']}"]
    lines += [f"godebug {one['Key']}={one['Value']}" for one in its.get("Godebug") or ()]
    lines += [f"require {KUBERNETES} v{wanted}"]
    lines += [f"replace {name} => {name} {published}" for name in libraries]
    (module / "go.mod").write_text("\n".join(lines) + "\n")
    helper = module / "podrequests"
    helper.mkdir()
    (helper / "main.go").write_bytes((MODULE / "podrequests" / "main.go").read_bytes())


if __name__ == "__main__":
    main(sys.argv[1:])
