"""One instance of every kind of event, with something in every field."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from msgspec import inspect

from events import Event


def sample(kind: type) -> Any:
    """An instance of a struct: names are "x", numbers 1, every collection has one element, optional parts are there."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return kind(**{field.name: _value(field.type) for field in info.fields})


def samples() -> list[Event]:
    return [sample(kind) for kind in get_args(Event)]


def _value(info: inspect.Type) -> Any:  # noqa: PLR0911
    match info:
        case inspect.StrType():
            return "x"
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 1
        case inspect.VarTupleType(item_type=item):
            return (_value(item),)
        case inspect.TupleType(item_types=items):
            return tuple(_value(item) for item in items)
        case inspect.DictType(key_type=key, value_type=value):
            return {_value(key): _value(value)}
        case inspect.UnionType(types=types):
            return _value(next(kind for kind in types if not isinstance(kind, inspect.NoneType)))
        case inspect.StructType(cls=kind):
            return sample(kind)
        case _:
            raise NotImplementedError(f"no sample of {info}")


def plain(event: Event) -> Any:
    """As an outsider reads it: dicts and lists."""
    return msgspec.json.decode(msgspec.json.encode(event))
