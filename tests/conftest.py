"""Fixtures of every test: the real control plane's come from `tests.cluster.fixtures`."""

import pytest

pytest_plugins = ["tests.cluster.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make snapshots` write what `tests/snapshots` would compare."""
    parser.addoption(
        "--update-snapshots", action="store_true", help="write the snapshot files anew, for review"
    )
