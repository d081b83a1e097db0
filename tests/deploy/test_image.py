"""The image without a container engine: its lock, its build steps as they stand, and what is built as it will be run."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from agent.cluster import ACCELERATOR_NODES, NODES
from tests.cluster.control_plane import ControlPlane
from tests.cluster.go import cache_folder
from tests.cluster.objects import DAEMONSET_FOLDER, eventually, node_token, ready_node
from tests.cluster.processes import Process, free_port

ROOT = DAEMONSET_FOLDER.parents[1]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
USER = 65532
ARCHITECTURES = ("x86_64", "aarch64")


def locked(name: str) -> dict[str, tuple[Version, int]]:
    """Return package → its version and how many hashes it has."""
    text = (DEPLOY / name).read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if pinned := re.match(r"([a-z0-9-]+)==([^ ;]+)", line):
            found[pinned[1]] = (Version(pinned[2]), line.count("--hash=sha256:"))
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_satisfies_what_the_project_asks_for() -> None:
    lock = locked("requirements.lock")
    for text in PROJECT["dependencies"]:
        wanted = Requirement(text)
        version, _ = lock[canonical(wanted.name)]
        assert version in wanted.specifier, text


def test_everything_that_is_locked_has_hashes() -> None:
    for name in ("requirements.lock", "requirements-build.lock"):
        assert [package for package, (_, hashes) in locked(name).items() if not hashes] == []
        lines = (DEPLOY / name).read_text().splitlines()
        requirements = [line for line in lines if line and line[0] not in "# "]
        assert [line for line in requirements if "==" not in line] == []


def test_one_version_is_named_everywhere() -> None:
    version = PROJECT["version"]
    chart = yaml.safe_load((DEPLOY / "helm" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert f'image.version="{version}"' in DOCKERFILE.read_text()
    images = {
        line.split()[-1]
        for path in (DAEMONSET_FOLDER / "base").glob("*.yaml")
        for line in path.read_text().splitlines()
        if line.strip().startswith("image:")
    }
    assert images == {f"accelerator-discovery-agent:{version}"}


def stages() -> list[list[tuple[str, str]]]:
    """Return the Dockerfile's stages as (instruction, rest) pairs."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: list[list[tuple[str, str]]] = []
    for line in filter(str.strip, text.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest.strip()))
    return found


def test_the_final_stage_runs_no_shell_and_no_root() -> None:
    final = stages()[-1]
    assert [rest for word, rest in final if word in {"RUN", "SHELL", "CMD", "HEALTHCHECK"}] == []
    assert [rest for word, rest in final if word == "USER"] == [f"{USER}:{USER}"]
    assert [json.loads(rest) for word, rest in final if word == "ENTRYPOINT"] == [["accelerator-agent"]]
    labels = " ".join(rest for word, rest in final if word == "LABEL")
    assert set(re.findall(r"opencontainers\.image\.(\w+)=", labels)) == {
        "title",
        "description",
        "version",
        "revision",
        "licenses",
    }


def test_only_what_is_copied_reaches_the_build() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    let_in = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = {source for word, rest in stages()[0] if word == "COPY" for source in rest.split()[:-1]}
    assert ignored[0] == "*"
    assert copied == let_in


@dataclass(frozen=True, slots=True)
class Image:
    """What the build stage made, at other paths."""

    agent: Path
    sbom: Path

    @property
    def python(self) -> Path:
        return self.agent / "bin" / "python"

    @property
    def program(self) -> Path:
        return self.agent / "bin" / "accelerator-agent"


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    """Run the build stage's own commands in a folder that every user may read, and take all rights to write away."""
    folder = Path(tempfile.mkdtemp(prefix="accelerator-image-", dir="/var/tmp"))
    folder.chmod(0o755)
    places = {
        "/opt/agent": folder / "agent",
        "/build": folder / "build",
        "/dist": folder / "dist",
        "/sbom.cdx.json": folder / "sbom.cdx.json",
    }
    source = folder / "src"
    environment = {"PATH": f"{_base_python(folder) / 'bin'}:/usr/bin:/bin", "HOME": str(folder)}
    for word, rest in stages()[0]:
        if word == "COPY":
            *names, target = rest.split()
            for name in names:
                _copy(ROOT / name, source / target / ("" if (ROOT / name).is_dir() else Path(name).name))
        elif word == "ENV":
            environment |= dict(part.split("=", 1) for part in rest.split() if "$" not in part)
            # Kept here between runs, which an image has no use for.
            environment["PIP_NO_CACHE_DIR"] = "0"
            environment["PIP_CACHE_DIR"] = str(cache_folder() / "pip")
        elif word == "RUN":
            _run(rest, places, source, environment)
    subprocess.run(["chmod", "-R", "a-w,a+rX", folder / "agent"], check=True)
    yield Image(agent=folder / "agent", sbom=folder / "sbom.cdx.json")
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    shutil.rmtree(folder)


def _base_python(folder: Path) -> Path:
    """Return the prefix of a Python that every user may run: this one, or a copy where it lies in a private folder."""
    prefix = Path(sys.base_prefix)
    if all(parent.stat().st_mode & 0o001 for parent in (prefix, *prefix.parents)):
        return prefix
    left_out = shutil.ignore_patterns("site-packages", "test", "__pycache__", "share", "*.a")
    return Path(shutil.copytree(prefix, folder / "python", ignore=left_out, symlinks=True))


def _copy(origin: Path, target: Path) -> None:
    if origin.is_dir():
        shutil.copytree(origin, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(origin, target)


def _run(command: str, places: dict[str, Path], source: Path, environment: dict[str, str]) -> None:
    for path, place in places.items():
        command = re.sub(rf"(?<![\w.]){re.escape(path)}\b", str(place), command)
    done = subprocess.run(
        ["/bin/sh", "-ec", command],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    if done.returncode == 0:
        return
    unreachable = re.search(r"Temporary failure|Network is unreachable|NewConnectionError", done.stderr)
    if unreachable and os.environ.get("CI") != "true":
        pytest.skip(f"no package index can be reached: {unreachable[0]}")
    pytest.fail(f"{command}\n{done.stdout}{done.stderr}", pytrace=False)


def as_the_pods_user(
    argv: list[str | Path], environment: dict[str, str], *, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program as user 65532, who owns nothing; as oneself where this is not root."""
    is_root = os.getuid() == 0
    return subprocess.run(
        argv,
        cwd="/",
        env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"} | environment,
        user=USER if is_root else None,
        group=USER if is_root else None,
        extra_groups=[] if is_root else None,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def writable() -> Iterator[Path]:
    """A folder that everybody may write into, for what a fake machine renders."""
    folder = Path(tempfile.mkdtemp(prefix="accelerator-tmp-", dir="/var/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def test_the_hashed_install_holds_what_is_locked_and_no_pip(image: Image) -> None:
    listed = json.loads(
        subprocess.run(
            [image.agent.parent / "build/bin/pip", "--python", image.python, "list", "--format", "json"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    found = {canonical(one["name"]): Version(one["version"]) for one in listed}
    assert found.pop(PROJECT["name"]) == Version(PROJECT["version"])
    lock = {name: version for name, (version, _) in locked("requirements.lock").items()}
    assert found.items() <= lock.items()
    # What is locked for other systems is not installed on this one.
    assert set(lock) - set(found) <= {"tzdata", "colorama"}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_has_its_wheels(image: Image, tmp_path: Path, architecture: str) -> None:
    platforms = [f"--platform=manylinux_2_{minor}_{architecture}" for minor in (17, 28, 34)]
    done = subprocess.run(
        [
            image.agent.parent / "build/bin/pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            f"--cache-dir={cache_folder() / 'pip'}",
            "--no-deps",
            "--only-binary=:all:",
            "--python-version=3.11",
            "--implementation=cp",
            *platforms,
            f"--platform=manylinux2014_{architecture}",
            f"--dest={tmp_path}",
            f"--requirement={DEPLOY / 'requirements.lock'}",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    tagged = {path.name for path in tmp_path.iterdir() if not path.name.endswith("-none-any.whl")}
    assert [name for name in tagged if architecture not in name] == []


def test_the_sbom_names_everything_that_is_installed(image: Image) -> None:
    document = json.loads(image.sbom.read_text())
    assert document["bomFormat"] == "CycloneDX"
    named = {canonical(one["name"]): one["version"] for one in document["components"]}
    lock = {name: str(version) for name, (version, _) in locked("requirements.lock").items()}
    missing = set(lock) - set(named)
    assert missing <= {"tzdata", "colorama"}
    assert {name: named[name] for name in lock.keys() & named.keys()} == {
        name: lock[name] for name in lock.keys() & named.keys()
    }
    assert document["metadata"]["component"]["name"] == PROJECT["name"]


def test_another_user_runs_it_from_a_read_only_tree(image: Image, writable: Path) -> None:
    told = {"TMPDIR": str(writable)}
    done = as_the_pods_user([image.program, "labels", "--fake", "h100x8", "-o", "json"], told)
    assert done.returncode == 0, done.stderr
    assert '"accelerators.ome.io/class": "nvidia-h100-80gb"' in done.stdout
    assert as_the_pods_user([image.program, "--version"], {}).stdout.strip() == PROJECT["version"]


def test_another_user_probes_this_machine_from_a_read_only_tree_without_a_place_to_write(
    image: Image,
) -> None:
    done = as_the_pods_user([image.program, "probe", "-o", "json"], {"TMPDIR": "/nonexistent"})
    facts = json.loads(done.stdout)
    assert facts["verdict"] in {"none", "complete", "partial", "no-driver", "not-in-container"}
    assert "Traceback" not in done.stderr


@dataclass(frozen=True, slots=True)
class Guard:
    """Where the hook lies and what it refused."""

    folder: Path
    report: Path

    def environment(self, *allowed: Path) -> dict[str, str]:
        return {
            "PYTHONPATH": str(self.folder),
            "WRITE_GUARD_ALLOWED": os.pathsep.join(map(str, allowed)),
            "WRITE_GUARD_REPORT": str(self.report),
        }

    def refused(self) -> list[str]:
        return self.report.read_text().splitlines()


@pytest.fixture
def guard(writable: Path) -> Guard:
    folder = writable / "guard"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text((Path(__file__).parent / "write_guard.py").read_text())
    folder.chmod(0o755)
    report = folder / "refused.txt"
    report.touch()
    report.chmod(0o666)
    return Guard(folder, report)


FORBIDDEN_ACTS = {
    "open to write": "open('{there}', 'w')",
    "open by flags": "import os; os.open('{there}', os.O_RDWR | os.O_CREAT)",
    "make a folder": "import os; os.mkdir('{there}')",
    "rename": "import os; os.rename('/nothing', '{there}')",
    "a temporary file": "import tempfile; tempfile.mkstemp(dir='{parent}')",
    "a shell": "import subprocess; subprocess.run('true', shell=True)",
    "another program": "import subprocess; subprocess.run(['/bin/true'])",
}


@pytest.mark.parametrize("act", FORBIDDEN_ACTS.values(), ids=FORBIDDEN_ACTS)
def test_the_guard_sees(image: Image, guard: Guard, writable: Path, act: str) -> None:
    text = act.format(there=writable / "file", parent=writable)
    done = as_the_pods_user([image.python, "-c", text], guard.environment())
    assert done.returncode == 1
    assert len(guard.refused()) >= 1


def test_the_guard_lets_reading_and_the_allowed_folder_be(image: Image, guard: Guard, writable: Path) -> None:
    text = f"open('/etc/passwd').read(); open('{writable / 'file'}', 'w').close()"
    assert as_the_pods_user([image.python, "-c", text], guard.environment(writable)).returncode == 0
    assert guard.refused() == []


StartNode = Callable[..., Process]


@pytest.fixture
def start_node(image: Image, fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[StartNode]:
    """Run the installed agent for `gpu-1` with its own token; all end with the test."""
    running: list[Process] = []
    ready_node(fresh_cluster.admin, "gpu-1", resources={"nvidia.com/gpu": "8"})
    config = fresh_cluster.kubeconfig(node_token(fresh_cluster.admin, "gpu-1"))

    def start(environment: dict[str, str]) -> Process:
        told = {
            "HOME": "/nonexistent",
            "PATH": "/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            "KUBECONFIG": str(config),
            "ACCELERATOR_NODE_NAME": "gpu-1",
            "ACCELERATOR_LISTEN": f"127.0.0.1:{free_port()}",
            "ACCELERATOR_PROBE_INTERVAL": "1s",
        }
        process = Process(
            "agent",
            [str(image.program), "node"],
            log=tmp_path / "agent.log",
            env=told | environment,
            folder=Path("/"),  # not the checkout's, which Python would import from
        )
        running.append(process)
        process.start()
        return process

    yield start
    for process in running:
        process.kill()


def test_an_agent_on_a_fake_node_writes_nowhere_and_starts_no_program(
    start_node: StartNode, fresh_cluster: ControlPlane, guard: Guard, writable: Path
) -> None:
    # The fake renders its machine's files there; nothing of a real one is written.
    machine = writable / "machine"
    machine.mkdir()
    process = start_node(
        guard.environment(machine)
        | {
            "TMPDIR": str(machine),
            "ACCELERATOR_FAKE": "h100x8",
            "ACCELERATOR_ALLOW_SIMULATED": "true",
        }
    )

    def passes() -> int:
        node = fresh_cluster.audit.since(user=":accelerator-agent", resource="nodes")
        return len([one for one in node if one.verb == "get"])

    def label() -> str | None:
        labels: dict[str, str] = fresh_cluster.admin.get(NODES, "gpu-1")["metadata"]["labels"]
        return labels.get("accelerators.ome.io/class")

    eventually(lambda: label() == "nvidia-h100-80gb", what="the labels")
    mark = passes()
    eventually(lambda: passes() >= mark + 3, what="three more passes")
    assert fresh_cluster.admin.find(ACCELERATOR_NODES, "gpu-1") is not None
    process.stop()
    assert guard.refused() == []


def test_an_agent_on_this_machine_writes_nowhere_at_all(
    start_node: StartNode, fresh_cluster: ControlPlane, guard: Guard
) -> None:
    mark = fresh_cluster.audit.mark()
    process = start_node(guard.environment() | {"TMPDIR": "/nonexistent"})
    eventually(
        lambda: len(fresh_cluster.audit.since(mark, user=":accelerator-agent", resource="nodes")) >= 3,
        what="three passes",
    )
    process.stop()
    assert guard.refused() == []
