"""Structured logs: one line for each record on stderr, JSON for machines, text for people at a terminal."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

SHORTEST = 4
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""What every record has, and what a formatter adds; the rest came in as `extra`."""


_hidden: list[str] = []
"""What no line shows."""


def hide(secrets: Iterable[str]) -> None:
    """From here on, in every text that a call passes. What is shorter than four characters hides nothing."""
    _hidden[:] = sorted({secret for secret in secrets if len(secret) >= SHORTEST}, key=len, reverse=True)


def _without_secrets(text: str) -> str:
    for secret in _hidden:
        text = text.replace(secret, "***")
    return text


def configure(service: str, cluster: str, level: str = "info", style: str = "auto") -> None:
    """Takes over the root logger. `style`: auto (text on a terminal, else JSON), json, text."""
    as_json = style == "json" or (style == "auto" and not sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service, cluster) if as_json else TextFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)


class JsonFormatter(logging.Formatter):
    """``{"time": …, "level": "warning", "service": "feed", "cluster": "prod", "message": …, …}``."""

    def __init__(self, service: str, cluster: str) -> None:
        super().__init__()
        self._origin = {"service": service, "cluster": cluster}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._origin,
            "message": _without_secrets(record.getMessage()),
            "logger": record.name,
            **_fields(record),
        }
        if record.exc_info:
            line["error"] = _without_secrets(self.formatException(record.exc_info))
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except UnicodeEncodeError:  # a file's name need not be UTF-8
            return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """``12:00:01.250 feed WARNING set aside place=17``."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        text = f"{time} {self._service} {record.levelname} {_without_secrets(record.getMessage())}{fields}"
        if record.exc_info:
            text += f"\n{_without_secrets(self.formatException(record.exc_info))}"
        return "\n".join(map(printable, text.split("\n")))


def printable(line: str) -> str:
    """Escaped where a terminal would do something else than show it: names in a log may be what somebody thought of."""
    return line if line.isprintable() else repr(line)[1:-1]


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {
        name: _without_secrets(value) if isinstance(value, str) else value
        for name, value in vars(record).items()
        if name not in _STANDARD
    }
