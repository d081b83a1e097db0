"""Architecture versions, compared by their parts: 10.0 is above 9.0, and `sm_90`, `90`, `9` and `9.0a` are all 9.0."""

import re
from typing import Literal

Version = tuple[int, ...]

_NUMERIC = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,4}){0,2})([af]?)")
_SM = re.compile(r"(?:sm|compute)[_-]?([0-9]{2,3})([af]?)")
_OTHER = re.compile(r"[a-z][a-z0-9._-]*[0-9][a-z0-9._-]*")

# A bare number from here on is an SM number: no capability has a major this high, and sm_30 is the oldest in use.
_FIRST_SM = 30


def parse_version(text: str) -> Version | str | None:
    """Return the numbers of an NVIDIA capability, the word of another vendor's (`gfx942`), `None` for neither."""
    word = text.strip().lower()
    if sm := _SM.fullmatch(word):
        return _from_sm(sm[1])
    if plain := _NUMERIC.fullmatch(word):
        number = plain[1]
        if "." not in number and int(number) >= _FIRST_SM:
            return _from_sm(number)
        return _trimmed(tuple(int(part) for part in number.split(".")))
    return word if _OTHER.fullmatch(word) else None


def compare_versions(
    found: Version | str, required: Version | str
) -> Literal["below", "reached", "incomparable"]:
    """Tell whether `found` reaches `required`; words reach only themselves, and numbers say nothing of words."""
    if isinstance(found, str) or isinstance(required, str):
        return "reached" if found == required else "incomparable"
    return "reached" if found >= required else "below"


def _from_sm(digits: str) -> Version:
    """Read ten times the capability: the last digit is the minor number."""
    return _trimmed((int(digits[:-1]), int(digits[-1])))


def _trimmed(parts: Version) -> Version:
    """Drop zeros at the end, so that 9 and 9.0 are equal."""
    while len(parts) > 1 and parts[-1] == 0:
        parts = parts[:-1]
    return parts
