"""Values → the JSON or YAML that a command prints."""

import json
import re
from typing import Any

# PyYAML leaves this text bare, and Kubernetes' tools read it as a number: `2e12` and `1e30` are PCI device ids.
_NUMBER_ELSEWHERE = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+|0o[0-7]+")


def dump(value: object, output: str) -> str:
    """Return a value as `yaml` or `json` text."""
    return _yaml(value) if output == "yaml" else json.dumps(value, indent=2, ensure_ascii=False)


def _yaml(value: object) -> str:
    import yaml  # noqa: PLC0415  # only where YAML is asked for

    class Dumper(yaml.SafeDumper):
        """Quotes what another reader of YAML would take for a number."""

    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER_ELSEWHERE, list("-+.0123456789"))
    text: Any = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)
    return str(text).rstrip()
