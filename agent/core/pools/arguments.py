"""A container's arguments → whether its server was told to take LoRA adapters.

That a flag is absent tells only where all arguments are seen: not behind a shell's variables, a file of flags, or an image
whose entrypoint may add some.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent.core.pools.engines import Engine, EngineTable

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_FALSE = frozenset({"false", "0", "no"})


@dataclass(frozen=True, slots=True)
class Told:
    """What a pod's arguments decide about one engine."""

    engine: str
    lora: Literal["on", "off"]
    evidence: str


@dataclass(frozen=True, slots=True)
class _Words:
    words: tuple[str, ...]
    whole: bool
    """Whether nothing else can reach the program."""


def lora_arguments(spec: Mapping[str, Any], table: EngineTable) -> tuple[Told, ...]:
    """Return what a pod's containers say for each engine; an engine is absent where they decide nothing."""
    found = []
    for engine in table.values():
        for container in spec.get("containers") or ():
            told = _told(container, engine)
            if told is not None:
                found.append(told)
                break
    return tuple(found)


def _told(container: Mapping[str, Any], engine: Engine) -> Told | None:
    if not engine.lora_on_flags:
        return None
    words = _words(container)
    name = container.get("name", "")
    state: Literal["on", "off"] | None = None
    for word in words.words:
        flag, equals, value = word.partition("=")
        flag = "--" + flag.removeprefix("--").replace("_", "-") if flag.startswith("--") else flag
        if flag in engine.lora_on_flags:
            state = "off" if equals and value.strip().lower() in _FALSE else "on"
        elif flag in engine.lora_off_flags:
            state = "off"
        else:
            continue
        evidence = f"the container {name} has the argument {word}"
    if state is not None:
        return Told(engine.name, state, evidence)
    if _is_all_of(words, container, engine):
        return Told(
            engine.name,
            "off",
            f"the container {name} starts {engine.name} without {' or '.join(sorted(engine.lora_on_flags))}",
        )
    return None


def _is_all_of(words: _Words, container: Mapping[str, Any], engine: Engine) -> bool:
    """Tell whether these are all the words that the engine's program is started with."""
    if not words.whole or any(word.partition("=")[0] in engine.config_flags for word in words.words):
        return False
    if any(_base(word) in engine.programs for word in words.words):
        return True
    own_entrypoint = not container.get("command") and _repository(container) in engine.images
    return own_entrypoint and bool(words.words)


def _words(container: Mapping[str, Any]) -> _Words:
    words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    whole = not _expands(words)
    if words and _base(words[0]) in _SHELLS:
        script = _script(words)
        try:
            words = shlex.split(script, comments=True)
        except ValueError:  # an open quote
            return _Words((), whole=False)
        whole = whole and bool(script) and "`" not in script
    return _Words(tuple(words), whole=whole)


def _script(words: Sequence[str]) -> str:
    """Return the text that a shell is given, empty where it is a file."""
    for position, word in enumerate(words[1:-1], start=1):
        if word.startswith("-") and word.endswith("c"):
            return words[position + 1]
    return ""


def _expands(words: Iterable[str]) -> bool:
    return any("$" in word for word in words)


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _repository(container: Mapping[str, Any]) -> str:
    """Return an image's repository without registry, tag and digest."""
    path = str(container.get("image", "")).partition("@")[0]
    parts = path.split("/")
    if len(parts) > 1 and ("." in parts[0] or ":" in parts[0] or parts[0] == "localhost"):
        parts = parts[1:]
    parts[-1] = parts[-1].partition(":")[0]
    return "/".join(parts)
