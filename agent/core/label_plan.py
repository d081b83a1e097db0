"""A Node as it is and the labels it should have → what to send, and what to leave alone."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent.core.keys import AGENT_MANAGER, is_ours
from agent.core.ownership import LABELS, other_owners, owned_label_keys, owners

NOBODY = "before-first-apply"
"""The manager that the server invents at the first apply after the bookkeeping was lost, for all that was there."""

DELETIONS_TO_YIELD = 3
DELETIONS_WINDOW_SECONDS = 600.0
FIRST_YIELD_SECONDS = 600.0
LONGEST_YIELD_SECONDS = 6 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPlan:
    """One apply to a Node's labels."""

    apply: Mapping[str, str]
    """Exactly the keys to apply: what is left out here and owned by us goes."""
    needed: bool
    """Whether the live Node differs, so that there is anything to send."""
    rivals: Mapping[str, str] = field(default_factory=dict)
    """Keys that another manager owns, each with its name; they are left to it."""
    orphans: Sequence[str] = ()
    """Keys under our domains that nobody owns; they are removed by name, before the apply makes those anew that are wanted.

    Applied over, they would be owned by `NOBODY` beside us, which is for ever: an agent may not change another's entry.
    """


def plan_labels(node: Mapping[str, Any], desired: Mapping[str, str], *, domains: Sequence[str]) -> LabelPlan:
    """Return what to send so that the Node's labels become `desired`.

    `domains` are the present label domain and the former ones: keys under them that nobody owns (the bookkeeping was
    lost) and that are not desired are ours to remove. A key that another manager owns is left to it, whatever its value.
    """
    live: Mapping[str, str] = node["metadata"].get("labels") or {}
    others = {key: _others(node, key, domains) for key in {*live, *desired}}
    rivals = {key: others[key][0] for key in desired if others[key]}
    apply = {key: value for key, value in desired.items() if key not in rivals}
    owned = owned_label_keys(dict(node), AGENT_MANAGER)
    differs = any(live.get(key) != value for key, value in apply.items())
    orphans = tuple(
        key
        for key in sorted(live)
        if _under(key, domains)
        and key not in owned
        and not others[key]
        and (key not in desired or not owners(dict(node), (*LABELS, key)))
    )
    return LabelPlan(apply=apply, needed=differs or owned != set(apply), rivals=rivals, orphans=orphans)


def _others(node: Mapping[str, Any], key: str, domains: Sequence[str]) -> list[str]:
    """Return who else owns a label; of a key under our domains whose bookkeeping was lost, that is nobody."""
    managers = other_owners(dict(node), (*LABELS, key), AGENT_MANAGER)
    return [manager for manager in managers if manager != NOBODY or not _under(key, domains)]


def _under(key: str, domains: Sequence[str]) -> bool:
    return any(is_ours(key, domain) for domain in domains)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """The memory of a rival that deletes our keys: three deletions in ten minutes and we yield, longer each time."""

    applied: frozenset[str] = frozenset()
    """Keys that the server held after our last apply."""
    deletions: tuple[float, ...] = ()
    """Monotonic times at which keys were found gone."""
    yield_until: float | None = None
    yield_seconds: float = FIRST_YIELD_SECONDS

    def yielding(self, monotonic: float) -> bool:
        """Tell whether labels are left alone for now."""
        return self.yield_until is not None and monotonic < self.yield_until


def contention_after_read(
    contention: Contention, live: Mapping[str, str], monotonic: float, *, same_node: bool
) -> Contention:
    """Return the memory after a look at the live labels; a Node that was made again lost its labels to nobody."""
    gone = contention.applied - live.keys()
    if not same_node:
        return replace(contention, applied=frozenset())
    if not gone or contention.yielding(monotonic):
        return contention
    recent = [at for at in contention.deletions if monotonic - at <= DELETIONS_WINDOW_SECONDS]
    recent.append(monotonic)
    if len(recent) < DELETIONS_TO_YIELD:
        return replace(contention, deletions=tuple(recent), applied=contention.applied - gone)
    return replace(
        contention,
        deletions=(),
        applied=frozenset(),
        yield_until=monotonic + contention.yield_seconds,
        yield_seconds=min(2 * contention.yield_seconds, LONGEST_YIELD_SECONDS),
    )


def former_keys_kept(
    node: Mapping[str, Any], refused: Collection[str], domains: Sequence[str]
) -> dict[str, str]:
    """Return the labels under former domains that stay because their successors were refused.

    A policy that does not know the present domain yet must not cost a Node the labels that it has.
    """
    present, *former = domains
    live: Mapping[str, str] = node["metadata"].get("labels") or {}
    owned = owned_label_keys(dict(node), AGENT_MANAGER)
    heads = [(key.partition("/")[0].removesuffix(present), key.partition("/")[2]) for key in refused]
    keys = {f"{group}{domain}/{name}" for group, name in heads for domain in former}
    return {key: live[key] for key in sorted(keys & owned & live.keys())}


FIRST_DENIAL_SECONDS = 600.0
LONGEST_DENIAL_SECONDS = 6 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """One label that the server would not take, and until when it is not tried again."""

    value: str
    why: str
    until: float
    """Monotonic seconds."""
    seconds: float = FIRST_DENIAL_SECONDS


Denials = Mapping[str, Denial]
"""Key → its denial. Without this memory each pass would send twice what is refused the first time."""


def held_back(denials: Denials, desired: Mapping[str, str], monotonic: float) -> dict[str, str]:
    """Return the keys that are not tried now, each with why; another value is tried at once."""
    return {
        key: denial.why
        for key, denial in denials.items()
        if monotonic < denial.until and desired.get(key) == denial.value
    }


def denials_after(
    denials: Denials, desired: Mapping[str, str], left_out: Mapping[str, str], monotonic: float
) -> dict[str, Denial]:
    """Return the memory after an apply in which these keys were refused; each time it waits longer."""
    after = {key: denial for key, denial in denials.items() if desired.get(key) == denial.value}
    for key, why in left_out.items():
        if key not in desired:
            continue
        before = after.get(key)
        seconds = FIRST_DENIAL_SECONDS if before is None else min(2 * before.seconds, LONGEST_DENIAL_SECONDS)
        after[key] = Denial(value=desired[key], why=why, until=monotonic + seconds, seconds=seconds)
    return after
