"""Values → the JSON or YAML that a command prints."""

import json

import yaml


def dump(value: object, output: str) -> str:
    """Return a value as `yaml` or `json` text."""
    if output == "yaml":
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120).rstrip()
    return json.dumps(value, indent=2, ensure_ascii=False)
