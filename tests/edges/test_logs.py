"""Log lines: one event a line, with fields that no text from outside can forge."""

import io
import json
import logging

import pytest

from agent.edges.logs import set_up_logs

NASTY = 'a b="c"\nINFO forged \x1b[31m'


@pytest.fixture
def lines(request):
    """What the log holds after the test has written to it, in the form that the test names."""
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    libraries = {name: logging.getLogger(name).level for name in ("apscheduler", "urllib3")}
    set_up_logs("info", request.param, stream=stream)
    yield lambda: stream.getvalue().splitlines()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in libraries.items():
        logging.getLogger(name).setLevel(before)


LOG = logging.getLogger("agent.test")


@pytest.mark.parametrize("lines", ["text"], indirect=True)
def test_a_line_of_text_has_its_time_in_utc_its_level_and_its_fields(lines):
    LOG.warning("probe failed", extra={"verdict": "no-answer", "count": 3, "empty": "", "why": "it hangs"})
    [line] = lines()
    time, rest = line.split(" ", 1)
    assert time.endswith("Z")
    assert rest == 'warning probe failed verdict=no-answer count=3 empty="" why="it hangs"'


@pytest.mark.parametrize("lines", ["text"], indirect=True)
def test_no_value_forges_a_line_of_text(lines):
    LOG.info("device", extra={"product": NASTY})
    [line] = lines()
    assert json.loads(line.split("product=", 1)[1]) == NASTY
    assert "\x1b" not in line


@pytest.mark.parametrize("lines", ["json"], indirect=True)
def test_a_line_of_json_is_one_object(lines):
    LOG.info("device", extra={"product": NASTY, "count": 3, "odd": {1, 2}.__class__})
    [line] = lines()
    found = json.loads(line)
    assert (found["message"], found["level"], found["logger"]) == ("device", "info", "agent.test")
    assert (found["product"], found["count"]) == (NASTY, 3)
    assert found["time"].endswith("Z")


@pytest.mark.parametrize("lines", ["text", "json"], indirect=True)
def test_a_bug_is_logged_with_its_trace(lines):
    LOG.error("a pass failed", exc_info=KeyError("a bug"))
    assert "KeyError: 'a bug'" in "\n".join(lines())


@pytest.mark.parametrize("lines", ["text"], indirect=True)
def test_what_is_below_the_level_and_what_libraries_repeat_is_left_out(lines):
    LOG.debug("quiet")
    logging.getLogger("apscheduler.scheduler").warning("quiet")
    logging.getLogger("urllib3.connectionpool").warning("quiet")
    assert lines() == []


@pytest.mark.parametrize("lines", ["text"], indirect=True)
def test_a_message_of_several_lines_stays_one(lines):
    LOG.info("two\nlines")
    assert len(lines()) == 1
