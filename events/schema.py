"""JSON Schemas of the events and an AsyncAPI document of the feed, generated from the structs.

``python -m events.schema`` (`make schema`) writes ``events/schema/<EventType>.json``, ``events/schema/CloudEvent.json``
and ``events/schema/asyncapi.yaml``; a test fails when what is committed differs. Descriptions are the docstrings of the
structs and of their fields, so that there is one place to say what a field means.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import msgspec

import events
from events import Event, cloudevents, decisions, facts, federation, objects, policy
from events.cloudevents import EVENT_TYPES, CloudEvent

DIRECTORY = Path(__file__).parent / "schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
ASYNCAPI = "asyncapi.yaml"

Schema = dict[str, Any]


def generate() -> dict[str, str]:
    """File name → content, of everything in ``events/schema/``. The same on every machine."""
    kinds = {kind.__name__: kind for kind in get_args(Event)}
    files = {f"{name}.json": _json(event_schema(kind)) for name, kind in kinds.items()}
    files["CloudEvent.json"] = _json(_standalone(CloudEvent, "urn:muster:cloudevent"))
    files[ASYNCAPI] = _yaml(asyncapi())
    return files


def event_schema(kind: type) -> Schema:
    """A schema that stands alone; its `$id` is the `dataschema` of the feed."""
    return _standalone(kind, cloudevents.schema_id(kind.__name__))


def asyncapi() -> Schema:
    """AsyncAPI 3: one channel and one message for each type of event, sent by Muster, in CloudEvents' envelope."""
    template = "#/components/schemas/{name}"
    schemas = _described(msgspec.json.schema_components([Event, CloudEvent], ref_template=template)[1])
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "The feed of Muster", "version": "1.0.0", "description": inspect.getdoc(cloudevents)},
        "defaultContentType": cloudevents.CONTENT_TYPE,
        "servers": {"nats": {"host": "localhost:4222", "protocol": "nats", "description": "NATS with JetStream."}},
        "channels": {name: _channel(name) for name in EVENT_TYPES},
        "operations": {
            f"send{name}": {
                "action": "send",
                "channel": {"$ref": f"#/channels/{name}"},
                "messages": [{"$ref": f"#/channels/{name}/messages/{name}"}],
            }
            for name in EVENT_TYPES
        },
        "components": {
            "messages": {name: _message(name, schemas[name]["description"]) for name in EVENT_TYPES},
            "parameters": _PARAMETERS,
            "schemas": schemas,
        },
    }


def write(directory: Path = DIRECTORY) -> None:
    directory.mkdir(exist_ok=True)
    files = generate()
    for stale in {*directory.glob("*.json"), *directory.glob("*.yaml")} - {directory / name for name in files}:
        stale.unlink()
    for name, content in files.items():
        (directory / name).write_text(content, encoding="utf-8")


_PARAMETERS: Schema = {
    "cluster": {"description": "The cluster's name in the log."},
    "namespace": {"description": "Namespace of the pod or gang, as one token (percent-encoded); '-' where none."},
    "name": {
        "description": "Name of the pod, gang, node or other object, as one token (percent-encoded); '-' for none."
    },
}


def _channel(name: str) -> Schema:
    parameters = {parameter: {"$ref": f"#/components/parameters/{parameter}"} for parameter in _PARAMETERS}
    return {
        "address": f"muster-feed.{{cluster}}.{name}.{{namespace}}.{{name}}",
        "parameters": parameters,
        "messages": {name: {"$ref": f"#/components/messages/{name}"}},
    }


def _message(name: str, description: str) -> Schema:
    headers = {
        "Nats-Msg-Id": {"type": "string", "description": "The event's id, by which the stream deduplicates."},
        "content-type": {"type": "string", "const": cloudevents.CONTENT_TYPE},
    }
    fixed = {
        "type": {"const": cloudevents.TYPE_PREFIX + name},
        "dataschema": {"const": cloudevents.schema_id(name)},
        "data": {"$ref": f"#/components/schemas/{name}"},
    }
    return {
        "name": name,
        "summary": description.partition("\n\n")[0],
        "contentType": cloudevents.CONTENT_TYPE,
        "headers": {"type": "object", "properties": headers},
        "payload": {"allOf": [{"$ref": "#/components/schemas/CloudEvent"}, {"properties": fixed}]},
    }


def _standalone(kind: type, identity: str) -> Schema:
    (reference,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    definitions = _described(components)
    top = definitions.pop(reference["$ref"].rpartition("/")[2])
    schema = {"$schema": DIALECT, "$id": identity, **top}
    return {**schema, "$defs": definitions} if definitions else schema


def _described(components: dict[str, Schema]) -> dict[str, Schema]:
    """With docstrings cleaned of their indentation and fields described; by name, so that no order is left to chance."""
    structs = _structs()
    for name, schema in components.items():
        kind = structs[name]
        schema["description"] = inspect.cleandoc(schema.get("description", ""))
        descriptions = _field_descriptions(kind)
        if "prefixItems" in schema:  # an array on the wire: its items are the fields, in order
            fields = list(zip(kind.__struct_fields__, schema["prefixItems"], strict=True))
            schema["prefixItems"] = [{"title": field, **item} for field, item in fields]
        else:
            fields = list(schema["properties"].items())
        for field, item in fields:
            if field in descriptions:
                item["description"] = descriptions[field]
    return dict(sorted(components.items()))


@cache
def _structs() -> dict[str, Any]:
    modules: tuple[ModuleType, ...] = (objects, policy, facts, decisions, federation, cloudevents)
    return {name: thing for module in modules for name, thing in vars(module).items() if isinstance(thing, type)}


def _field_descriptions(kind: type) -> dict[str, str]:
    """The strings that stand below fields in the source, of this struct and those it extends."""
    found: dict[str, str] = {}
    for ancestor in reversed(kind.__mro__):
        if ancestor.__module__.partition(".")[0] != events.__name__:
            continue
        (definition,) = ast.parse(inspect.getsource(ancestor)).body
        body = definition.body  # type: ignore[attr-defined]
        for field, below in pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                found[ast.unparse(field.target)] = inspect.cleandoc(str(below.value.value))
    return found


def _json(document: Schema) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _yaml(document: Schema) -> str:
    import yaml

    class Plain(yaml.SafeDumper):
        """Without anchors; several lines as a block."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Plain, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Plain.add_representer(str, text)
    return str(yaml.dump(document, Dumper=Plain, sort_keys=False, allow_unicode=True, width=120))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m events.schema", description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=DIRECTORY, help="where they go")
    write(parser.parse_args().directory)
