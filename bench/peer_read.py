"""All Nodes of a cluster read and kept: `peer_read ours KUBECONFIG` by our reflector, `client` by the client's list."""

import sys
import threading
import time
from collections.abc import Callable, Sized
from pathlib import Path


def main(reader: str, config: str) -> int:
    """Print how long one reader took, its processor time, and the most memory of its process; imports are done before."""
    read = {"ours": _reflector, "client": _lister}[reader](config)
    began, cpu = time.monotonic(), time.process_time()
    kept = read()
    seconds, spent = time.monotonic() - began, time.process_time() - cpu
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
    print(f"{len(kept)} Nodes: {seconds:.2f} s, {spent:.2f} s of processor, {peak:.0f} MiB")
    return 0


def _reflector(config: str) -> Callable[[], Sized]:
    from agent.cluster import NODES  # noqa: PLC0415 - a reader's process holds nothing of the other's
    from agent.core.cluster_views import node_view  # noqa: PLC0415
    from agent.edges.cluster import KubernetesCluster, kubeconfig  # noqa: PLC0415
    from agent.edges.watching import Reflector  # noqa: PLC0415

    heard = threading.Event()
    reflector = Reflector(KubernetesCluster(kubeconfig(config)), NODES, view=node_view, changed=heard.set)

    def read() -> Sized:
        reflector.run(heard)
        return reflector.views()

    return read


def _lister(config: str) -> Callable[[], Sized]:
    from kubernetes import client  # noqa: PLC0415
    from kubernetes import config as kubernetes_config  # noqa: PLC0415

    kubernetes_config.load_kube_config(config)
    api = client.CoreV1Api()

    def read() -> Sized:
        items, token = [], ""
        while True:
            page = api.list_node(limit=500, _continue=token)
            items += page.items
            token = page.metadata._continue  # noqa: SLF001 - the client's name for `continue`, a word of Python
            if not token:
                return items

    return read


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2]))
