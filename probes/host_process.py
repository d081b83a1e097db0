"""The parent's side of the probe host: asks it, replaces it when it dies, and remembers what earlier probes taught."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from probes import findings
from probes.evidence import Evidence, node_facts
from probes.facts import Accelerator, NodeFacts, XidEvent
from probes.findings import Answered, Attempt, Finding, Listen, Ready, Request
from probes.spawned_host import HostGone, HostSilent, SpawnedHost

START_SECONDS = 20.0
"""Within which a host must say that it is ready: it imports a few modules, on a machine that may be busy."""

SILENCE_SHARE = 2.0
"""Share of the probe timeout after which the host itself has ended any child that hangs."""

_MARGIN_SECONDS = 5.0
_LONGEST_BACK_OFF_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unanswered:
    """A device that did not answer, to be left out until it is worth another try."""

    known: Accelerator
    tries: int
    retry_at: float


class ProbeHost:
    """One probe host and what its earlier probes taught.

    `clock` is monotonic seconds and times only the back-off of devices. `probe` is called from one thread at a time;
    `close` from any.
    """

    def __init__(
        self,
        spawned: SpawnedHost,
        *,
        clock: Callable[[], float] = time.monotonic,
        simulated: bool = False,
        stillborn: Callable[[], None] = lambda: None,
    ) -> None:
        """`spawned` need not be started yet; start it before the first thread.

        `stillborn` is called when a host ended before it was ready, and may raise what only the caller can tell.
        """
        self._spawned = spawned
        self._timeout = spawned.timeout_seconds
        self._clock = clock
        self._simulated = simulated
        self._stillborn = stillborn
        self._was_ready = False
        self._probing = threading.Lock()
        self._problem: str | None = None
        self._count = 0
        self._unanswered: dict[int, _Unanswered] = {}
        self._stuck: tuple[tuple[int, str], ...] = ()
        self._stuck_elsewhere: tuple[tuple[int, str], ...] = ()
        self._something_happened = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def stuck_children(self) -> int:
        """Return how many children could not be killed and were there after the last probe."""
        return len(self._stuck) + len(self._stuck_elsewhere)

    @property
    def pid(self) -> int | None:
        """Return the number of the host's process, `None` where there is none."""
        return self._spawned.pid

    def start(self) -> None:
        """Start the host if there is none; it gets ready while the caller does other things."""
        if self._spawned.start():
            self._was_ready = False

    def probe(self, cycle: int) -> NodeFacts:
        """Read the node; blocks up to about twice the timeout and never raises for trouble of the hardware."""
        facts, _ = self._probe(cycle, everything=False)
        return facts

    def probe_everything(self, cycle: int) -> tuple[NodeFacts, Evidence]:
        """Read the node and hear every answer of NVML, to more questions than facts need; blocks as `probe` does."""
        return self._probe(cycle, everything=True)

    def _probe(self, cycle: int, *, everything: bool) -> tuple[NodeFacts, Evidence]:
        with self._probing:
            started = time.monotonic()
            evidence = self._gather(replace(self._request(cycle), everything=everything))
            facts = node_facts(evidence, simulated=self._simulated)
            if self._problem is not None:
                facts = replace(facts, verdict="no-answer", reason="BindingUnsuitable", message=self._problem)
            self._learn(facts, evidence.attempts)
            return replace(facts, duration_seconds=time.monotonic() - started), evidence

    def close(self) -> None:
        """End the host and whatever it runs, at once; a probe in progress returns `no-answer`."""
        self._spawned.shut()
        idle = self._probing.acquire(blocking=False)
        if not idle:
            self._spawned.kill()
            # The thread that probes owns the pipes: it finds them at their end, and only then are they closed.
            self._probing.acquire()
        try:
            self._drop()
        finally:
            self._probing.release()
        self._spawned.hang_up()

    def listen(self, *, on: bool) -> None:
        """Have Xid events listened for, or not, once a running probe has ended; cheap to repeat after each probe.

        A listener keeps NVML open. It ends by itself when a GPU is lost, and the next call starts another.
        """
        order = Listen(on=on, leave_out=tuple(self._unanswered))
        # A host that is gone is noticed, and replaced, by the next probe.
        with self._probing, suppress(HostGone):
            self._spawned.write(findings.encode(findings.LISTEN, order))

    def events(self, timeout_seconds: float) -> tuple[XidEvent, ...]:
        """Wait for Xid events and return those that came; none when there were none in time or this is closed.

        Called from one thread, which may be another than the one that probes.
        """
        found = [findings.decode(line) for line in self._spawned.events(timeout_seconds)]
        events = tuple(event for event in found if isinstance(event, XidEvent))
        self._something_happened = self._something_happened or bool(events)
        return events

    def _request(self, cycle: int) -> Request:
        now = self._clock()
        self._stuck_elsewhere = tuple(
            (pid, started) for pid, started in self._stuck_elsewhere if findings.start_time(pid) == started
        )
        fresh, self._something_happened = self._something_happened, False
        due = tuple(index for index, device in self._unanswered.items() if device.retry_at <= now)
        return Request(
            cycle=cycle,
            leave_out=tuple(index for index in self._unanswered if index not in due),
            last=due,
            stuck_elsewhere=len(self._stuck_elsewhere),
            fresh=fresh,
        )

    def _gather(self, request: Request) -> Evidence:
        """Ask the host; one that dies is replaced and asked once more, for it may have died of something passing."""
        evidence = Evidence()
        for _ in range(2):
            evidence = Evidence(left_out={index: device.known for index, device in self._unanswered.items()})
            try:
                for finding in self._ask(request):
                    evidence.take(finding)
                    if isinstance(finding, Answered):
                        self._stuck = finding.stuck
                        evidence.attempts = finding.attempts
                        return evidence
            except HostGone:
                attempt = _attempt_of_dead_host(self._drop())
                if not self._was_ready and not self._spawned.closed:
                    self._stillborn()
                if self._spawned.closed:
                    # Half a probe says nothing of the devices that were not reached.
                    return Evidence(attempts=(Attempt(ended="dropped"),))
                evidence.attempts = (attempt,)
            except HostSilent:
                self._drop()
                evidence.attempts = (Attempt(ended="deadline", call=findings.HOST),)
                return evidence
        return evidence

    def _ask(self, request: Request) -> Iterator[Finding]:
        """Send the request and yield what comes back. Raises `HostGone` and `HostSilent`."""
        self.start()
        self._spawned.write(findings.encode(findings.REQUEST, request))
        for line in self._spawned.lines(SILENCE_SHARE * self._timeout + _MARGIN_SECONDS + START_SECONDS):
            try:
                finding = findings.decode(line)
            except ValueError as error:  # whatever else spoke there, it was not a host
                raise HostGone from error
            if isinstance(finding, Ready):
                self._problem, self._was_ready = finding.problem, True
            yield finding

    def _drop(self) -> int | None:
        """Forget the host and return how it ended; children that cannot be killed are remembered."""
        self._stuck_elsewhere, self._stuck = (*self._stuck_elsewhere, *self._stuck), ()
        return self._spawned.drop()

    def _learn(self, facts: NodeFacts, attempts: Sequence[Attempt]) -> None:
        """Remember the devices that did not answer, each longer than the last time; forget those that did."""
        self._something_happened = self._something_happened or facts.verdict != "complete"
        if not facts.accelerators:
            return
        if len(facts.accelerators) != self._count:
            # Indices name other devices now.
            self._unanswered.clear()
            self._count = len(facts.accelerators)
        asked_in_vain = {attempt.device for attempt in attempts if attempt.device is not None}
        now = self._clock()
        for device in facts.accelerators:
            earlier = self._unanswered.get(device.index)
            if device.index in asked_in_vain:
                tries = earlier.tries + 1 if earlier else 1
                wait = min(2.0**tries * self._timeout, _LONGEST_BACK_OFF_SECONDS)
                self._unanswered[device.index] = _Unanswered(known=device, tries=tries, retry_at=now + wait)
            elif earlier is not None and (device.fault is None or device.fault.kind != "no-answer"):
                del self._unanswered[device.index]


def _attempt_of_dead_host(status: int | None) -> Attempt:
    if status is not None and status < 0:
        return Attempt(ended="crash", call=findings.HOST, signal=-status)
    return Attempt(ended="crash", call=findings.HOST, exit_status=status)


def probe_once(
    command: Sequence[str], *, timeout_seconds: float = 30.0, cycle: int = 1, simulated: bool = False
) -> NodeFacts:
    """Start a host for one probe, for a command that runs and ends."""
    with ProbeHost(SpawnedHost(command, timeout_seconds=timeout_seconds), simulated=simulated) as host:
        return host.probe(cycle)


def probe_everything_once(
    command: Sequence[str], *, timeout_seconds: float = 30.0, cycle: int = 1, simulated: bool = False
) -> tuple[NodeFacts, Evidence]:
    """Start a host for one probe that hears every answer, for a command that runs and ends."""
    with ProbeHost(SpawnedHost(command, timeout_seconds=timeout_seconds), simulated=simulated) as host:
        return host.probe_everything(cycle)
