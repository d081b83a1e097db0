"""Environment and arguments in, exit status out.

Nothing heavy is imported before a command needs it: `labels` runs without the Kubernetes client.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TextIO

from agent import app
from agent.cluster import ClusterError
from agent.settings import ENVIRONMENT_PREFIX, Settings, SettingsError, add_settings_arguments, load_settings
from agent.version import agent_version

if TYPE_CHECKING:
    from probes.facts import NodeFacts

EXIT_BAD_INPUT = 2
EXIT_CLUSTER = 8
EXIT_BUG = 70
EXIT_BROKEN_PIPE = 141


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One command as it was typed."""

    program: str
    arguments: argparse.Namespace
    settings: Settings
    fake: str | None
    from_cluster: bool
    stdout: TextIO
    stderr: TextIO

    @property
    def output(self) -> str:
        """Return `table`, `json` or `yaml`: a table for a terminal, JSON for a pipe, unless one was named."""
        named: str | None = getattr(self.arguments, "output", None)
        return named or ("table" if self.stdout.isatty() else "json")

    @property
    def width(self) -> int:
        """Return the columns that a table may take."""
        import shutil  # noqa: PLC0415  # it brings every kind of compression

        return shutil.get_terminal_size((160, 24)).columns


def main(
    argv: Sequence[str],
    *,
    program: str,
    from_cluster: bool = False,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run one command and return its exit status; a bug is 70, never 1."""
    environment = os.environ if environment is None else environment
    parser = build_parser(program, chosen=next(iter(argv), ""))
    try:
        arguments, unknown = parser.parse_known_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    if unknown:
        print(_not_known(program, argv[0], unknown[0]), file=sys.stderr)
        return EXIT_BAD_INPUT
    try:
        invocation = Invocation(
            program=program,
            arguments=arguments,
            settings=load_settings(vars(arguments), environment),
            fake=getattr(arguments, "fake", None) or environment.get(f"{ENVIRONMENT_PREFIX}FAKE"),
            from_cluster=from_cluster,
            stdout=sys.stdout,
            stderr=sys.stderr,
        )
        command: Callable[[Invocation], int] = arguments.run
        return command(invocation)
    except (SettingsError, app.InputError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except ClusterError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_CLUSTER
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return 130
    except Exception:  # noqa: BLE001  # the outermost line of the program
        traceback.print_exc()
        print(f"{program}: this is a bug; please report it with the lines above", file=sys.stderr)
        return EXIT_BUG


def _not_known(program: str, first: str, argument: str) -> str:
    """Return what to say of an argument that no parser knows; `first` is the command, or a flag in its place."""
    import re  # noqa: PLC0415  # only for what is wrong

    from agent.core.matching.spelling import did_you_mean  # noqa: PLC0415

    command = next((command for command in COMMANDS if command.name == first), None)
    called, flags = program, ["--help", "--version"]
    if command is not None:
        child = argparse.ArgumentParser()
        command.add_arguments(child)
        add_settings_arguments(child)
        called, flags = f"{program} {first}", [*re.findall(r"--[a-z][a-z-]*", child.format_usage()), "--help"]
    hint = did_you_mean(argument.partition("=")[0], flags)
    return f"{called}: no argument {argument!r} is known{hint} ({called} --help lists them)"


def build_parser(program: str, *, chosen: str) -> argparse.ArgumentParser:
    """Return the parser of all commands; only the chosen one gets its arguments, since some import much for theirs."""
    parser = argparse.ArgumentParser(prog=program, description=app.DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        # A script that shortens a flag would break with the next flag that begins alike.
        child = commands.add_parser(
            command.name, help=command.help, description=command.help, allow_abbrev=False
        )
        if command.name == chosen:
            command.add_arguments(child)
            add_settings_arguments(child)
            child.set_defaults(run=command.run)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print it and exit."""
        print(agent_version())
        parser.exit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One word after the program's name."""

    name: str
    help: str
    run: Callable[[Invocation], int]
    add_arguments: Callable[[argparse.ArgumentParser], None]


def _fake(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fake",
        metavar="NAME|FILE",
        help="run on fake hardware: a machine's name, a scenario, or what `nvidia-smi -q` or `-q -x` printed",
    )


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "yaml"),
        help="a table on a terminal and JSON in a pipe, unless named",
    )


def _fake_and_output(parser: argparse.ArgumentParser) -> None:
    _fake(parser)
    _output(parser)


def _match_arguments(parser: argparse.ArgumentParser) -> None:
    from agent.commands.match import add_match_arguments  # noqa: PLC0415

    _fake_and_output(parser)
    add_match_arguments(parser)


def _match(invocation: Invocation) -> int:
    from agent.commands.match import run_match  # noqa: PLC0415

    settings, fake = invocation.settings, invocation.fake
    return run_match(
        invocation.arguments,
        cluster=lambda: None if fake else app.configured_cluster(settings),
        local=lambda: app.local_hardware(settings, fake=fake),
        stdout=invocation.stdout,
        stderr=invocation.stderr,
        stdin=sys.stdin.buffer,
        output=invocation.output,
        width=invocation.width,
        program=invocation.program,
        domain=settings.label_domain,
    )


def _inventory_arguments(parser: argparse.ArgumentParser) -> None:
    _output(parser)
    parser.add_argument(
        "--once",
        action="store_true",
        help="print what would be applied and the differences; exit 1 when some",
    )


def _inventory(invocation: Invocation) -> int:
    if not invocation.arguments.once:
        return app.run_inventory(invocation.settings)
    from agent.commands.fleet import print_inventory  # noqa: PLC0415

    cluster = app.open_cluster(invocation.settings)
    return print_inventory(cluster, invocation.settings, output=invocation.output, stdout=invocation.stdout)


def _classes_arguments(parser: argparse.ArgumentParser) -> None:
    _fake_and_output(parser)
    parser.add_argument("--from-cluster", action="store_true", help="the fleet as the cluster shows it")


def _classes(invocation: Invocation) -> int:
    wanted = invocation.arguments.from_cluster or invocation.from_cluster
    if not wanted or invocation.fake:
        return _show("classes")(invocation)
    from agent.commands.fleet import print_fleet  # noqa: PLC0415

    return print_fleet(
        app.open_cluster(invocation.settings),
        invocation.settings,
        output=invocation.output,
        width=invocation.width,
        stdout=invocation.stdout,
    )


def _pools_arguments(parser: argparse.ArgumentParser) -> None:
    from agent.commands.pools import add_pools_arguments  # noqa: PLC0415

    _output(parser)
    add_pools_arguments(parser)


def _pools(invocation: Invocation) -> int:
    from agent.commands.pools import run_pools  # noqa: PLC0415
    from agent.core.pools.names import PoolKeys  # noqa: PLC0415
    from agent.edges.endpoints import Endpoints  # noqa: PLC0415
    from agent.wiring import engines_of  # noqa: PLC0415

    settings = invocation.settings
    return run_pools(
        invocation.arguments,
        cluster=app.open_cluster(settings),
        reader=Endpoints(),
        table=engines_of(settings),
        keys=PoolKeys(settings.label_domain),
        output=invocation.output,
        width=invocation.width,
        stdout=invocation.stdout,
        stderr=invocation.stderr,
    )


def _prune_arguments(parser: argparse.ArgumentParser) -> None:
    _output(parser)
    parser.add_argument(
        "--classes", action="store_true", help="remove our classes too, unless somebody names them"
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be removed")


def _prune(invocation: Invocation) -> int:
    from agent.commands.fleet import run_prune  # noqa: PLC0415

    return run_prune(
        app.open_cluster(invocation.settings),
        invocation.settings,
        classes=invocation.arguments.classes,
        dry_run=invocation.arguments.dry_run,
        output=invocation.output,
        stdout=invocation.stdout,
    )


def _node_arguments(parser: argparse.ArgumentParser) -> None:
    _fake(parser)
    parser.add_argument("--once", action="store_true", help="make one pass and exit with the probe's status")
    parser.add_argument(
        "--with-inventory",
        action="store_true",
        help="also take part in the election of the controller, for clusters that want one workload only",
    )


def _node(invocation: Invocation) -> int:
    arguments = invocation.arguments
    return app.run_node(
        invocation.settings,
        fake=invocation.fake,
        once=arguments.once,
        with_inventory=arguments.with_inventory,
    )


def _show(name: str) -> Callable[[Invocation], int]:
    def run(invocation: Invocation) -> int:
        with app.probe_host(invocation.settings, fake=invocation.fake) as host:
            # Imported while the host starts: what describes hardware takes as long as its binding.
            text_of = _rendering(name, invocation)
            facts = host.probe(1)
        print(text_of(facts), file=invocation.stdout)
        if not facts.asked:
            print(f"{facts.reason}: {facts.message}", file=invocation.stderr)
        return app.EXIT_BY_VERDICT[facts.verdict]

    return run


def _rendering(name: str, invocation: Invocation) -> "Callable[[NodeFacts], str]":
    """Return what makes the text that a command prints; the facts for programs need no description of hardware."""
    if name == "probe" and invocation.output != "table":
        from agent.commands.probed import facts_text  # noqa: PLC0415

        return partial(facts_text, output=invocation.output)
    from agent.commands import show  # noqa: PLC0415

    settings, output, width = invocation.settings, invocation.output, invocation.width
    return partial(show.render, name, settings=settings, output=output, width=width)


def _capture_arguments(parser: argparse.ArgumentParser) -> None:
    _fake(parser)
    parser.add_argument("file", metavar="FILE", help="where to write the scenario; - for standard output")


def _capture(invocation: Invocation) -> int:
    from agent.commands.capturing import write_capture  # noqa: PLC0415

    facts, scenario = app.capture_machine(invocation.settings, fake=invocation.fake)
    return write_capture(
        facts,
        scenario,
        invocation.arguments.file,
        stdout=invocation.stdout,
        stderr=invocation.stderr,
    )


def _doctor(invocation: Invocation) -> int:
    from agent.commands.doctor import run_doctor  # noqa: PLC0415

    settings = invocation.settings
    return run_doctor(
        app.patient(settings, fake=invocation.fake, only_cluster=invocation.from_cluster),
        settings,
        now=app.now().wall,
        output=invocation.output,
        width=invocation.width,
        stdout=invocation.stdout,
    )


COMMANDS: tuple[Command, ...] = (
    Command(
        name="node",
        help="The DaemonSet's process: probe this node, label it, keep its record, serve metrics.",
        run=_node,
        add_arguments=_node_arguments,
    ),
    Command(
        name="inventory",
        help="The controller's process: fold all records into AcceleratorClass objects and keep them true.",
        run=_inventory,
        add_arguments=_inventory_arguments,
    ),
    Command(
        name="probe",
        help="Print what this machine's accelerators are.",
        run=_show("probe"),
        add_arguments=_fake_and_output,
    ),
    Command(
        name="labels",
        help="Print the labels that would be put on the Node.",
        run=_show("labels"),
        add_arguments=_fake_and_output,
    ),
    Command(
        name="record",
        help="Print the AcceleratorNode record that would be written.",
        run=_show("record"),
        add_arguments=_fake_and_output,
    ),
    Command(
        name="classes",
        help="Print the AcceleratorClass objects of this machine's accelerators, or of the fleet.",
        run=_classes,
        add_arguments=_classes_arguments,
    ),
    Command(
        name="match",
        help="Tell on which classes and nodes a runtime fits, with reasons; `match lint` warns of surprises on OME.",
        run=_match,
        add_arguments=_match_arguments,
    ),
    Command(
        name="pools",
        help="Tell what the endpoints of inference pools run on and serve; print a picker's configuration or a split.",
        run=_pools,
        add_arguments=_pools_arguments,
    ),
    Command(
        name="doctor",
        help="Tell why there are no GPUs, labels or classes: checks with their evidence, and who can mend what.",
        run=_doctor,
        add_arguments=_fake_and_output,
    ),
    Command(
        name="capture",
        help="Save all that NVML answers here as a scenario for --fake, with serial numbers and UUIDs masked.",
        run=_capture,
        add_arguments=_capture_arguments,
    ),
    Command(
        name="prune",
        help="Remove exactly what we own from all nodes; safe to run twice.",
        run=_prune,
        add_arguments=_prune_arguments,
    ),
)
