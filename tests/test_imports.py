"""Who may import whom: the contracts are kept, and each is seen to catch a copy of the tree that breaks it."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONTRACTS = tuple(
    contract["name"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
)

# Contract → the module that breaks it in the copy, and what it imports.
BREAKS = {
    "Imports point inward": ("agent.core.page", "agent.node_pass"),
    "The core is pure": ("agent.core.health", "time"),
    "Probes know nothing of Kubernetes or of the agent": ("probes.pci", "agent.core.keys"),
    "Nothing real imports a fake, but the switch that asks for one": ("agent.node_publish", "fakes.nodes"),
    "Edges do not know each other": ("agent.edges.web", "agent.edges.scheduling"),
    "One module speaks to Kubernetes": ("agent.refusals", "kubernetes"),
    "One module keeps time with APScheduler": ("agent.node_process", "apscheduler"),
    "One module reads the host through psutil": ("probes.verdict", "psutil"),
    "NVML is opened by its probe alone": ("probes.evidence", "pynvml"),
    "One module writes expositions": ("agent.commands.show", "prometheus_client"),
}


def lint(folder: Path) -> str:
    """Return what import-linter says of the tree in a folder."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout + done.stderr


def verdicts(said: str) -> dict[str, str]:
    """Return KEPT or BROKEN by contract."""
    return dict(re.findall(r"^(.+?) (KEPT|BROKEN)\b", said, re.MULTILINE))


@pytest.fixture(scope="module")
def broken(tmp_path_factory) -> str:
    """What import-linter says of a copy in which every contract is broken once."""
    copy = tmp_path_factory.mktemp("broken")
    for package in ("agent", "probes", "fakes"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    for module, imported in BREAKS.values():
        file = copy / (module.replace(".", "/") + ".py")
        file.write_text(file.read_text() + f"\nimport {imported}\n")
    return lint(copy)


def test_every_contract_is_kept():
    said = lint(ROOT)
    assert verdicts(said) == dict.fromkeys(CONTRACTS, "KEPT"), said


def test_every_contract_has_a_break_here():
    assert set(BREAKS) == set(CONTRACTS)


@pytest.mark.parametrize("contract", BREAKS)
def test_a_broken_contract_is_caught_with_the_import_that_breaks_it(broken, contract):
    module, imported = BREAKS[contract]
    assert verdicts(broken).get(contract) == "BROKEN", broken
    parts = broken.split(f"\n{contract}\n{'-' * len(contract)}\n")
    assert len(parts) == 2, broken
    assert re.search(rf"{re.escape(module)} -> {re.escape(imported)}\b", parts[1]), parts[1]


def imports_of(file: Path) -> set[str]:
    """Return the modules that a file names in its import statements."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("file", sorted((ROOT / "agent/core").rglob("*.py")), ids=lambda file: file.stem)
def test_the_core_imports_itself_the_facts_and_what_has_no_effects(file):
    allowed = re.compile(
        r"(agent\.core\b.*|probes\.facts|ast|bisect|collections(\.abc)?|dataclasses|datetime|decimal|difflib|enum|"
        r"fractions|functools|hashlib|html|importlib\.resources|itertools|json|math|operator|re|shlex|statistics|string|"
        r"textwrap|tomllib|typing|unicodedata|msgspec|yaml)"
    )
    assert sorted(name for name in imports_of(file) if not allowed.fullmatch(name)) == []


def test_a_one_shot_command_imports_no_client_no_scheduler_and_no_exposition():
    program = (
        "import sys; from agent import cli; status = cli.main(['labels', '--fake', 't4'], program='x');"
        "print(sorted({'kubernetes', 'apscheduler', 'prometheus_client', 'pynvml'} & sys.modules.keys()));"
        "sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_command_starts_the_probe_host_before_it_imports_what_reads_its_answers():
    program = (
        "import sys; from agent import app; from agent.settings import Settings;"
        "early = {'probes.facts', 'probes.findings', 'probes.evidence'} & sys.modules.keys();"
        "app.SpawnedHost.start = lambda self: print(sorted(early | {'started'}));"
        "app.probe_host(Settings(), fake=None).close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == ["['started']"]


@pytest.mark.parametrize(
    "module", ["agent.cli", "agent.app", "agent.node_process", "probes.child", "fakes.nodes"]
)
def test_nothing_happens_at_import(module):
    program = (
        "import sys, threading, warnings; warnings.simplefilter('error');"
        f"before = threading.active_count(); import {module};"
        "assert threading.active_count() == before"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
