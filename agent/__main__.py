"""Process entry: `python -m agent`, `accelerator-agent` and `kubectl-accelerators`."""

import os
import sys

from agent import cli


def main() -> None:
    """Run the command line and end the process."""
    _end(cli.main(sys.argv[1:], program="accelerator-agent"))


def kubectl_main() -> None:
    """Run as kubectl's plug-in, where `classes` and `match` read the cluster unless told otherwise."""
    _end(cli.main(sys.argv[1:], program="kubectl accelerators", from_cluster=True))


def _end(status: int) -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has gone, as with `| head`.
        status = status or cli.EXIT_BROKEN_PIPE
    sys.stderr.flush()
    # A worker thread may be inside a request with a long time-out; nothing that it does outlives this process anyway.
    os._exit(status)


if __name__ == "__main__":
    main()
