"""The timer: one job at a fixed interval, never twice at once, never dropped. The only module that imports `apscheduler`.

APScheduler reckons by the wall clock; `Timer.tend` watches it by the monotonic one, so that a clock that is set back
does not stop the job.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

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
        self._running = False
        self._idle = threading.Event()
        self._idle.set()
        self.overruns = 0
        """Runs that outlasted the interval."""
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
            max_instances=1,
        )

    def start(self) -> None:
        """Start the timer's threads."""
        self._scheduler.start()

    def run_soon(self) -> None:
        """Run the job now; where it is running, once more right after."""
        # Noted before the look, so that a run that ends just now cannot miss it.
        self._again = True
        if self._running:
            return
        self._due = self._monotonic()
        self._scheduler.modify_job(_JOB, next_run_time=datetime.now(UTC))

    def run_in(self, seconds: float) -> None:
        """Make the next run `seconds` from now instead of at its time."""
        self._due = self._monotonic() + seconds
        self._scheduler.modify_job(_JOB, next_run_time=datetime.now(UTC) + timedelta(seconds=seconds))

    def wait(self, seconds: float) -> None:
        """Wait for a running job to end, but no longer than `seconds`."""
        self._idle.wait(seconds)

    def tend(self) -> None:
        """Run the job if the monotonic clock says that it was forgotten; to be called now and then."""
        late = self._monotonic() - self._due
        if not self._running and late > self._jitter + _GRACE_SECONDS:
            LOG.warning(
                "the timer fell behind, the wall clock was set", extra={"late_seconds": round(late, 1)}
            )
            self.run_soon()

    def stop(self) -> None:
        """Start no further run; a running one is not waited for."""
        self._scheduler.shutdown(wait=False)

    def _run(self) -> None:
        started = self._monotonic()
        self._again = False
        self._running = True
        self._idle.clear()
        # A job that asks for its next run in `run_in` moves this.
        self._due = started + self._interval
        try:
            self._job()
        except Exception as error:  # noqa: BLE001  # the outermost line of a pass: a bug must not end the timer
            self._failed(error)
        finally:
            self._running = False
            self._idle.set()
        if self._monotonic() - started > self._interval:
            self.overruns += 1
        while self._due <= self._monotonic():
            # The ticks that came while the job ran are passed over; it is the next one that must not be forgotten.
            self._due += self._interval
        if self._again:
            self._again = False
            self.run_soon()
