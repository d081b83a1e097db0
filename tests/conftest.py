"""Fixtures of every test: the real control plane's come from `tests.cluster.fixtures`."""

import pytest

pytest_plugins = ["tests.cluster.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make snapshots` write what `tests/snapshots` would compare."""
    parser.addoption(
        "--update-snapshots", action="store_true", help="write the snapshot files anew, for review"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what looks at the whole session after everything else."""
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)
