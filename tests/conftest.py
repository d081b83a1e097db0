"""Fixtures of every test: the real control plane's come from `tests.cluster.fixtures`."""

pytest_plugins = ["tests.cluster.fixtures"]
