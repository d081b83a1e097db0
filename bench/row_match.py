"""`match` of one runtime against 5,000 nodes: the comparison, and the whole command against a real API server."""

from bench.figures import Figure, Result, limit
from bench.outside import number, printed

SECONDS = 1.0


def measure() -> Result:
    compared, whole = printed("match_5000"), printed("match_cluster", "5000")
    return Result(
        row="match",
        title="`accelerator-agent match` against 5,000 nodes",
        figures=(
            limit(
                "comparison after the read",
                number(r"classes: ([\d.]+) s", compared),
                SECONDS,
                "s",
                floor="40 MB of objects, decoded before it begins",
            ),
            Figure(
                what="the whole command against a real API server, read in pages",
                figure=f"{number(r'read and answered: ([0-9.]+) s', whole):.1f} s",
            ),
        ),
        notes=(compared.strip(),),
    )
