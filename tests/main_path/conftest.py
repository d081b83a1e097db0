"""Agents on the real control plane, each with the token of its own Node's Pod."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import node_token
from tests.main_path.agent_process import AgentProcess

StartAgent = Callable[..., AgentProcess]


@pytest.fixture
def start_agent(fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[StartAgent]:
    """`start_agent(node, fake, **settings)` runs an agent for a Node that exists; all end with the test."""
    with ExitStack() as running:

        def start(node: str, fake: str, **settings: str) -> AgentProcess:
            token = node_token(fresh_cluster.admin, node)
            environment = {
                "KUBECONFIG": str(fresh_cluster.kubeconfig(token)),
                "ACCELERATOR_NODE_NAME": node,
                "ACCELERATOR_FAKE": fake,
                "ACCELERATOR_ALLOW_SIMULATED": "true",
                "ACCELERATOR_LISTEN": "127.0.0.1:0",
                "ACCELERATOR_PROBE_INTERVAL": "1s",
                "ACCELERATOR_PROBE_TIMEOUT": "2s",
                **{f"ACCELERATOR_{name.upper()}": value for name, value in settings.items()},
            }
            number = len(list(tmp_path.glob("agent-*.log")))
            log = tmp_path / f"agent-{number}.log"
            return running.enter_context(AgentProcess("node", log=log, environment=environment))

        yield start
