"""What the documents say of settings, of the policy and of a clusters file is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from events.policy import DEFAULT_POLICY, Policy
from services.federator.clusters import KubernetesCluster, OpenPaiCluster
from services.settings import PREFIX, Settings

DOCS = Path(__file__).parents[2] / "docs"
OPERATIONS = DOCS / "operations.md"
ROW = re.compile(rf"^\| `({PREFIX}\w+)` \|([^|]*)\|[^|]+\|$", re.MULTILINE)


def test_every_setting_is_documented_with_its_default() -> None:
    documented = {name: default.strip() for name, default in ROW.findall(OPERATIONS.read_text())}
    assert documented == {PREFIX + field.name.upper(): _default(field) for field in msgspec.structs.fields(Settings)}


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT:
        return "*host, process, random*"
    shown = ",".join(field.default) if isinstance(field.default, tuple) else str(field.default)
    return f"`{shown}`" if shown else ""


def test_the_bounds_of_the_policy_are_documented_with_their_defaults() -> None:
    """Where a document has a bound's number beside its name: in a table, or behind it in brackets."""
    found: dict[str, str] = {}
    for document in DOCS.glob("*.md"):
        for name, row, words in re.findall(r"`(\w+)`(?: \| ([\d,]+) \|| \(([\d,]+)\))", document.read_text()):
            if name in Policy.__struct_fields__:
                found[name] = (row or words).replace(",", "")
    assert {"reserve_after_refusals", "reservation_hold_ms", "reservations", "cycle_pods"} <= set(found)
    assert found == {name: str(getattr(DEFAULT_POLICY, name)) for name in found}


def test_every_field_of_a_clusters_file_is_documented() -> None:
    """With its kind, and its default where that is one value."""
    text = (DOCS / "federation.md").read_text()
    rows = re.findall(r"^\| (`[^|]*`) \| (both|openpai|kubernetes) \|([^|]*)\|", text, re.MULTILINE)
    documented = {  # two names of a row have a default each, or the same
        (name, kind): default.strip()
        for names, kind, default in rows
        for name, default in zip(re.findall(r"`(\w+)`", names), default.split(", ") * 2, strict=False)
    }
    kinds = {"openpai": OpenPaiCluster, "kubernetes": KubernetesCluster}
    fields = {kind: {field.name: field for field in msgspec.structs.fields(of)} for kind, of in kinds.items()}
    both = fields["openpai"].keys() & fields["kubernetes"].keys()
    expected = {
        (name, "both" if name in both else kind): field for kind in kinds for name, field in fields[kind].items()
    }
    del expected["alias", "both"]  # the key in the file
    assert documented.keys() == expected.keys()
    for key, field in expected.items():
        if isinstance(field.default, str | int) and field.default:
            assert documented[key].strip("`") == str(field.default)
