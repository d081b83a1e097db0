"""Lines of bytes through a pipe."""

import os
from collections.abc import Sequence

MAX_BYTES = 1 << 20
"""A child or host that tells more than this is ended: no machine has so much to say."""


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, in as many pieces as the pipe wants."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def whole_lines(buffer: bytearray) -> Sequence[bytes]:
    """Take the complete lines out of the buffer, leaving the rest in it."""
    end = buffer.rfind(b"\n") + 1
    lines = bytes(buffer[:end]).splitlines(keepends=True)
    del buffer[:end]
    return lines
