"""The reflector: complete or nothing, whatever becomes of lists and watches."""

import threading

import pytest

from agent.cluster import (
    NODES,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerFault,
    Throttled,
    Unreachable,
    WatchEvent,
)
from agent.edges.watching import Reflector, object_key
from fakes.cluster import FakeCluster

STOP = threading.Event()


def node(name, value="1", version="1"):
    return {"metadata": {"name": name, "labels": {"v": value}, "resourceVersion": version}}


def view(obj):
    value = obj["metadata"]["labels"]["v"]
    return None if value == "ignored" else value


class Scripted:
    """A cluster whose watches and lists are played from a script; each step is an answer or an error."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.asked = []

    def list_all(self, _resource, *, project, **_):
        self.asked.append("list")
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return [project(item) for item in step], "100"

    def watch(self, _resource, *, resource_version, project, initial_events=False, **_):
        self.asked.append("stream" if initial_events else f"watch {resource_version}")
        step = self.steps.pop(0)
        for one in step if isinstance(step, list) else [step]:
            if isinstance(one, Exception):
                raise one
            kind, *rest = one
            if kind == "BOOKMARK":
                yield WatchEvent("BOOKMARK", {}, rest[0], initial_end=len(rest) > 1)
            else:
                yield WatchEvent(kind, project(rest[0]), rest[0]["metadata"]["resourceVersion"])


def listed(*nodes, version="100"):
    return [*(("ADDED", one) for one in nodes), ("BOOKMARK", version, "end")]


def reflector(*steps):
    cluster = Scripted(*steps)
    return Reflector(cluster, NODES, view=view), cluster


def play(watched, count):
    return [watched.step(STOP) for _ in range(count)]


def test_a_streamed_list_counts_once_it_is_complete_and_goes_on_as_a_watch():
    watched, cluster = reflector(
        [
            *listed(node("n1"), node("n2")),
            ("MODIFIED", node("n1", "2", "101")),
            ("DELETED", node("n2", version="102")),
        ],
        [("ADDED", node("n3", version="103"))],
    )
    watched.step(STOP)
    assert watched.complete
    assert watched.drain() == {"n1": "2", "n2": None}
    watched.step(STOP)
    assert cluster.asked == ["stream", "watch 102"]
    assert watched.drain() == {"n3": "1"}
    assert watched.drain() == {}


def test_fr_082_a_stream_that_breaks_before_its_end_is_no_list():
    broken = [("ADDED", node("n1")), Unreachable("reset")]
    ended = [("ADDED", node("n1"))]
    watched, cluster = reflector(broken, ended, listed(node("n1"), node("n2")))
    pauses = play(watched, 2)
    assert not watched.complete
    assert watched.drain() == {}
    assert all(pause > 0 for pause in pauses)
    watched.step(STOP)
    assert watched.drain() == {"n1": "1", "n2": "1"}
    assert cluster.asked == ["stream"] * 3


def test_where_lists_are_not_streamed_they_are_read_in_pages():
    watched, cluster = reflector(Invalid("sendInitialEvents"), [node("n1")], [], Gone("old"), [node("n2")])
    play(watched, 4)
    assert cluster.asked == ["stream", "list", "watch 100", "watch 100", "list"]
    assert watched.drain() == {"n1": None, "n2": "1"}


def test_fr_095_a_version_that_has_expired_leads_to_a_fresh_list_and_nothing_is_lost():
    watched, cluster = reflector(
        listed(node("n1"), node("n2")), Gone("410"), listed(node("n2", "2"), node("n3"))
    )
    play(watched, 1)
    watched.drain()
    (pause,) = play(watched, 1)
    assert pause > 0
    play(watched, 1)
    assert watched.drain() == {"n1": None, "n2": "2", "n3": "1"}
    assert cluster.asked == ["stream", "watch 100", "stream"]


def test_a_list_that_fails_leaves_what_was_known():
    watched, _ = reflector(listed(node("n1")), Gone("410"), [("ADDED", node("n9")), ServerFault("500")])
    play(watched, 3)
    assert watched.drain() == {"n1": "1"}
    assert isinstance(watched.problem, ServerFault)


def test_a_broken_watch_goes_on_from_the_last_bookmark():
    watched, cluster = reflector(listed(node("n1")), [("BOOKMARK", "150"), Unreachable("reset")], [])
    play(watched, 3)
    assert cluster.asked == ["stream", "watch 100", "watch 150"]


def test_silence_and_refusals_pause_longer_each_time_and_a_success_ends_that():
    watched, _ = reflector(listed(node("n1")), *[Unreachable("x")] * 6, [("BOOKMARK", "101")])
    pauses = play(watched, 8)
    assert pauses[0] == 0.0
    assert sum(pauses[4:7]) > sum(pauses[1:4])
    assert pauses[7] == 0.0
    assert watched.problem is None


def test_a_throttled_watch_waits_as_it_is_told():
    watched, _ = reflector(listed(node("n1")), Throttled("slow", retry_after_seconds=17.0))
    assert play(watched, 2)[1] >= 17.0


def test_fr_095_a_watch_that_ends_at_once_again_and_again_is_no_busy_loop():
    watched, _ = reflector(listed(node("n1")), [], [], [])
    assert all(pause > 0 for pause in play(watched, 4)[1:])


def test_a_kind_that_is_not_installed_is_absent_until_it_is():
    watched, _ = reflector(NotFound("no such type"), listed(node("n1")))
    (pause,) = play(watched, 1)
    assert (watched.absent, watched.complete, pause >= 10) == (True, False, True)
    play(watched, 1)
    assert (watched.absent, watched.complete) == (False, True)


def test_a_missing_right_is_a_problem_and_keeps_what_was_known():
    watched, _ = reflector(listed(node("n1")), Forbidden('User "x" cannot watch resource "nodes"'))
    play(watched, 2)
    assert isinstance(watched.problem, Forbidden)
    assert watched.complete
    assert watched.drain() == {"n1": "1"}


def test_what_is_of_no_interest_is_not_kept_and_ceasing_to_be_is_a_removal():
    watched, _ = reflector(
        [
            *listed(node("n1"), node("n2", "ignored")),
            ("MODIFIED", node("n1", "ignored", "101")),
            ("MODIFIED", node("n1", "3", "102")),
        ]
    )
    watched.step(STOP)
    assert watched.drain() == {"n1": "3"}


def test_a_change_of_nothing_that_is_kept_is_no_change():
    heard = []
    cluster = Scripted([*listed(node("n1")), ("MODIFIED", node("n1", "1", "101"))])
    watched = Reflector(cluster, NODES, view=view, changed=lambda: heard.append(1))
    watched.step(STOP)
    assert len(heard) == 1


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        pytest.param({"name": "n1"}, "n1", id="cluster-scoped"),
        pytest.param({"name": "p", "namespace": "a"}, "a/p", id="namespaced"),
    ],
)
def test_an_object_is_known_by_its_name(metadata, key):
    assert object_key({"metadata": metadata}) == key


def test_it_runs_on_a_cluster_until_it_is_stopped():
    cluster, stop, heard = FakeCluster(), threading.Event(), threading.Event()
    watched = Reflector(
        cluster,
        NODES,
        view=lambda obj: obj["metadata"].get("labels", {}).get("v", ""),
        changed=heard.set,
        watch_seconds=0.2,
    )
    thread = threading.Thread(target=watched.run, args=(stop,), daemon=True)
    thread.start()
    assert heard.wait(5)
    heard.clear()
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"v": "7"}}}
    cluster.create(NODES, body, manager="m")
    assert heard.wait(5)
    assert watched.drain() == {"n1": "7"}
    stop.set()
    thread.join(5)
    assert not thread.is_alive()


def test_the_views_of_now_can_be_read_without_taking_the_changes():
    watched, _ = reflector(listed(node("n1"), node("n2", "ignored")))
    watched.step(STOP)
    assert watched.views() == {"n1": "1"}
    assert watched.drain() == {"n1": "1"}


def test_a_reflector_that_is_to_see_with_other_eyes_lists_again_after_the_next_event():
    asked = []

    def seeing(obj):
        asked.append(obj["metadata"]["name"])
        if asked == ["n1", "n1"]:
            watched.renew()
        return view(obj)

    steps = (
        listed(node("n1")),
        [("MODIFIED", node("n1", "2", "101")), ("MODIFIED", node("n1", "3", "102"))],
        listed(node("n1", "3"), node("n2")),
    )
    cluster = Scripted(*steps)
    watched = Reflector(cluster, NODES, view=seeing)
    play(watched, 3)
    assert cluster.asked == ["stream", "watch 100", "stream"]
    assert watched.views() == {"n1": "3", "n2": "1"}


@pytest.mark.parametrize(("expected", "level"), [(True, "WARNING"), (False, "DEBUG")])
def test_the_absence_of_a_kind_that_is_not_expected_is_no_news(caplog, expected, level):
    caplog.set_level("DEBUG")
    watched = Reflector(Scripted(NotFound("no such kind")), NODES, view=view, expected=expected)
    watched.step(STOP)
    assert watched.absent
    assert [record.levelname for record in caplog.records] == [level]
