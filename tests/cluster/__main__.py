"""Builds the control plane, or runs one in the foreground: `python -m tests.cluster build|up`."""

import argparse
import signal
import sys
import tempfile
import threading
from pathlib import Path

from tests.cluster.control_plane import ControlPlane
from tests.cluster.definitions import install_base, install_crd
from tests.cluster.objects import CLASS_CRD, ready_node
from tests.cluster.processes import ProcessEndedError
from tests.cluster.program import ProgramUnavailableError, find_or_build


def main(arguments: list[str] | None = None) -> int:
    """Return the exit status: 0, or 8 where the control plane cannot be built or started."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("command", choices=["build", "up"])
    parser.add_argument(
        "--folder", type=Path, help="where `up` keeps its files; a temporary folder by default"
    )
    parser.add_argument("--nodes", type=int, default=0, help="Ready Nodes that `up` makes: node-1, node-2 …")
    options = parser.parse_args(arguments)
    try:
        program = find_or_build(_say)
        if options.command == "build":
            _say(f"The test control plane is {program.path}")
            return 0
        with tempfile.TemporaryDirectory(prefix="control-plane-") as temporary:
            return _run(ControlPlane(program, options.folder or Path(temporary)), nodes=options.nodes)
    except (ProgramUnavailableError, ProcessEndedError) as error:
        sys.stderr.write(f"{error}\n")
        return 8


def _run(plane: ControlPlane, *, nodes: int) -> int:
    """Run until SIGINT or SIGTERM."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        plane.start()
        _install(plane, nodes=nodes)
        plane.start_controllers()
        plane.start_scheduler()
        _say(
            f"API server: {plane.server}\nkubeconfig: {plane.admin_kubeconfig}\nCtrl-C stops it and removes its data."
        )
        ended.wait()
    finally:
        plane.stop()
    return 0


def _install(plane: ControlPlane, *, nodes: int) -> None:
    install_base(plane.admin)
    install_crd(plane.admin, CLASS_CRD)
    for number in range(1, nodes + 1):
        ready_node(plane.admin, f"node-{number}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
