"""Fuzzing for as long as it is told: ``python -m tests.fuzz [--minutes N] [TARGET …]``, which `make fuzz` runs.

Atheris guides the bytes by the coverage of events and services, one process after the other, each target its share of
the time; it begins with the repository's own samples and with what earlier runs found worth keeping, in ``.build/fuzz``.
Input that fails is kept there, and ``--again FILE TARGET`` runs it alone. Where there is no atheris (it has wheels for
Linux on x86-64 alone) the properties run with many more examples instead, and other ones on every run.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".build" / "fuzz"
LONGEST = 1 << 16
"""Bytes of an input."""
HANGS_S = 20
"""A decoder that takes so long hangs."""
EXAMPLES_A_MINUTE = 3
"""How many times the usual examples take about a minute."""


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.again:
        return _again(arguments.again, arguments.targets[0])
    if arguments.child:
        return _fuzz(arguments.targets[0], arguments.child)
    if importlib.util.find_spec("atheris") is None:
        print("no atheris here: the properties, with more examples", flush=True)
        return _properties(arguments.minutes)
    return _guided(arguments.targets, arguments.minutes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the decoders of bytes.")
    parser.add_argument("--minutes", type=float, default=10.0, help="in all (default 10)")
    parser.add_argument("--again", type=Path, metavar="FILE", help="run one input that failed")
    parser.add_argument("--child", type=int, metavar="SECONDS", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="of tests/fuzz/targets.py; default: all")
    return parser


def _guided(names: list[str], minutes: float) -> int:
    from tests.fuzz.targets import TARGETS

    names = names or list(TARGETS)
    share_s = max(1, round(minutes * 60 / len(names)))
    failed = []
    for name in names:
        command = [sys.executable, "-m", "tests.fuzz", "--child", str(share_s), name]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
        last = re.findall(r"^#[0-9]+\s.*$", done.stderr, re.MULTILINE) or ["nothing was run"]
        print(f"{name}: {'failed' if done.returncode else 'sound'}; {last[-1]}", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stdout[-4_000:] + done.stderr[-4_000:])
    print(f"{len(names)} targets, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


def _fuzz(name: str, seconds: int) -> int:
    """Only returns for a target that cannot be fuzzed: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["events", "services"]):
        from tests.fuzz.targets import TARGETS

    corpus, found = KEPT / name.replace(" ", "-") / "corpus", KEPT / name.replace(" ", "-") / "failed"
    for directory in (corpus, found):
        directory.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds()):
        (corpus / f"sample-{number}").write_bytes(seed)
    options = [f"-max_total_time={seconds}", f"-timeout={HANGS_S}", f"-max_len={LONGEST}", "-rss_limit_mb=2048"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={found}/", str(corpus)], TARGETS[name].check)
    atheris.Fuzz()
    return 0


def _again(path: Path, name: str) -> int:
    from tests.fuzz.targets import TARGETS

    TARGETS[name].check(path.read_bytes())
    return 0


def _properties(minutes: float) -> int:
    environment = {**os.environ, "MUSTER_FUZZ_FACTOR": str(max(2.0, EXAMPLES_A_MINUTE * minutes))}
    command = [sys.executable, "-m", "pytest", "--timeout=0", "-n", "2", "tests/fuzz"]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
