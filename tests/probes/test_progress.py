"""The memory in which a child says what it is doing."""

import os
import time

from probes.forked import Progress


def test_the_current_call_is_told_with_its_start():
    progress = Progress()
    before = time.monotonic()
    progress.calls(3, "nvmlDeviceGetMemoryInfo_v2")
    started, device, call = progress.read()
    assert (device, call) == (3, "nvmlDeviceGetMemoryInfo_v2")
    assert before <= started <= time.monotonic()
    progress.calls(None, "nvmlShutdown")
    assert progress.read()[1:] == (None, "nvmlShutdown")


def test_a_reader_in_the_middle_of_a_write_never_sees_a_mixture():
    progress = Progress()
    began = time.monotonic()
    writer = os.fork()
    if writer == 0:
        end = began + 0.5
        while time.monotonic() < end:
            progress.calls(None, "a" * 60)
            progress.calls(1 << 30, "b" * 10)
        os._exit(0)
    seen = set()
    while os.waitpid(writer, os.WNOHANG) == (0, 0):
        started, device, call = progress.read()
        # Clocks of two processors may differ by some microseconds.
        assert began - 0.01 <= started <= time.monotonic() + 0.01
        seen.add((device, call))
    assert seen <= {(None, "a" * 60), (1 << 30, "b" * 10), (None, "files")}
    assert len(seen) > 1
