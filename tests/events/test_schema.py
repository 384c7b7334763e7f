"""The schemas say what the structs are, and what is committed is what the structs give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml

from events import Event, cloudevents, schema
from tests.events.samples import plain, sample

KINDS = get_args(Event)


@pytest.fixture(scope="module")
def asyncapi() -> schema.Schema:
    return schema.asyncapi()


def test_what_is_committed_is_what_the_structs_give() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in schema.DIRECTORY.iterdir()}
    generated = schema.generate()
    assert committed.keys() == generated.keys(), "run `make schema`"
    stale = [name for name, content in generated.items() if committed[name] != content]
    assert stale == [], "run `make schema`"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_event_on_the_wire_fits_its_schema(kind: type) -> None:
    document = schema.event_schema(kind)
    jsonschema.Draft202012Validator.check_schema(document)
    validator = jsonschema.Draft202012Validator(document)
    event = plain(sample(kind))
    validator.validate(event)
    for field in event:
        without = {name: value for name, value in event.items() if name != field}
        with pytest.raises(jsonschema.ValidationError, match=field):
            validator.validate(without)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_event_says_what_it_is(kind: type) -> None:
    document = schema.event_schema(kind)
    assert document["$id"] == f"urn:muster:event:{kind.__name__}"
    assert document["description"].endswith((".", ":", "…")), "a docstring is a sentence"


def test_docstrings_of_fields_are_their_descriptions(asyncapi: schema.Schema) -> None:
    policy = asyncapi["components"]["schemas"]["Policy"]
    assert policy["properties"]["gang_pods"]["description"].startswith("Pods that one gang may have")


def test_arrays_on_the_wire_name_their_items(asyncapi: schema.Schema) -> None:
    place = asyncapi["components"]["schemas"]["Place"]
    assert [item["title"] for item in place["prefixItems"]] == ["sequence", "index"]


def test_the_asyncapi_document_has_a_channel_and_a_message_for_every_event() -> None:
    document = yaml.safe_load((schema.DIRECTORY / schema.ASYNCAPI).read_text(encoding="utf-8"))
    names = [kind.__name__ for kind in KINDS if kind.__name__ in cloudevents.EVENT_TYPES]
    assert document["asyncapi"] == "3.0.0"
    assert list(document["channels"]) == list(document["components"]["messages"]) == names
    assert document["channels"]["GangPlaced"]["address"] == "muster-feed.{cluster}.GangPlaced.{namespace}.{name}"


def test_every_reference_of_the_asyncapi_document_leads_somewhere(asyncapi: schema.Schema) -> None:
    references = list(_references(asyncapi))
    assert references
    for reference in references:
        target: Any = asyncapi
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]


def test_an_envelope_fits_its_message(asyncapi: schema.Schema) -> None:
    event = plain(sample(KINDS[0]))
    body = {
        "specversion": "1.0",
        "id": "1.0",
        "source": cloudevents.source("prod"),
        "type": "dev.muster.IngestTaken",
        "time": "2026-01-01T00:00:00.000000000Z",
        "datacontenttype": "application/json",
        "dataschema": "urn:muster:event:IngestTaken",
        "writer": "ingest",
        "data": event,
    }
    message = {**asyncapi["components"]["messages"]["IngestTaken"]["payload"], "components": asyncapi["components"]}
    jsonschema.validate(body, message)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**body, "data": {}}, message)


def test_the_same_bytes_under_every_hash_seed(tmp_path: Path) -> None:
    written = []
    for seed in ("1", "2"):
        target = tmp_path / seed
        subprocess.run(
            [sys.executable, "-m", "events.schema", str(target)],
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        written.append({path.name: path.read_bytes() for path in target.iterdir()})
    assert written[0] == written[1]
    assert json.loads(written[0]["Ticked.json"])["title"] == "Ticked"


def test_who_asks_for_help_gets_no_directory_of_that_name(tmp_path: Path) -> None:
    """As it was: seventy files in ``--help/``."""
    asked = subprocess.run(
        [sys.executable, "-m", "events.schema", "--help"], check=True, capture_output=True, cwd=tmp_path
    )
    assert asked.stdout.startswith(b"usage: ")
    assert not list(tmp_path.iterdir())


def _references(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(document, list):
        for value in document:
            yield from _references(value)
