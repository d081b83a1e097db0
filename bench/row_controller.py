"""The controller's process on a real API server with up to 5,000 Nodes: cold start, memory, one change, and growth."""

from bench.figures import Figure, Result, limit
from bench.growth import SIZES, line_through
from bench.outside import number, printed

START_SECONDS = 30.0
MEMORY_MIB = 300.0
CHANGE_SECONDS = 6.0


def measure() -> Result:
    texts = [printed("inventory_cluster", str(size)) for size in SIZES]
    starts = [number(r"right classes: ([\d.]+) s", text) for text in texts]
    peaks = [number(r"memory of the process: ([\d.]+) MiB", text) for text in texts]
    changes = [number(r"says so: ([\d.]+) s", text) for text in texts]
    sizes = ", ".join(f"{size:,}" for size in SIZES)
    return Result(
        row="controller",
        title="the controller on a real API server",
        figures=(
            limit(
                f"cold start to all classes right, {SIZES[-1]:,} nodes",
                starts[-1],
                START_SECONDS,
                "s",
                floor="the server encodes, and this process decodes, 75 MB of Nodes",
                digits=1,
            ),
            limit(
                "memory at most (VmHWM)",
                peaks[-1],
                MEMORY_MIB,
                "MiB",
                floor="Python with its client 45 MiB",
                digits=0,
            ),
            limit(
                "one node changes, until its class says so",
                changes[-1],
                CHANGE_SECONDS,
                "s",
                floor="two round trips and fsyncs",
            ),
            Figure(what="cold start", figure=line_through(SIZES, starts).text("s", 1)),
            Figure(what="memory", figure=line_through(SIZES, peaks).text("MiB", 1)),
            Figure(
                what=f"one change at {sizes}", figure=", ".join(f"{change:.2f}" for change in changes) + " s"
            ),
            _beside_the_client(texts[-1]),
        ),
        notes=(
            "Nodes of 15 kB as kubelets make them, with 50 images and 40 labels each, and records of eight devices.",
        ),
    )


def _beside_the_client(text: str) -> Figure:
    """Return what it takes to read all Nodes, beside the official client's own list of them."""
    read = r"{} read \d+ Nodes: {}"
    measures = {
        "s": r"([\d.]+) s",
        "s of processor": r"[\d.]+ s, ([\d.]+) s of",
        "MiB": r".* ([\d.]+) MiB",
    }
    pairs = {
        unit: tuple(number(read.format(reader, pattern), text) for reader in ("ours", "client"))
        for unit, pattern in measures.items()
    }
    return Figure(
        what=f"{SIZES[-1]:,} Nodes read and kept, beside `list_node` of the Kubernetes client in pages of 500",
        figure=", ".join(
            f"{ours:g} against {theirs:g} {unit} ({theirs / ours:.1f} times)"
            for unit, (ours, theirs) in pairs.items()
        ),
    )
