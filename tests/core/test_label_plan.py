"""What is sent to a Node, what is left to others, and when a rival that deletes is left alone."""

import pytest

from agent.core.label_plan import Contention, LabelPlan, contention_after_read, plan_labels

DOMAIN = "accelerators.ome.io"
OURS = "accelerator-agent"
CLASS, FAMILY = f"{DOMAIN}/class", f"{DOMAIN}/family"


def node(labels, **owners):
    """A Node with these labels; `owners` names the keys of each manager, `_` standing for `-` in its name."""
    return {
        "metadata": {
            "name": "n1",
            "labels": labels,
            "managedFields": [
                {
                    "manager": manager.replace("_", "-"),
                    "operation": "Apply",
                    "fieldsV1": {"f:metadata": {"f:labels": {f"f:{key}": {} for key in keys}}},
                }
                for manager, keys in owners.items()
            ],
        }
    }


def plan(live, desired, domains=(DOMAIN,)):
    return plan_labels(live, desired, domains=domains)


WANTED = {CLASS: "a", FAMILY: "b"}

PLANS = [
    ("a bare Node", node({}), WANTED, LabelPlan(apply=WANTED, needed=True)),
    (
        "all is as it should be",
        node(WANTED | {"team": "x"}, accelerator_agent=WANTED, kubectl=["team"]),
        WANTED,
        LabelPlan(apply=WANTED, needed=False),
    ),
    (
        "a value differs",
        node({CLASS: "old", FAMILY: "b"}, accelerator_agent=WANTED),
        WANTED,
        LabelPlan(apply=WANTED, needed=True),
    ),
    (
        "FR-071 a key of ours is no longer produced",
        node(WANTED, accelerator_agent=WANTED),
        {CLASS: "a"},
        LabelPlan(apply={CLASS: "a"}, needed=True),
    ),
    (
        "FR-086 nothing is produced any more",
        node(WANTED, accelerator_agent=WANTED),
        {},
        LabelPlan(apply={}, needed=True),
    ),
    (
        "nothing was and nothing is",
        node({"team": "x"}, kubectl=["team"]),
        {},
        LabelPlan(apply={}, needed=False),
    ),
    (
        "FR-083 a rival owns a key",
        node({CLASS: "theirs"}, gfd=[CLASS]),
        WANTED,
        LabelPlan(apply={FAMILY: "b"}, needed=True, rivals={CLASS: "gfd"}),
    ),
    (
        "FR-083 a rival owns a key beside us",
        node(WANTED, gfd=[CLASS], accelerator_agent=WANTED),
        WANTED,
        LabelPlan(apply={FAMILY: "b"}, needed=True, rivals={CLASS: "gfd"}),
    ),
    (
        "FR-084 the bookkeeping was lost",
        node({CLASS: "a", f"{DOMAIN}/old": "x", f"precision.{DOMAIN}/fp8": "true", "team": "x"}),
        WANTED,
        LabelPlan(apply=WANTED, needed=True, orphans=(CLASS, f"{DOMAIN}/old", f"precision.{DOMAIN}/fp8")),
    ),
    (
        "FR-084 a person's key under our domain",
        node({f"{DOMAIN}/note": "x"}, kubectl=[f"{DOMAIN}/note"]),
        {},
        LabelPlan(apply={}, needed=False),
    ),
    (
        "FR-084 the server invented an owner for what was there",
        node(
            WANTED | {f"{DOMAIN}/old": "x", "team": "x"},
            before_first_apply=[*WANTED, f"{DOMAIN}/old", "team"],
        ),
        WANTED,
        LabelPlan(apply=WANTED, needed=True, orphans=(f"{DOMAIN}/old",)),
    ),
    (
        "FR-084 a rival beside the invented owner",
        node(WANTED, before_first_apply=WANTED, gfd=[CLASS], accelerator_agent=[FAMILY]),
        WANTED,
        LabelPlan(apply={FAMILY: "b"}, needed=False, rivals={CLASS: "gfd"}),
    ),
    (
        "FR-084 the invented owner of a key that is not under our domain",
        node({"nvidia.com/gpu.count": "1"}, before_first_apply=["nvidia.com/gpu.count"]),
        {"nvidia.com/gpu.count": "2"},
        LabelPlan(apply={}, needed=False, rivals={"nvidia.com/gpu.count": "before-first-apply"}),
    ),
    ("no labels at all", {"metadata": {"name": "n1"}}, {}, LabelPlan(apply={}, needed=False)),
]


@pytest.mark.parametrize(
    ("live", "desired", "expected"), [row[1:] for row in PLANS], ids=[row[0] for row in PLANS]
)
def test_the_plan_for_a_node(live, desired, expected):
    assert plan(live, desired) == expected


def test_fr_084_keys_of_a_former_domain_go_when_nobody_owns_them():
    live = node({"old.example/class": "a", "count.old.example/x": "1", "other.example/class": "a"})
    assert plan(live, {}, domains=(DOMAIN, "old.example")).orphans == (
        "count.old.example/x",
        "old.example/class",
    )


def test_fr_084_keys_of_another_prefix_that_we_own_go_with_the_apply():
    live = node({"old.example/class": "a"}, accelerator_agent=["old.example/class"])
    assert plan(live, WANTED) == LabelPlan(apply=WANTED, needed=True)


# --- a rival that deletes


class Rival:
    """Deletes our keys after each apply, at times in seconds."""

    def __init__(self):
        self.memory = Contention()
        self.now = 0.0

    def applied(self):
        self.memory = Contention(
            applied=frozenset(WANTED),
            deletions=self.memory.deletions,
            yield_until=self.memory.yield_until,
            yield_seconds=self.memory.yield_seconds,
        )

    def deletes(self, after, *, same_node=True, live=()):
        self.now += after
        self.memory = contention_after_read(
            self.memory, dict.fromkeys(live, ""), self.now, same_node=same_node
        )
        yielding = self.memory.yielding(self.now)
        if not yielding:
            self.applied()
        return yielding


def test_fr_083_three_deletions_in_ten_minutes_make_us_yield():
    rival = Rival()
    rival.applied()
    assert [rival.deletes(60.0) for _ in range(3)] == [False, False, True]
    assert rival.memory.yielding(rival.now + 599.0)
    assert not rival.memory.yielding(rival.now + 601.0)


def test_fr_083_each_time_it_is_longer():
    rival = Rival()
    rival.applied()
    lengths = []
    for _ in range(8):
        while not rival.deletes(60.0):
            pass
        assert rival.memory.yield_until is not None
        lengths.append(rival.memory.yield_until - rival.now)
        rival.now = rival.memory.yield_until
        rival.applied()
    assert lengths == [600.0, 1200.0, 2400.0, 4800.0, 9600.0, 19200.0, 21600.0, 21600.0]


def test_rare_deletions_are_put_right_for_ever():
    rival = Rival()
    rival.applied()
    assert not any(rival.deletes(400.0) for _ in range(20))


def test_one_key_that_goes_counts_and_one_that_changes_does_not():
    rival = Rival()
    rival.applied()
    assert [rival.deletes(60.0, live=[CLASS]) for _ in range(3)] == [False, False, True]
    calm = Rival()
    calm.applied()
    assert not any(calm.deletes(60.0, live=[CLASS, FAMILY]) for _ in range(5))


def test_a_node_that_was_made_again_lost_its_labels_to_nobody():
    rival = Rival()
    rival.applied()
    assert not any(rival.deletes(10.0, same_node=False) for _ in range(10))
