"""One event of each type: any that there may be (for hypothesis), and one that was stored when its form was settled.

``stored_v1.jsonl`` holds the latter as bytes that a log may hold for ever. ``python -m tests.events.stored`` appends what
is new: an event type, or a type in a form that no line has. Lines that are there never change.
"""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

import events
from events.envelope import encode_events

STORED = Path(__file__).with_name("stored_v1.jsonl")
EVENTS: tuple[type[msgspec.Struct], ...] = get_args(events.Event)


@cache
def any_of(form: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911
    """Everything of a type that may stand in an event."""
    origin, arguments = get_origin(form), get_args(form)
    if origin is Annotated:
        return any_of(arguments[0])
    if isinstance(form, type) and issubclass(form, msgspec.Struct):
        return st.builds(form, **{field.name: any_of(field.type) for field in msgspec.structs.fields(form)})
    if form is int:
        return st.integers(-(1 << 63), (1 << 63) - 1)
    if form is type(None):
        return st.none()
    if origin in (Union, UnionType):
        return st.one_of([any_of(argument) for argument in arguments])
    if origin is dict:
        return st.dictionaries(any_of(arguments[0]), any_of(arguments[1]), max_size=3)
    if origin is tuple and arguments[1:] == (...,):
        return st.lists(any_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(any_of(argument) for argument in arguments))
    return st.from_type(form)


def one_of(form: Any, name: str, numbers: itertools.count[int]) -> Any:  # noqa: PLR0911
    """The stored one: strings are their field's name, integers are counted."""
    origin, arguments = get_origin(form), get_args(form)
    if isinstance(form, type) and issubclass(form, msgspec.Struct):
        fields = msgspec.structs.fields(form)
        return form(**{field.name: one_of(field.type, field.name, numbers) for field in fields})
    if form is str:
        return name
    if form is int:
        return next(numbers)
    if form is bool:
        return True
    if origin in (Union, UnionType):
        return one_of(arguments[0], name, numbers)
    if origin is dict:
        return {name: one_of(arguments[1], name, numbers)}
    if origin is tuple and arguments[1:] == (...,):
        return (one_of(arguments[0], name, numbers),)
    if origin is tuple:
        return tuple(one_of(argument, name, numbers) for argument in arguments)
    raise TypeError(f"no sample of {form} for {name}")


def is_current(line: bytes) -> bool:
    """Whether these stored bytes have the form of today: what is read from them is written alike."""
    return encode_events(_decoder.decode(line)) == line


def append_stored() -> None:
    """One line for each event type that no line has in its form of today."""
    lines = STORED.read_bytes().splitlines()
    known = {type(event) for line in lines if is_current(line) for event in _decoder.decode(line)}
    numbers = itertools.count(1)
    lines += [encode_events([one_of(event, event.__name__, numbers)]) for event in EVENTS if event not in known]
    STORED.write_bytes(b"\n".join(lines) + b"\n")


_decoder = msgspec.json.Decoder(list[events.Event])


if __name__ == "__main__":
    append_stored()
