"""What the controller computes, without a server: how memory and time grow with the nodes, and what one change costs."""

from bench.figures import Figure, Result, limit
from bench.growth import SIZES, line_through
from bench.outside import number, printed

CHANGE_MILLISECONDS = 10.0
CLASSES = 20
NODES_A_CLASS = 100


def measure() -> Result:
    spread = [printed("inventory_fold", str(size), str(CLASSES)) for size in SIZES]
    one_class = [printed("inventory_fold", str(size), "1") for size in SIZES]
    alike = [printed("inventory_fold", str(size), str(size // NODES_A_CLASS)) for size in SIZES]
    flat = [number(r"one node changed: ([\d.]+) ms", text) for text in alike]
    changes = [number(r"one node changed: ([\d.]+) ms", text) for text in spread]
    worst = [number(r"one node changed: ([\d.]+) ms", text) for text in one_class]
    seconds = line_through(SIZES, [number(r"folded: ([\d.]+) s", text) for text in spread])
    memory = line_through(SIZES, [number(r"CPU, (\d+) MiB", text) for text in spread])
    sizes = ", ".join(f"{size:,}" for size in SIZES)
    return Result(
        row="fold",
        title="what the controller computes",
        figures=(
            limit(
                f"one node changes among {SIZES[-1]:,}, {CLASSES} classes, processor",
                changes[-1],
                CHANGE_MILLISECONDS,
                "ms",
                floor="to cut one record down, 0.1 ms",
            ),
            limit(
                f"one node changes where all {SIZES[-1]:,} are of one class",
                worst[-1],
                CHANGE_MILLISECONDS,
                "ms",
                floor="a status that names 5,000 nodes",
            ),
            Figure(what="all records taken in and folded, processor", figure=seconds.text("s")),
            Figure(what="memory of the views", figure=memory.text("MiB", 1)),
            Figure(what=f"one change at {sizes}, {NODES_A_CLASS} nodes a class", figure=_list(flat)),
            Figure(what=f"one change at {sizes}, {CLASSES} classes", figure=_list(changes)),
            Figure(what=f"one change at {sizes}, one class", figure=_list(worst)),
        ),
        notes=(GROWTH,),
    )


GROWTH = (
    "What one change costs does not depend on the nodes of other classes; it grows with those of its own, by about 1.2 µs "
    "each: the sums and the names in a class's status are made of all its members."
)


def _list(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values) + " ms"
