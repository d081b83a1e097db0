"""The timer: never twice at once, never dropped, never held up by a clock that was set, and its overruns counted."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from agent.edges.scheduling import Timer

LONG = 3600.0


class Job:
    """Counts its runs; `hold` keeps one running until `go`."""

    def __init__(self):
        self.runs = 0
        self.started = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()
        self.at_once = 0
        self.most_at_once = 0
        self.inside = lambda: None

    def __call__(self):
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.runs += 1
        self.started.release()
        self.go.wait(5)
        self.inside()
        self.at_once -= 1

    def hold(self):
        self.go.clear()

    def await_run(self, seconds=5.0):
        assert self.started.acquire(timeout=seconds), "no run was started"

    def no_run(self, seconds=0.05):
        return not self.started.acquire(timeout=seconds)


def _forget(_: Exception) -> None:
    """Tell nobody."""


class Clock:
    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def job():
    return Job()


@pytest.fixture
def start(job, clock):
    """`start(**options)` returns a running timer; all are stopped with the test."""
    running = []

    def begin(**options):
        told = {"interval_seconds": LONG, "failed": _forget, "monotonic": clock, **options}
        timer = Timer(job, **told)
        running.append(timer)
        timer.start()
        return timer

    yield begin
    job.go.set()
    for timer in running:
        timer.stop()
        timer.wait(2.0)


def test_the_first_run_comes_at_once(start, job):
    start()
    job.await_run()
    assert job.no_run()


def test_the_first_run_may_be_put_off(start, job):
    start(first_delay_seconds=LONG)
    assert job.no_run()


def test_runs_follow_at_the_interval(start, job):
    start(interval_seconds=0.05)
    for _ in range(4):
        job.await_run()


def test_fr_118_never_two_at_once_and_the_overrun_is_counted(start, job, clock):
    job.hold()
    timer = start(interval_seconds=0.02)
    job.await_run()
    assert job.no_run(0.1)
    clock.seconds += 70.0
    job.go.set()
    job.await_run()
    timer.stop()
    timer.wait(2.0)
    assert job.most_at_once == 1
    assert timer.overruns == 1


def test_fr_118_after_an_overrun_the_next_tick_is_not_taken_for_forgotten(start, job, clock, caplog):
    job.hold()
    timer = start()
    job.await_run()
    clock.seconds += LONG + 70.0
    job.go.set()
    timer.wait(2.0)
    _until(lambda: timer.overruns == 1)
    timer.tend()
    assert job.no_run()
    assert caplog.records == []
    clock.seconds += LONG
    timer.tend()
    job.await_run()


def test_fr_115_a_run_that_is_late_is_made_once(start, job):
    timer = start(first_delay_seconds=LONG)
    # As after ten minutes of suspension: many ticks have passed, the last due time lies far back.
    for _ in range(3):
        timer.run_in(-600.0)
    job.await_run()
    assert job.no_run()


def test_fr_115_a_gap_of_more_than_two_intervals_is_counted(start, job, clock):
    timer = start()
    job.await_run()
    timer.wait(2.0)
    for seconds, gaps in ((2 * LONG, 0), (2 * LONG + 1.0, 1), (LONG, 1)):
        clock.seconds += seconds
        timer.run_soon()
        job.await_run()
        timer.wait(2.0)
        _until(lambda gaps=gaps: timer.gaps == gaps)


@pytest.mark.parametrize(
    "before", [datetime(2026, 3, 8, 9, 59, 50, tzinfo=UTC), datetime(2026, 11, 1, 8, 59, 50, tzinfo=UTC)]
)
def test_fr_117_the_change_of_summer_time_makes_no_interval_longer(monkeypatch, start, before):
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    trigger = start(interval_seconds=30.0)._scheduler.get_jobs()[0].trigger
    assert trigger.get_next_fire_time(before, before) - before == timedelta(seconds=30)


def test_fr_117_the_timer_reckons_in_utc(monkeypatch, start):
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    assert start()._scheduler.timezone is UTC


def test_a_clock_that_is_set_back_does_not_stop_the_job(start, job, clock, caplog):
    timer = start(interval_seconds=LONG, jitter_seconds=5.0)
    job.await_run()
    timer.wait(2.0)
    # The wall clock stands still for the scheduler, as if set back; the monotonic one goes on.
    for late in (0.0, 6.9):
        clock.seconds = 1000.0 + LONG + late
        timer.tend()
        assert job.no_run(0.02)
    clock.seconds = 1000.0 + LONG + 7.1
    timer.tend()
    job.await_run()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_tending_a_timer_that_is_in_time_does_nothing(start, job, clock, caplog):
    timer = start()
    job.await_run()
    timer.wait(2.0)
    clock.seconds += LONG - 1.0
    timer.tend()
    assert job.no_run()
    assert caplog.records == []


def test_tending_while_a_run_takes_long_starts_no_other(start, job, clock):
    job.hold()
    timer = start()
    job.await_run()
    clock.seconds += 10 * LONG
    timer.tend()
    assert job.no_run()


def test_a_run_can_be_asked_for_at_any_time(start, job):
    timer = start()
    job.await_run()
    timer.wait(2.0)
    timer.run_soon()
    job.await_run()


def test_a_run_that_is_asked_for_during_a_run_follows_it_once(start, job):
    job.hold()
    timer = start()
    job.await_run()
    for _ in range(3):
        timer.run_soon()
    assert job.no_run()
    job.go.set()
    job.await_run()
    timer.wait(2.0)
    assert job.no_run()
    assert job.most_at_once == 1


def test_a_job_may_put_its_next_run_off_or_bring_it_forward(start, job):
    job.hold()
    timer = start()
    times = [0.0]
    job.inside = lambda: timer.run_in(times.pop()) if times else None
    job.go.set()
    job.await_run()
    job.await_run()
    assert job.no_run()


def test_what_a_job_raises_is_told_and_the_next_run_comes(start, job):
    errors = []
    timer = start(interval_seconds=0.02, failed=errors.append)

    def break_once():
        job.inside = lambda: None
        raise KeyError("a bug")

    job.inside = break_once
    for _ in range(3):
        job.await_run()
    timer.stop()
    assert [type(error) for error in errors] == [KeyError]


def test_a_stop_starts_no_further_run_and_waits_for_none(start, job):
    job.hold()
    timer = start(interval_seconds=0.02)
    job.await_run()
    timer.stop()
    timer.wait(0.01)
    job.go.set()
    timer.wait(2.0)
    assert job.no_run()


def test_jitter_spreads_the_runs_of_many(clock):
    timers = [
        Timer(
            lambda: None,
            interval_seconds=60.0,
            jitter_seconds=6.0,
            failed=_forget,
            monotonic=clock,
        )
        for _ in range(20)
    ]
    times = set()
    for timer in timers:
        timer._scheduler.start(paused=True)
        trigger, first = (
            timer._scheduler.get_job("pass").trigger,
            timer._scheduler.get_job("pass").next_run_time,
        )
        after = trigger.get_next_fire_time(first, first)
        times.add((after - first).total_seconds())
        timer.stop()
    assert len(times) == 20
    assert all(54.0 <= seconds <= 66.0 for seconds in times)


def _until(found, seconds=2.0):
    waiting = threading.Event()
    for _ in range(int(seconds / 0.005)):
        if found():
            return
        waiting.wait(0.005)
    raise AssertionError("did not come about")
