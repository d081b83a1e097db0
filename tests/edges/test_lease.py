"""The election: one leads, and it stops before another could."""

from datetime import UTC, datetime, timedelta

import pytest

from agent.cluster import LEASES, Unreachable
from agent.edges.lease import Election, LeaseTimes
from fakes.cluster import FakeCluster

NAME, NAMESPACE = "accelerator-inventory", "default"
TIMES = LeaseTimes(duration=15.0, renewal=4.0, margin=6.0)


class ManualClock:
    """Time that passes when told to; each replica has its own wall clock."""

    def __init__(self):
        self.monotonic = 500.0
        self.wall = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)

    def now(self):
        return self.wall

    def clock(self):
        return self.monotonic

    def advance(self, seconds):
        self.monotonic += seconds
        self.wall += timedelta(seconds=seconds)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def cluster():
    return FakeCluster()


def replica(cluster, clock, name):
    return Election(
        cluster,
        name=NAME,
        namespace=NAMESPACE,
        identity=name,
        now=clock.now,
        clock=clock.clock,
        times=TIMES,
    )


def spec(cluster):
    return cluster.get(LEASES, NAME, namespace=NAMESPACE)["spec"]


def test_the_first_replica_leads_and_the_second_does_not(cluster, clock):
    a, b = replica(cluster, clock, "a"), replica(cluster, clock, "b")
    a.step()
    b.step()
    assert (a.leads(), b.leads()) == (True, False)
    assert spec(cluster)["holderIdentity"] == a.identity


def test_a_leader_that_renews_stays(cluster, clock):
    a, b = replica(cluster, clock, "a"), replica(cluster, clock, "b")
    a.step()
    for _ in range(20):
        clock.advance(4)
        a.step()
        b.step()
        assert (a.leads(), b.leads()) == (True, False)
    assert spec(cluster)["leaseTransitions"] == 0


def test_a_leader_that_is_killed_is_followed_within_the_lease(cluster, clock):
    a, b = replica(cluster, clock, "a"), replica(cluster, clock, "b")
    a.step()
    b.step()
    waited = 0
    while not b.leads():
        clock.advance(1)
        waited += 1
        b.step()
    assert waited <= TIMES.duration + 1
    assert not a.leads()
    assert spec(cluster)["leaseTransitions"] == 1


def test_two_never_lead_at_once_whatever_is_lost(cluster, clock):
    """The leader is cut off from the server, which answers the other one."""
    a, b = replica(cluster, clock, "a"), replica(cluster, clock, "b")
    a.step()
    b.step()
    stopped_at = taken_at = None
    for second in range(40):
        clock.advance(1)
        b.step()
        assert not (a.leads() and b.leads())
        if not a.leads() and stopped_at is None:
            stopped_at = second
        if b.leads() and taken_at is None:
            taken_at = second
    # It stops so long before that a write that it began is over.
    assert taken_at - stopped_at >= TIMES.margin


def test_an_answer_that_came_late_gives_no_more_time(cluster, clock):
    a = replica(cluster, clock, "a")
    a.step()
    clock.advance(4)
    # The server hangs: the renewal is answered ten seconds after it was sent.
    cluster.fault = lambda call: clock.advance(10) if call.verb == "update" else None
    a.step()
    assert not a.leads()


def test_a_step_of_the_wall_clock_changes_nothing(cluster, clock):
    a, b = replica(cluster, clock, "a"), replica(cluster, clock, "b")
    a.step()
    b.step()
    clock.wall += timedelta(days=2)
    b.step()
    assert (a.leads(), b.leads()) == (True, False)
    clock.wall -= timedelta(days=4)
    clock.advance(4)
    a.step()
    b.step()
    assert (a.leads(), b.leads()) == (True, False)


def test_a_release_lets_another_lead_at_once(cluster, clock):
    a, b = replica(cluster, clock, "a"), replica(cluster, clock, "b")
    a.step()
    b.step()
    a.release()
    assert not a.leads()
    b.step()
    assert b.leads()


def test_a_replica_that_does_not_lead_releases_nothing(cluster, clock):
    a, b = replica(cluster, clock, "a"), replica(cluster, clock, "b")
    a.step()
    b.step()
    b.release()
    assert spec(cluster)["holderIdentity"] == a.identity


def test_a_process_of_the_same_name_is_another_replica(cluster, clock):
    former, restarted = replica(cluster, clock, "pod-1"), replica(cluster, clock, "pod-1")
    former.step()
    restarted.step()
    assert (former.leads(), restarted.leads()) == (True, False)


def test_a_server_that_is_away_is_a_problem_and_no_exception(cluster, clock):
    a = replica(cluster, clock, "a")
    a.step()
    cluster.fault = lambda _call: Unreachable("refused")
    clock.advance(4)
    a.step()
    assert a.problem is not None
    assert a.leads()
    clock.advance(6)
    a.step()
    assert not a.leads()
    cluster.fault = lambda _call: None
    a.step()
    assert (a.leads(), a.problem) == (True, None)


def test_a_race_for_a_free_lease_has_one_winner(cluster, clock):
    a, b, c = (replica(cluster, clock, name) for name in "abc")
    a.step()
    a.release()

    def overtake(call):
        if call.verb == "update":
            cluster.fault = lambda _call: None
            c.step()

    cluster.fault = overtake
    b.step()
    assert (b.leads(), c.leads()) == (False, True)


def test_who_begins_or_ceases_to_lead_says_so(cluster, clock):
    told = []
    a = Election(
        cluster,
        name=NAME,
        namespace=NAMESPACE,
        identity="a",
        now=clock.now,
        clock=clock.clock,
        times=TIMES,
        changed=lambda: told.append(a.leads()),
    )
    a.step()
    clock.advance(30)
    cluster.fault = lambda _call: Unreachable("refused")
    a.step()
    assert told == [True, False]
