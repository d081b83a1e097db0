"""The command `match`: reads its inputs, answers, prints; the exit status is 0 fits, 1 does not fit, 3 cannot tell."""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, BinaryIO, TextIO

from agent.cluster import Cluster, ClusterError
from agent.commands.dumping import dump
from agent.commands.match_cluster import ClusterReader, Progress
from agent.commands.match_input import read_inputs, refuse_bad_values
from agent.commands.match_sources import Found, LocalHardware, ModelFlags, Sources
from agent.commands.yaml_values import InputError
from agent.core.keys import DEFAULT_DOMAIN
from agent.core.matching.answer import Answer, answer_for
from agent.core.matching.document import answer_document, lint_document
from agent.core.matching.explain import answer_text, explain_text, lint_text
from agent.core.matching.lint import LintReport, lint_reports
from agent.core.matching.ome import OmeAnswer, ome_answer, ome_class
from agent.core.matching.patch import patch_for
from agent.core.matching.question import Options
from agent.core.matching.requirements import POLICIES
from agent.core.matching.spelling import did_you_mean, same_name
from agent.core.matching.subject import Subject
from agent.core.matching.verdicts import CANNOT_TELL, DOES_NOT_FIT, FITS, Verdict

EXIT_STATUS: dict[Verdict, int] = {FITS: 0, DOES_NOT_FIT: 1, CANNOT_TELL: 3}
EXIT_FINDINGS = 1
EXIT_BAD_INPUT = 2
EXIT_CLUSTER = 8

LINT = "lint"

_WORST_FIRST: tuple[Verdict, ...] = (DOES_NOT_FIT, CANNOT_TELL, FITS)


def add_match_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `match` but `-o`, which all printing commands share."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="runtimes or services (Kind/name or name); `lint` as the first word",
    )
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="YAML or JSON, - for standard input; many",
    )
    parser.add_argument("-n", "--namespace", metavar="NAME", help="of runtimes and services in the cluster")
    parser.add_argument("--model", metavar="NAME", help="the BaseModel or ClusterBaseModel that is to run")
    parser.add_argument("--params", metavar="SIZE", help="parameters of the model, such as 70B")
    parser.add_argument(
        "--precision", metavar="WORD", help="precision that the hardware must have, such as fp8"
    )
    parser.add_argument("--policy", choices=POLICIES, help="in place of the service's policy")
    parser.add_argument("--explain", metavar="CLASS", help="print every rule of one class")
    parser.add_argument(
        "--patch", action="store_true", help="print a merge patch that lists every class that fits"
    )
    parser.add_argument(
        "--ome", action="store_true", help="also tell what OME's own selector does, and why it differs"
    )
    parser.add_argument("--nodes", action="store_true", help="print the nodes as well")
    parser.add_argument("--allow-sharing", action="store_true", help="let time slices count as devices")
    parser.add_argument(
        "--allow-partitions", action="store_true", help="let partitions stand in for whole devices"
    )
    parser.add_argument(
        "--no-cluster", action="store_true", help="read no cluster, only files and this machine"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run of the command."""

    args: argparse.Namespace
    sources: Sources
    output: str
    width: int
    options: Options
    stdout: TextIO
    stderr: TextIO


def run_match(
    args: argparse.Namespace,
    *,
    cluster: Callable[[], Cluster | None],
    local: Callable[[], LocalHardware],
    stdout: TextIO,
    stderr: TextIO,
    stdin: BinaryIO,
    output: str,
    width: int,
    program: str,
    domain: str = DEFAULT_DOMAIN,
    now: datetime | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> int:
    """Run `match` and return its exit status.

    `cluster` is called only where a cluster is needed and returns `None` where none is configured; `local` tells
    of this machine. `output` is `table`, `json` or `yaml`, `width` the columns of a table; errors start with `program`.
    """
    try:
        inputs = read_inputs(args.filename, stdin)

        def connect() -> ClusterReader | None:
            found = None if args.no_cluster else cluster()
            return None if found is None else ClusterReader(found, Progress(stderr, monotonic))

        run = _Run(
            args=args,
            sources=Sources(
                inputs=inputs, connect=connect, local=local, domain=domain, namespace=args.namespace
            ),
            output=output,
            width=width,
            options=Options(
                policy=args.policy,
                allow_partitions=args.allow_partitions,
                allow_sharing=args.allow_sharing,
                now=now or datetime.now(UTC),
                domain=domain,
            ),
            stdout=stdout,
            stderr=stderr,
        )
        if args.names[:1] == [LINT]:
            return _lint(run)
        refuse_bad_values(inputs, domain=domain)
        return _match(run)
    except InputError as error:
        # An input has as many lines as values that cannot be used.
        print(*(f"{program}: {line}" for line in str(error).splitlines()), sep="\n", file=stderr)
        return EXIT_BAD_INPUT
    except ClusterError as error:
        print(f"{program}: the cluster could not be read: {error}", file=stderr)
        return EXIT_CLUSTER


def _match(run: _Run) -> int:
    args = run.args
    model = ModelFlags(name=args.model, parameters=args.params, precision=args.precision)
    subjects = run.sources.subjects(args.names, model)
    _refuse(subjects)
    found = run.sources.hardware()
    if args.patch:
        return _patch(run, subjects, found)
    answers = [_answer(subject, found, run.options) for subject in subjects]
    if args.explain is not None:
        _explain(run, answers)
    else:
        _print_answers(run, answers, found)
    return EXIT_STATUS[min((answer.verdict for answer in answers), key=_WORST_FIRST.index)]


def _answer(subject: Subject, found: Found, options: Options) -> Answer:
    answer = answer_for(subject, found.hardware, options)
    return replace(answer, findings=(*answer.findings, *found.findings))


def _refuse(subjects: Sequence[Subject]) -> None:
    """Refuse what came from the cluster and cannot be used; of files that is done with their lines."""
    for subject in subjects:
        if subject.problems:
            listed = "; ".join(f"{problem.path}: {problem.message}" for problem in subject.problems)
            raise InputError(f"{subject.title}: {listed}")


def _print_answers(run: _Run, answers: Sequence[Answer], found: Found) -> None:
    ome = [_ome(answer, found, run.options) if run.args.ome else None for answer in answers]
    if run.output != "table":
        pairs = zip(answers, ome, strict=True)
        _dump(run, [answer_document(answer, of_ome) for answer, of_ome in pairs])
        return
    texts = [
        answer_text(answer, width=run.width, nodes=run.args.nodes, ome=of_ome)
        for answer, of_ome in zip(answers, ome, strict=True)
    ]
    print("\n\n".join(texts), file=run.stdout)


def _ome(answer: Answer, found: Found, options: Options) -> OmeAnswer:
    subject = answer.subject
    classes = {str(obj["metadata"]["name"]): ome_class(obj) for obj in found.classes}
    return ome_answer(subject.runtime, subject.service, subject.component, classes, policy=options.policy)


def _explain(run: _Run, answers: Sequence[Answer]) -> None:
    wanted = run.args.explain
    names = [one.facts.name for one in answers[0].classes]
    name = same_name(wanted, names)
    if name is None:
        raise InputError(f"--explain {wanted}: there is no such class{did_you_mean(wanted, names)}")
    if run.output == "table":
        print("\n\n".join(explain_text(answer, name, width=run.width) for answer in answers), file=run.stdout)
        return
    documents = []
    for answer in answers:
        document = answer_document(answer)
        document["classes"] = [one for one in document["classes"] if one["name"] == name]
        document["nodes"] = [one for one in document["nodes"] if one["class"] == name]
        documents.append(document)
    _dump(run, documents)


def _patch(run: _Run, subjects: Sequence[Subject], found: Found) -> int:
    """Print one patch; where no class fits print none, and say so."""
    if len(subjects) != 1:
        listed = ", ".join(subject.title for subject in subjects)
        raise InputError(f"--patch is for one runtime or service; name one of {listed}")
    patch = patch_for(subjects[0], found.hardware, run.options)
    if subjects[0].runtime is None:
        raise InputError(f"--patch: the runtime of {subjects[0].title} is not known")
    if not patch.classes:
        print(
            f"no class fits {subjects[0].title}, whatever its runtime lists; there is nothing to patch",
            file=run.stderr,
        )
        return EXIT_STATUS[patch.verdict]
    _dump(run, patch.body)
    kind, _, name = patch.target.partition("/")
    print(
        f"apply it with: kubectl patch {kind.lower()} {name} --type merge --patch-file FILE", file=run.stderr
    )
    return 0


def _lint(run: _Run) -> int:
    sources, wanted = run.sources, set(run.args.names[1:])
    inputs = sources.inputs
    objects: list[Mapping[str, Any]] = [document.value for document in inputs.documents]
    if not objects and sources.reader is not None:
        reader = sources.reader
        objects = [
            *reader.classes(),
            *reader.runtimes(sources.namespace),
            *reader.services(sources.namespace),
        ]
    if wanted:
        objects = [obj for obj in objects if obj["metadata"]["name"] in wanted]
    services = [obj for obj in objects if obj["kind"] == "InferenceService"]
    named = [found for service in services if (found := sources.runtime_for(service)) is not None]
    reports = lint_reports(
        objects,
        classes=sources.class_objects(),
        runtimes=[*sources.runtimes(), *named],
        nodes=sources.node_views(),
        domain=run.options.domain,
    )
    if not reports:
        raise InputError("nothing to lint: give runtimes, services or classes with -f")
    if run.output == "table":
        print(lint_text(reports, width=run.width), file=run.stdout)
    else:
        _dump(run, lint_document(reports))
    return EXIT_FINDINGS if _serious(reports) else 0


def _serious(reports: Sequence[LintReport]) -> bool:
    return any(finding.severity != "info" for report in reports for finding in report.findings)


def _dump(run: _Run, value: object) -> None:
    print(dump(value, run.output), file=run.stdout)
