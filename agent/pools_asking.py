"""How one endpoint of a pool is asked: its metrics, and its models only where they could decide."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from agent.core.pools.engines import EngineTable, family_names
from agent.core.pools.lora import Model, asks_models
from agent.core.pools.report import Look
from agent.core.pools.serving import Reading, Refusal, serving_of
from agent.core.pools.views import PoolPod

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint to ask."""

    pod: PoolPod
    port: int

    @property
    def key(self) -> tuple[str, int]:
        """Return what its look is kept under."""
        return self.pod.uid, self.port


class EndpointReader(Protocol):
    """Asks pods; every request is bounded, and what goes wrong is a `Refusal`."""

    def readings(self, address: str, port: int, names: Collection[str]) -> tuple[Reading, ...] | Refusal:
        """Return the series of these families."""
        ...

    def models(self, address: str, port: int) -> tuple[Model, ...] | Refusal:
        """Return what the server lists as its models."""
        ...

    def each(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield `function` of each item in order, a few at a time."""
        ...


def look_at(target: Target, reader: EndpointReader, table: EngineTable) -> Look:
    """Ask one endpoint; its pod must run and have an address."""
    address = target.pod.address or ""
    readings = reader.readings(address, target.port, family_names(table))
    serving = readings if isinstance(readings, Refusal) else serving_of(readings, table)
    if isinstance(serving, Refusal) or not asks_models(serving, target.pod.told, table):
        return Look(serving=serving)
    return Look(serving=serving, models=reader.models(address, target.port))


def looks_at(
    targets: Iterable[Target], reader: EndpointReader, table: EngineTable
) -> Iterator[tuple[Target, Look]]:
    """Yield each target with what came of asking it."""
    return reader.each(lambda target: (target, look_at(target, reader, table)), targets)


def targets_of(pods: Iterable[tuple[PoolPod, tuple[int, ...]]]) -> tuple[Target, ...]:
    """Return the endpoints that can be asked: of pods that run and have an address, each once."""
    found = {
        (pod.uid, port): Target(pod, port)
        for pod, ports in pods
        if pod.running and pod.address
        for port in ports
    }
    return tuple(found.values())
