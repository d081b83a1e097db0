"""Parallel sizes in a container's command line, in the forms in which runtimes write them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

TENSOR_FLAGS = ("--tp-size", "--tp", "--tensor-parallel-size")
PIPELINE_FLAGS = ("--pp-size", "--pp", "--pipeline-parallel-size")
DATA_FLAGS = ("--dp-size", "--dp", "--data-parallel-size")

# With it the data-parallel replicas of attention share the accelerators of the tensor-parallel group.
SHARED_DATA_FLAG = "--enable-dp-attention"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag as it is written."""

    name: str
    value: str | None
    """`None` for a flag without a value."""


def flags_of(arguments: Sequence[str]) -> tuple[Flag, ...]:
    """Return the flags of `args` or `command`, also those inside a shell script."""
    return tuple(_flags(list(_tokens(arguments))))


def flag_value(flags: Sequence[Flag], names: Sequence[str]) -> str | None:
    """Return the text of the first of these flags that is given, in the order of `names`."""
    for name in names:
        for flag in flags:
            if flag.name == name and flag.value is not None:
                return flag.value
    return None


def size_of(flags: Sequence[Flag], names: Sequence[str]) -> int | None:
    """Return a parallel size, `None` where it is absent or only known at run time (`$(PARALLELISM_SIZE)`)."""
    text = flag_value(flags, names)
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,6}", text) and int(text) > 0 else None


def is_multi_line(arguments: Sequence[str]) -> bool:
    """Tell whether OME takes the list for a script in several lines."""
    return bool(arguments) and ("\n" in arguments[0] or "\\" in arguments[0])


def _tokens(arguments: Sequence[str]) -> Iterator[str]:
    for argument in arguments:
        if argument.startswith("-") and not re.search(r"\s", argument):
            yield argument
        else:
            yield from argument.replace("\\\n", " ").split()


def _flags(tokens: list[str]) -> Iterator[Flag]:
    for position, token in enumerate(tokens):
        if not token.startswith("--"):
            continue
        name, equals, value = token.partition("=")
        if equals:
            yield Flag(name, value.strip("'\""))
            continue
        following = tokens[position + 1] if position + 1 < len(tokens) else None
        yield Flag(name, None if following is None or following.startswith("--") else following.strip("'\""))
