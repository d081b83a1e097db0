"""Endpoints whose KV cache is far from that of their peers: of the same class and engine, it should hold as many tokens."""

from collections.abc import Hashable, Iterable
from statistics import median

TOLERANCE = 0.2
"""A share of the median; servers of one kind differ by a few per cent, by what else is on the device."""

_FEWEST = 3
"""Of two that differ, neither is the odd one."""


def odd_endpoints(endpoints: Iterable[tuple[str, Hashable, int | None]]) -> tuple[tuple[str, str], ...]:
    """Return (name, how it differs) of each odd one of (name, group of peers, tokens); unknown tokens count nowhere."""
    groups: dict[Hashable, list[tuple[str, int]]] = {}
    for name, group, tokens in endpoints:
        if tokens is not None:
            groups.setdefault(group, []).append((name, tokens))
    return tuple(
        (name, f"its KV cache holds {tokens} tokens, its peers' {usual}")
        for members in groups.values()
        if len(members) >= _FEWEST
        for usual in [round(median(tokens for _, tokens in members))]
        for name, tokens in members
        if abs(tokens - usual) > TOLERANCE * usual
    )
