"""Log lines with fields, as text for people or JSON for machines, in UTC."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def set_up_logs(
    level: str, form: Literal["text", "json"], *, stream: TextIO | None = None
) -> logging.Handler:
    """Send all log records to `stream` (standard error) and return the handler, so that a test can take it away."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Its INFO tells of each run of each job, and its warning of a late one is told by our own metrics.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    # It warns of each retry, which this product's own edge counts and words.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    return handler


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, default=str)


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={_quoted(value)}" for name, value in _fields(record).items())
        message = record.getMessage()
        # A library's message may hold what a server said; it stays one line.
        message = message if message.isprintable() else json.dumps(message)
        line = f"{_time(record)} {record.levelname.lower():<7} {message} {fields}".rstrip()
        if record.exc_info:
            line += "\n" + "".join(traceback.format_exception(*record.exc_info))
        return line


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _quoted(value: object) -> str:
    """Return the value in one word, or as a JSON string, so that no name from a driver can forge a line."""
    text = str(value)
    plain = text != "" and text.isprintable() and not any(character in text for character in ' "=')
    return text if plain else json.dumps(text)
