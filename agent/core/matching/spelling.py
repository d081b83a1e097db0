"""Names compared without case and separators, as whole words; and the nearest name for one that is not known."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

_SEPARATORS = re.compile(r"[^a-z0-9]+")
_VERSION_TAIL = re.compile(r"[-_. ]?[0-9]+$")


def normal(name: str) -> str:
    """Return a name in lower case without separators: `Tensor_Cores` and `tensor-cores` are one."""
    return _SEPARATORS.sub("", name.lower())


def words(name: str) -> frozenset[str]:
    """Return the whole words of a name, in lower case."""
    return frozenset(word for word in _SEPARATORS.split(name.lower()) if word)


def same_name(name: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` that is written like `name`, else the first that differs in case and separators alone."""
    candidates = list(names)
    if name in candidates:
        return name
    wanted = normal(name)
    return next((candidate for candidate in candidates if normal(candidate) == wanted), None)


def with_general(names: Iterable[str]) -> frozenset[str]:
    """Return features in normal form, and for a numbered one the feature itself: `nvlink-4` is an `nvlink`."""
    found = set()
    for name in names:
        found.add(normal(name))
        general = _VERSION_TAIL.sub("", name.lower())
        # A precision such as fp8 or int4 is a name of its own, not the eighth of `fp`.
        if general and re.search(r"[-_. ][0-9]+$", name):
            found.add(normal(general))
    return frozenset(found)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that was probably meant: one that shares all, then most whole words, then most letters."""
    candidates = sorted(set(names))
    wanted = words(name)
    holding = [candidate for candidate in candidates if wanted and wanted <= words(candidate)]
    if holding:
        return min(holding, key=lambda candidate: (len(words(candidate)), candidate))
    shared = [(len(wanted & words(candidate)), candidate) for candidate in candidates]
    most = max((count for count, _ in shared), default=0)
    if most >= 2:
        return next(candidate for count, candidate in shared if count == most)
    # Another number is another product, and so is another letter before it: h100 is no slip of a100's.
    numbered = _numbered(name)
    by_form = {normal(candidate): candidate for candidate in candidates if _numbered(candidate) == numbered}
    close = get_close_matches(normal(name), by_form, n=1, cutoff=0.75)
    return by_form[close[0]] if close else None


def _numbered(name: str) -> frozenset[str]:
    return frozenset(word for word in words(name) if any(letter.isdigit() for letter in word))


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean …?`, or nothing where no name is near."""
    near = nearest(name, names)
    return f"; did you mean {near}?" if near is not None and near != name else ""
