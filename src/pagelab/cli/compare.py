"""``pagelab compare``: two studies, before and after, or two commands, their executions interleaved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.cli.options import JUDGE, MEASURE, OUTPUT, WHAT, Cpu, Level, MeasureRegex, Seed, Timeout

if TYPE_CHECKING:
    from pagelab.analysis.compare import Compared, Comparison, InPairs
    from pagelab.analysis.data import StudyData
    from pagelab.analysis.model import Metric as Column
    from pagelab.stats.nondeterminism import Change, Estimate, Refused
    from pagelab.study.pair import Pair

EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}
_SHOWN = 20
"""Machine differences shown; all of them are in the JSON."""
_EXECUTIONS = 20


def compare_command(
    base: Annotated[str, typer.Argument(metavar="A", help="Directory of the study before; or a command, in quotes.")],
    new: Annotated[
        str | None, typer.Argument(metavar="B", help="Directory of the study after; or a command, in quotes.")
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="EXPR",
            help='Fail when B differs from A by more: "mean>3%"; metrics ratio (of two commands), mean, measurement, '
            "unclassified, execution; < for falls; repeat for several.",
            rich_help_panel=JUDGE,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric", metavar="NAME", help="wall_s, measure.NAME ... (default: A's own).", rich_help_panel=MEASURE
        ),
    ] = None,
    executions: Annotated[
        int | None,
        typer.Option(
            "--executions", "-n", metavar="N", help=f"Of each command (default: {_EXECUTIONS}).", rich_help_panel=WHAT
        ),
    ] = None,
    cpu: Cpu = None,
    timeout: Timeout = None,
    measure_regex: MeasureRegex = None,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="DIR",
            help="Keep the executions of the commands as a study (default: not kept).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    level: Level = 0.95,
    seed: Seed = 1,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the comparison as JSON (pagelab.compare/1).", rich_help_panel=OUTPUT),
    ] = False,
) -> None:
    """Compare two studies of the same conditions, or two commands: what changed from A to B, and how surely.

    Studies: every condition that both have, by name, and what differs between their machines. Commands: both are run
    many times, interleaved in pairs, and B is judged against the A beside it. Mean, non-determinism in measurement,
    unclassified, and in execution, each with its interval and the change in percent.

    Exit codes: 0 passed (or nothing was to be judged), 1 a limit is exceeded, 2 bad input (a command that fails, too),
    3 inconclusive.

    **Examples**

        pagelab compare "./old input" "./new input" --fail-if "ratio>3%"

        pagelab compare before.study after.study --fail-if "mean>3%" --fail-if "execution>50%"

        pagelab compare before.study after.study --metric measure.fft --json > change.json
    """
    from pagelab.analysis.compare import Settings, compare
    from pagelab.analysis.compare_document import document
    from pagelab.analysis.gates import parse_gate
    from pagelab.cli.options import cpus_of
    from pagelab.errors import BadInputError
    from pagelab.study.pair import Pair

    if not 0.5 <= level <= 0.9999:
        raise BadInputError(f"--level {level}: not within 0.5 ... 0.9999")
    if not 0 <= seed < 2**63:
        raise BadInputError(f"--seed {seed}: not within 0 ... 2**63 - 1")
    gates = tuple(parse_gate(text) for text in fail_if or [])
    given = {"executions": executions, "cpu": cpu, "timeout": timeout, "measure-regex": measure_regex, "into": into}
    if are_studies(base, new):
        stray = [f"--{name}" for name, value in given.items() if value is not None]
        if stray:
            raise BadInputError(f"{', '.join(stray)}: only for commands; {base} is a study, and has run")
        sides = studies(base, new)
        commands = None if new is not None else commands_of(sides[0])
    else:
        assert new is not None
        pair = Pair(
            commands=(base, new),
            cwd=str(Path.cwd()),
            executions=executions if executions is not None else _EXECUTIONS,
            seed=seed,
            metric=metric,
            regex=measure_regex,
            timeout_s=timeout,
            cpus=tuple(cpus_of(cpu)) or None,
        )
        sides, commands = run_commands(pair, into), (base, new)
    settings = Settings(level=level, seed=seed)
    found = compare(*sides, gates=gates, metric=metric, settings=settings, interleaved=commands is not None)
    if as_json:
        terminal.echo(document(found, commands).model_dump_json(by_alias=True, indent=1))
    else:
        terminal.echo(_text(found, commands))
        if into is not None:
            terminal.echo(f"all executions: pagelab report {into}; compare them again: pagelab compare {into}")
    raise typer.Exit(EXIT[found.outcome])


def are_studies(base: str, new: str | None) -> bool:
    """Whether studies are named; two directories are, two other things are commands. One of each is bad input."""
    from pagelab.errors import BadInputError

    names = [name for name in (base, new) if name is not None]
    here = [bool(name) and (Path(name).is_dir() or name.endswith("study.db")) for name in names]
    if new is None and not here[0]:
        raise BadInputError(f'compare {base} with what? Such as: pagelab compare "{base}" "./new"')
    if len(set(here)) == 2:
        study, other = (base, new) if here[0] else (new, base)
        raise BadInputError(
            f"{study} is a directory and {other} is none: name two studies, or two commands in quotes; a program that "
            f"has a directory's name: ./{study}"
        )
    return here[0]


def studies(base: str, new: str | None) -> tuple[StudyData, StudyData]:
    """The data of both; of one directory, the two commands that ran there."""
    from pagelab.analysis.compare import sides_of
    from pagelab.analysis.data import load
    from pagelab.study.store import Store

    found = []
    for name in (base, new):
        if name is not None:
            with Store.open(Path(name), write=False) as store:
                found.append(load(store))
    return sides_of(found[0]) if len(found) == 1 else (found[0], found[1])


def commands_of(data: StudyData) -> tuple[str, str]:
    """The two commands that ran in one study."""
    import shlex

    first, second = (shlex.join(one.argv) for one in data.plan.conditions)
    return first, second


def run_commands(pair: Pair, into: Path | None) -> tuple[StudyData, StudyData]:
    """Runs both, and the data of each. Without ``into`` nothing of it stays."""
    import tempfile

    from pagelab.errors import BadInputError
    from pagelab.study.launching import local_tools
    from pagelab.study.pair import run_pair
    from pagelab.study.progress import for_terminal

    if not 2 <= pair.executions <= 100_000:
        raise BadInputError(f"--executions {pair.executions}: not within 2 ... 100000 (one execution has no spread)")
    if into is not None and into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise BadInputError(f"--into {into}: it exists; compare what is in it with: pagelab compare {into}")
    with tempfile.TemporaryDirectory(prefix="pagelab-compare-") as temporary:
        directory = (into or Path(temporary) / "study").resolve()
        run_pair(pair, directory, local_tools(), for_terminal())
        return studies(str(directory), None)


def _text(found: Comparison, commands: tuple[str, str] | None) -> str:
    from pagelab.analysis import wording

    lines = [f"{found.metric.label}, B against A; intervals at {wording.level(found.level)}"]
    if found.gate_level != found.level:
        count = len(found.judgements)
        lines[0] += f", changes at {wording.level(round(found.gate_level, 6))} (divided over {count} judgements)"
    if commands:
        lines = [f"A: {commands[0]}", f"B: {commands[1]}", *lines]
    for one in found.compared:
        if one.in_pairs is not None and commands is not None:
            lines[2:] = [*_headline(one.in_pairs, found, commands), "", *lines[2:]]
        lines += ["", *_condition(one, found.metric)]
    lines += ["", *_notes(found)]
    for judgement in found.judgements:
        lines.append(f"{judgement.outcome}: {judgement.gate.text} in {judgement.condition}: {judgement.reason}")
    return "\n".join(lines)


def _headline(found: InPairs, whole: Comparison, commands: tuple[str, str]) -> list[str]:
    """``B is 45.6% slower than A (44.2–47.1%)``, and how surely; or that it cannot be told, and what it would take."""
    import shlex

    from pagelab.analysis import answer, wording

    told = found.answer
    lines = [f"{answer.sentence(told, whole.metric, 'B', 'A')} ({', '.join(answer.facts(told))})"]
    again = shlex.join(["pagelab", "compare", *commands])
    more = answer.more(told, found.seconds_a_block, lambda n: f"{again} --executions {n}")
    lines += [more] if more else []
    if found.narrower is not None and found.narrower >= 1:
        lines.append("blocks did not pay: executions of one pair differ as much as any two")
    if found.pairs.left_out:
        lines.append(f"{wording.count(found.pairs.left_out, 'execution')} without a partner in the same block left out")
    return lines


def _condition(one: Compared, column: Column) -> list[str]:
    from pagelab.stats import coverage

    table = one.found.table
    lines = [f"{one.condition}: {table.executions[0]} executions in A, {table.executions[1]} in B"]
    lines += [f"  {_LABEL[change.metric.value]:<16}{_change(change, column, one)}" for change in one.found.changes]
    told = coverage.told((int(count) for count in table.executions), coverage.RATIOS)
    lines += [f"  {told}"] if told else []
    notes: dict[str, list[str]] = {}
    for i, side in enumerate("AB"):
        for caution in table.cautions(i):
            notes.setdefault(caution.message, []).append(side)
    lines += [f"  note on {' and '.join(sides)}: {message}" for message, sides in notes.items()]
    return lines + [f"  left out of {note}" for note in one.left_out]


_VERDICT = {
    "lower": ", lower",
    "higher": ", higher",
    "undecided": "",
    "cannot-tell": ", cannot tell: fewer than 6 executions",
}
_LABEL = {
    "mean-response-time": "mean",
    "nondeterminism-in-measurement": "measurement",
    "unclassified-nondeterminism": "unclassified",
    "nondeterminism-in-execution": "execution",
}


def _change(change: Change, column: Column, one: Compared) -> str:
    from pagelab.stats.nondeterminism import Metric, Refused

    before, after = (_value(change, side, column) for side in (change.base, change.new))
    if isinstance(change.percent, Refused):
        return f"{before} → {after}: {change.percent.message}"
    from pagelab.analysis import wording

    value, interval = change.percent.value, change.percent.interval
    if one.in_pairs is not None and change.metric is Metric.MEAN:
        if isinstance(one.in_pairs.mean, str):
            return f"{before} → {after}: {one.in_pairs.mean}"
        value, interval = one.in_pairs.mean.percent, one.in_pairs.mean.interval
    ends = f"{wording.percent(interval.low / 100)} to {wording.percent(interval.high / 100)}"
    # Of pairs, the first line has the verdict: by another rule a second could contradict it.
    verdict = "" if one.in_pairs is not None else _VERDICT[change.verdict]
    return f"{before} → {after}: {wording.percent(value / 100)} ({ends}){verdict}"


def _value(change: Change, side: Estimate | Refused, column: Column) -> str:
    from pagelab.analysis import wording
    from pagelab.stats.nondeterminism import Metric, Refused

    if isinstance(side, Refused):
        return "–"
    if change.metric is Metric.MEAN:
        return wording.quantity(side.value, column)
    if change.metric is Metric.EXECUTION:
        return f"{wording.digits(side.value)} times"
    return wording.percent(side.value, signed=False)


def _notes(found: Comparison) -> list[str]:
    lines = [f"not compared: {name}: {reason}" for name, reason in found.refused]
    for side, names in (("A", found.only_base), ("B", found.only_new)):
        if names:
            lines.append(f"only in {side}: {', '.join(names)}")
    if not found.same_plan:
        lines.append("the two studies were planned differently")
    if found.machine is None:
        lines.append("whether the machine changed is not known: a study has no record of it")
    elif not found.machine:
        lines.append("the machine is the same in all that is recorded")
    else:
        lines.append(f"the machine differs in {len(found.machine)} facts:")
        lines += [f"  {one.key}: {one.base} → {one.new}" for one in found.machine[:_SHOWN]]
        if len(found.machine) > _SHOWN:
            lines.append(f"  … and {len(found.machine) - _SHOWN} more; see them with --json")
    return lines
