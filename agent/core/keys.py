"""The names of what is published: label keys under a domain, field managers, annotations."""

from agent.core.label_text import is_dns_subdomain

DEFAULT_DOMAIN = "accelerators.ome.io"

AGENT_MANAGER = "accelerator-agent"
"""Field manager of the agents, for their Node's labels and their record."""

INVENTORY_MANAGER = "accelerator-inventory"
"""Field manager of the elected controller, for classes."""

_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io")

# A key's prefix may have 253 characters, and the groups of keys (`precision.<domain>`) stand before the domain.
_MAX_DOMAIN_LENGTH = 253 - len("precision.")


def domain_problem(domain: str) -> str | None:
    """Return why `domain` cannot be the label domain, `None` when it can."""
    if not is_dns_subdomain(domain):
        return f"label_domain {domain!r} is not a DNS subdomain (lower-case letters, digits, '-' and '.')"
    if len(domain) > _MAX_DOMAIN_LENGTH:
        return f"label_domain {domain!r} is longer than {_MAX_DOMAIN_LENGTH} characters"
    for reserved in _RESERVED_DOMAINS:
        if domain == reserved or domain.endswith(f".{reserved}"):
            return f"label_domain {domain!r} lies under {reserved}, which Kubernetes reserves for itself"
    return None


def is_ours(key: str, domain: str) -> bool:
    """Tell whether a label key lies under our domain or a subdomain of it (`class.<domain>/…`)."""
    prefix, separator, _ = key.partition("/")
    return bool(separator) and (prefix == domain or prefix.endswith(f".{domain}"))
