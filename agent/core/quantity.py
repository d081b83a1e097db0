"""Kubernetes quantities: exact values, and the spelling that a typed Go client gives back.

Written here because the Kubernetes client's own parser cannot be imported without the client, which the core may not
have; a test holds the two equal.
"""

import re
from decimal import ROUND_CEILING, ROUND_UP, Context, Decimal

_PATTERN = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]{1,3}))?")
"""The grammar of a quantity. An exponent of more than three digits is a mistake, not a size."""

_MAX_TEXT = 64

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIX = {power: suffix for suffix, power in _BINARY.items()} | {0: ""}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}

# Go caps every quantity at the largest 64-bit integer, and knows nothing below one billionth.
_LARGEST = Decimal(2**63 - 1)
_SMALLEST_STEP = Decimal("1e-9")

# 64 digits of text times 1024^6 never need more; the default of 28 digits would round.
_EXACT = Context(prec=2048)


class InvalidQuantityError(ValueError):
    """The value is not a Kubernetes quantity; the message says why."""


def parse_quantity(value: object) -> Decimal:
    """Return the exact value of a quantity as it stands in JSON: text, or a whole number.

    Raises `InvalidQuantityError` for anything else, with what to write instead where that is plain.
    """
    sign, number, suffix, exponent = _parts(value)
    magnitude = Decimal(number)
    if suffix in _BINARY:
        magnitude = _EXACT.multiply(magnitude, Decimal(1024 ** _BINARY[suffix]))
    else:
        magnitude = magnitude.scaleb(_DECIMAL[suffix] + exponent, _EXACT)
    return -magnitude if sign == "-" else magnitude


def canonical_quantity(value: object) -> str:
    """Return the spelling that a quantity has after a typed Go client read and wrote it.

    A publisher that writes this spelling is not overruled by such a rewrite. Raises `InvalidQuantityError`.
    """
    _, _, suffix, _ = _parts(value)
    amount = parse_quantity(value)
    amount = max(min(amount, _LARGEST), -_LARGEST)
    amount = amount.quantize(_SMALLEST_STEP, rounding=ROUND_UP, context=_EXACT)
    if amount == 0:
        return "0"
    whole = amount == amount.to_integral_value()
    if suffix in _BINARY and whole and abs(amount) >= 1024:
        return _in_steps(int(amount), 1024, 1, _BINARY_SUFFIX)
    with_exponent = isinstance(value, str) and re.search(r"[eE][+-]?[0-9]+$", value) is not None
    return _decimal_spelling(amount, with_exponent=with_exponent)


def whole_value(value: object) -> int:
    """Return the quantity as Go's `Value()` gives it: the next whole number up. Raises `InvalidQuantityError`."""
    return int(parse_quantity(value).to_integral_value(rounding=ROUND_CEILING))


def has_unit(value: object) -> bool:
    """Tell whether the text of a quantity ends in a suffix such as `Gi` or `G`. Raises `InvalidQuantityError`."""
    return bool(_parts(value)[2])


def is_binary(value: object) -> bool:
    """Tell whether the suffix of a quantity is a power of 1024. Raises `InvalidQuantityError`."""
    return _parts(value)[2] in _BINARY


def _parts(value: object) -> tuple[str, str, str, int]:
    """Return sign, number, suffix and exponent."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        kind = type(value).__name__
        raise InvalidQuantityError(
            f"{value!r:.40} is a {kind}; write a quantity such as 80Gi, a fraction in quotes"
        )
    text = str(value)
    if len(text) > _MAX_TEXT:
        raise InvalidQuantityError(f"{text[:20]!r}… is {len(text)} characters long, which no quantity is")
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise InvalidQuantityError(_why_malformed(text))
    sign, number, suffix, exponent = found.groups()
    return sign, number, suffix or "", int(exponent or 0)


def _why_malformed(text: str) -> str:
    close = re.fullmatch(r"\s*([0-9.]+)\s*([KMGTPEkmgtpe])(i?)[bB]?\s*", text)
    if close is None or close[1].count(".") > 1:
        return f"{text!r} is not a quantity such as 80Gi"
    letter = close[2].upper() if close[3] or close[2] not in {"k", "m"} else close[2]
    letter = "k" if letter == "K" and not close[3] else letter
    return f"{text!r} is not a quantity: write {close[1]}{letter}{close[3]}"


def _decimal_spelling(amount: Decimal, *, with_exponent: bool) -> str:
    nano = int(amount.scaleb(9, _EXACT))
    if not with_exponent:
        return _in_steps(nano, 1000, 3, _DECIMAL_SUFFIX, start=-9)
    suffixes = {power: f"e{power}" if power else "" for power in range(-9, 22, 3)}
    return _in_steps(nano, 1000, 3, suffixes, start=-9)


def _in_steps(number: int, step: int, power: int, suffixes: dict[int, str], *, start: int = 0) -> str:
    """Divide by `step` while that leaves a whole number and a suffix exists."""
    reached = start
    while number % step == 0 and reached + power in suffixes:
        number //= step
        reached += power
    return f"{number}{suffixes[reached]}"
