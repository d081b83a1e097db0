"""The age of a record, whatever the clocks of agents and controller say."""

import pytest

from agent.core.ages import Ages, aged
from agent.core.cluster_views import RecordView

TWO_HOURS = 7200.0


def view(observed_at):
    return RecordView(
        name="gpu-1",
        owner_uid="u-1",
        observed_at=observed_at,
        simulated=False,
        driver=None,
        classes=(),
        troubled=(),
    )


def heard(ages, observed_at, *, wall, monotonic, starting=False):
    ages, views = aged(ages, {"gpu-1": view(observed_at)}, wall=wall, monotonic=monotonic, starting=starting)
    return ages, views["gpu-1"].observed_at


FIRST = [
    ("it was there before", 1000.0, 1600.0, True, -600.0),
    ("it was there before, and its clock is ahead", 9000.0, 1600.0, True, 0.0),
    ("it was made now", 1000.0, 1600.0, False, 0.0),
]


@pytest.mark.parametrize(
    ("told", "wall", "starting", "offset"), [row[1:] for row in FIRST], ids=[row[0] for row in FIRST]
)
def test_a_record_that_is_heard_of_first_is_as_old_as(told, wall, starting, offset):
    assert heard(Ages(), told, wall=wall, monotonic=50.0, starting=starting)[1] == 50.0 + offset


@pytest.mark.parametrize("step", [-TWO_HOURS, TWO_HOURS], ids=["back", "ahead"])
def test_a_step_of_the_controllers_clock_changes_no_age(step):
    ages, _ = heard(Ages(), 1000.0, wall=1000.0, monotonic=0.0, starting=True)
    assert heard(ages, 1000.0, wall=1060.0 + step, monotonic=60.0)[1] == 0.0
    assert heard(ages, 1060.0, wall=1060.0 + step, monotonic=60.0)[1] == 60.0


def test_a_heartbeat_by_a_clock_that_was_set_back_is_a_heartbeat():
    ages, _ = heard(Ages(), 9000.0, wall=9000.0, monotonic=0.0)
    assert heard(ages, 9900.0 - TWO_HOURS, wall=9900.0, monotonic=900.0)[1] == 900.0


def test_a_record_that_went_is_forgotten():
    ages, _ = heard(Ages(), 1000.0, wall=1000.0, monotonic=0.0)
    assert aged(ages, {"gpu-1": None}, wall=0.0, monotonic=1.0, starting=False) == (Ages(), {"gpu-1": None})


def test_nothing_new_changes_nothing():
    ages, _ = heard(Ages(), 1000.0, wall=1000.0, monotonic=0.0)
    assert aged(ages, {}, wall=0.0, monotonic=1.0, starting=False) == (ages, {})
