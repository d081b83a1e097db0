"""What Kubernetes accepts as label text and object names, and how free text is made to fit."""

import re
import unicodedata
from functools import lru_cache

MAX_LABEL_LENGTH = 63
_HASH_DIGITS = 8
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_UNFIT_RUN = re.compile(r"[^A-Za-z0-9._-]+")
_EDGES = "-_."


@lru_cache(maxsize=4096)
def is_label_value(text: str) -> bool:
    """Tell whether the API server takes `text` as a label's value (the empty value included)."""
    return len(text) <= MAX_LABEL_LENGTH and _LABEL_VALUE.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def is_label_key(key: str) -> bool:
    """Tell whether the API server takes `key` as a label's key, its prefix included."""
    prefix, separator, name = key.rpartition("/")
    if separator and not is_dns_subdomain(prefix):
        return False
    return name != "" and is_label_value(name)


def is_dns_subdomain(text: str) -> bool:
    """Tell whether `text` is a DNS subdomain as Kubernetes defines it for names and prefixes."""
    return 0 < len(text) <= 253 and all(_DNS_LABEL.fullmatch(part) for part in text.split("."))


def label_value(text: str) -> str | None:
    """Return `text` made fit for a label's value, `None` where nothing is left of it.

    Distinct texts stay distinct: where more was lost than white space, the value ends with eight hex digits of the
    SHA-256 of the whole text.
    """
    ascii_text = _folded_to_ascii(text.strip())
    cleaned = _UNFIT_RUN.sub("-", ascii_text).strip(_EDGES)
    if not cleaned:
        return None
    if re.sub(r"\s+", "-", text.strip()) == cleaned and len(cleaned) <= MAX_LABEL_LENGTH:
        return cleaned
    # Imported for the few texts that need it: it brings the whole of OpenSSL.
    import hashlib  # noqa: PLC0415

    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    kept = cleaned[: MAX_LABEL_LENGTH - _HASH_DIGITS - 1].rstrip(_EDGES)
    return f"{kept}-{digest}"


def class_name_text(text: str) -> str | None:
    """Return `text` made fit for an object's name and a label at once, `None` where nothing is left of it."""
    value = label_value(text)
    if value is None:
        return None
    name = value.lower().replace("_", "-")
    # A DNS label is not empty and may not begin or end with a hyphen, so a dot stands between letters and digits.
    return re.sub(r"-*\.[-.]*", ".", name).strip("-.")


def profile_text(profile: str) -> str:
    """Return a partition's profile as device plugins write it in resource names: `1g.24gb+me.all` is `1g.24gb.me.all`."""
    return profile.replace("+", ".")


def _folded_to_ascii(text: str) -> str:
    """Fold accents to their letters, then drop what is not printable ASCII; white space becomes a blank."""
    folded = unicodedata.normalize("NFKD", text)
    return "".join(
        " " if character.isspace() else character
        for character in folded
        if character.isspace() or (character.isascii() and character.isprintable())
    )
