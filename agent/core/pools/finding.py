"""What a diagnosis should say of pools: that there are none to look at, or which of them deserve a look."""

from collections.abc import Sequence

from agent.core.doctor.check import ADMINISTRATOR, Check, finding, ok, skipped
from agent.core.pools.report import PoolReport
from agent.core.pools.shown import NOT_INSTALLED

_CHECK = "pools"
_NAMED = 5


def pools_check(reports: Sequence[PoolReport] | None) -> Check:
    """Return the check of pools; `reports` is `None` where the cluster has no InferencePool."""
    if reports is None:
        return skipped(_CHECK, NOT_INSTALLED)
    mixed = [one.pool.key for one in reports if one.homogeneous is False]
    wrong = [one.pool.key for one in reports if one.contradictions]
    if not mixed and not wrong:
        return ok(
            _CHECK, f"{len(reports)} pools, each of one class or of none that is known, no label contradicts"
        )
    told = [
        f"{text}: {', '.join(names[:_NAMED])}{' …' if len(names) > _NAMED else ''}"
        for text, names in (("of several classes", mixed), ("labelled wrongly", wrong))
        if names
    ]
    return finding(
        _CHECK,
        "; ".join(told),
        meaning="an endpoint picker takes endpoints of one pool for alike, and reads each by its engine label",
        mend="see `accelerator-agent pools POOL`; `pools split POOL` prints pools of one class each",
        who=ADMINISTRATOR,
    )
