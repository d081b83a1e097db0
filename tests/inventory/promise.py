"""The promise about shared fields, checked against a model while everybody edits at random."""

import random

from agent.cluster import ACCELERATOR_CLASSES, Conflict
from tests.inventory.ome import OmeController

FIELDS = {
    ("capabilities", "memoryGB"): ("79Gi", "80Gi", "81Gi"),
    ("capabilities", "computeCapability"): ("9.0", "9.1"),
    ("capabilities", "features"): (["fp8"], ["fp8", "own"]),
    ("vendor",): ("nvidia", "acme"),
    ("model",): ("h100", "mine"),
    ("cost", "perHour"): ("2", "3"),
}


def run_random_edits(scene, name, *, seed, steps):
    """Edit and check: a value that another sets stays until that one changes or gives it up."""
    rng = random.Random(seed)
    ome = OmeController(scene.cluster, scene.time.now)
    ours = flat(scene.live(name)["spec"])
    gitops = {}
    held = {}  # what people hold: path → value
    for step in range(steps):
        action = rng.choice(("person", "person", "forget", "gitops", "give-up", "ome", "cordon"))
        path = rng.choice(sorted(FIELDS))
        value = rng.choice(FIELDS[path])
        live = flat(scene.live(name)["spec"])
        if action == "person" and live.get(path) != value:
            scene.edit(name, {"spec": nested({path: value})})
            held[path] = value
            gitops.pop(path, None)
        elif action == "forget" and path in held:
            scene.edit(name, {"spec": nested({path: None})})
            del held[path]
            gitops.pop(path, None)
        elif action == "gitops":
            wanted = {**gitops, path: value}
            if apply(scene, name, wanted):
                gitops = wanted
                held |= wanted
        elif action == "give-up" and path in gitops:
            wanted = {key: kept for key, kept in gitops.items() if key != path}
            if apply(scene, name, wanted):
                gitops = wanted
                held.pop(path, None)
        elif action == "ome":
            ome.reconcile()
        elif action == "cordon":
            scene.cordon("n1", on=bool(step % 2))
        scene.settle(turns=rng.choice((1, 2)))
        check(
            flat(scene.live(name)["spec"]), held, ours, f"seed {seed}, step {step}: {action} {path} {value}"
        )


def check(live, held, ours, what):
    for path, value in held.items():
        assert live.get(path) == value, f"{what}: {path} was taken from its owner"
    for path in FIELDS.keys() - held.keys():
        assert live.get(path) == ours.get(path), f"{what}: {path} is nobody's and not as found"


def apply(scene, name, wanted):
    head = {"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": name}}
    spec = {"capabilities": {}, "discovery": {}, **nested(wanted)}
    try:
        scene.cluster.apply(ACCELERATOR_CLASSES, {**head, "spec": spec}, manager="argocd")
    except Conflict:
        return False
    return True


def nested(values):
    result = {}
    for path, value in values.items():
        inner = result
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = value
    return result


def flat(spec):
    found = {}
    for path in FIELDS:
        value = spec
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            found[path] = value
    return found
