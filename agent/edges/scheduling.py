"""The timer: one job at a fixed interval, never twice at once, never dropped. The only module that imports `apscheduler`.

APScheduler reckons by the wall clock; `Timer.tend` watches it by the monotonic one, so that a clock that is set back
does not stop the job.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler

LOG = logging.getLogger(__name__)
_JOB = "pass"

# The job counts as forgotten when it is this much later than its interval and jitter allow.
_GRACE_SECONDS = 2.0


class Timer:
    """Runs `job` at once, then every `interval_seconds`, in a thread of its own.

    A late run is made once, however many were missed. `failed` is told what the job raised: APScheduler itself would
    swallow it.
    """

    def __init__(
        self,
        job: Callable[[], None],
        *,
        interval_seconds: float,
        failed: Callable[[Exception], None],
        first_delay_seconds: float = 0.0,
        jitter_seconds: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._failed = failed
        self._interval = interval_seconds
        self._jitter = jitter_seconds
        self._monotonic = monotonic
        self._due = monotonic() + first_delay_seconds
        self._again = False
        self._asked = False
        self._turn = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self.overruns = 0
        """Runs that outlasted the interval."""
        self.gaps = 0
        """Times that no run was made for more than two intervals."""
        self._ended: float | None = None
        self._scheduler = BackgroundScheduler(timezone=UTC)
        self._scheduler.add_job(
            self._run,
            "interval",
            id=_JOB,
            seconds=interval_seconds,
            jitter=jitter_seconds or None,
            # Without it the first run comes one interval late.
            next_run_time=datetime.now(UTC) + timedelta(seconds=first_delay_seconds),
            # The default drops a run that starts a second late.
            misfire_grace_time=None,
            coalesce=True,
            # Runs are kept apart here: to APScheduler one has not ended while it asks for the next, and with one alone
            # allowed it would drop that.
            max_instances=3,
        )

    def start(self) -> None:
        """Start the timer's threads."""
        self._scheduler.start()

    def run_soon(self) -> None:
        """Run the job now; where it is running, once more right after."""
        # Noted before the look, so that a run that ends just now cannot miss it.
        self._again = True
        if not self._turn.locked():
            self._set(0.0)

    def run_in(self, seconds: float) -> None:
        """Make the next run `seconds` from now instead of at its time."""
        self._asked = True
        self._set(seconds)

    def wait(self, seconds: float) -> None:
        """Wait for a running job to end, but no longer than `seconds`."""
        self._idle.wait(seconds)

    def tend(self) -> None:
        """Run the job if the monotonic clock says that it was forgotten; to be called now and then."""
        late = self._monotonic() - self._due
        if not self._turn.locked() and late > self._jitter + _GRACE_SECONDS:
            LOG.warning(
                "the timer fell behind, the wall clock was set", extra={"late_seconds": round(late, 1)}
            )
            self.run_soon()

    def stop(self) -> None:
        """Start no further run; a running one is not waited for. A second stop does nothing."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def _set(self, seconds: float) -> None:
        self._due = self._monotonic() + seconds
        with suppress(JobLookupError):  # stopped meanwhile
            self._scheduler.modify_job(_JOB, next_run_time=datetime.now(UTC) + timedelta(seconds=seconds))

    def _run(self) -> None:
        if not self._turn.acquire(blocking=False):
            return
        started = self._monotonic()
        if self._ended is not None and started - self._ended > 2 * self._interval + self._jitter:
            self.gaps += 1
            LOG.warning("nothing ran for long", extra={"seconds": round(started - self._ended, 1)})
        self._again = self._asked = False
        self._idle.clear()
        # A job that asks for its next run in `run_in` moves this.
        self._due = started + self._interval
        try:
            self._job()
        except Exception as error:  # noqa: BLE001  # the outermost line of a pass: a bug must not end the timer
            self._failed(error)
        finally:
            self._turn.release()
            self._idle.set()
        self._after(started)

    def _after(self, started: float) -> None:
        """Count an overrun, and see to what was asked for while the job ran."""
        now = self._ended = self._monotonic()
        if now - started > self._interval:
            self.overruns += 1
        if self._again or (self._asked and self._due <= now):
            self.run_soon()
            return
        while self._due <= now:
            # The ticks that came while the job ran are passed over; it is the next one that must not be forgotten.
            self._due += self._interval
