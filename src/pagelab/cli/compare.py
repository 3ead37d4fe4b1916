"""``pagelab compare``: two studies, before and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pagelab.analysis.compare import Compared, Comparison
    from pagelab.analysis.model import Metric as Column
    from pagelab.stats.nondeterminism import Change, Estimate, Refused

EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}
_SHOWN = 20
"""Machine differences shown; all of them are in the JSON."""


def compare_command(
    base: Annotated[Path, typer.Argument(metavar="A", help="Directory of the study before.")],
    new: Annotated[Path, typer.Argument(metavar="B", help="Directory of the study after.")],
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="EXPR",
            help='Fail when B differs from A by more: "mean>3%"; metrics mean, measurement, unclassified, execution; '
            "< for falls; repeat for several.",
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", metavar="NAME", help="wall_s, measure.NAME ... (default: A's own).")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Confidence level.")] = 0.95,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of the bootstrap: the same seed gives the same digits.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON (pagelab.compare/1).")] = False,
) -> None:
    """Compare two studies of the same conditions: what changed from A to B, how surely, and whether the machine did.

    Every condition that both have, by name: mean, non-determinism in measurement, unclassified, and in execution, each
    with its interval and the change in percent.

    Exit codes: 0 passed (or nothing was to be judged), 1 a limit is exceeded, 2 bad input, 3 inconclusive.

    **Examples**

        pagelab compare before.study after.study

        pagelab compare before.study after.study --fail-if "mean>3%" --fail-if "execution>50%"

        pagelab compare before.study after.study --metric measure.fft --json > change.json
    """
    import json

    from pagelab.analysis.compare import Settings, compare, document
    from pagelab.analysis.data import load
    from pagelab.analysis.gates import parse_gate
    from pagelab.errors import BadInputError
    from pagelab.study.store import Store

    if not 0.5 <= level <= 0.9999:
        raise BadInputError(f"--level {level}: not within 0.5 ... 0.9999")
    if not 0 <= seed < 2**64:
        raise BadInputError(f"--seed {seed}: not within 0 ... 2**64 - 1")
    gates = tuple(parse_gate(text) for text in fail_if or [])
    studies = []
    for directory in (base, new):
        with Store.open(directory, write=False) as store:
            studies.append(load(store))
    found = compare(*studies, gates=gates, metric=metric, settings=Settings(level=level, seed=seed))
    typer.echo(json.dumps(document(found), indent=1, ensure_ascii=False) if as_json else _text(found))
    raise typer.Exit(EXIT[found.outcome])


def _text(found: Comparison) -> str:
    from pagelab.analysis import wording

    lines = [f"{found.metric.label}, B against A; intervals at {wording.level(found.level)}"]
    if found.gate_level != found.level:
        count = len(found.judgements)
        lines[0] += f", changes at {wording.level(round(found.gate_level, 6))} (divided over {count} judgements)"
    for one in found.compared:
        lines += ["", *_condition(one, found.metric)]
    lines += ["", *_notes(found)]
    for judgement in found.judgements:
        lines.append(f"{judgement.outcome}: {judgement.gate.text} in {judgement.condition}: {judgement.reason}")
    return "\n".join(lines)


def _condition(one: Compared, column: Column) -> list[str]:
    table = one.found.table
    lines = [f"{one.condition}: {table.executions[0]} executions in A, {table.executions[1]} in B"]
    lines += [f"  {_LABEL[change.metric.value]:<16}{_change(change, column)}" for change in one.found.changes]
    for i, side in enumerate("AB"):
        lines += [f"  note on {side}: {caution.message}" for caution in table.cautions(i)]
    return lines + [f"  left out of {note}" for note in one.left_out]


_LABEL = {
    "mean-response-time": "mean",
    "nondeterminism-in-measurement": "measurement",
    "unclassified-nondeterminism": "unclassified",
    "nondeterminism-in-execution": "execution",
}


def _change(change: Change, column: Column) -> str:
    from pagelab.stats.nondeterminism import Refused

    before, after = (_value(change, side, column) for side in (change.base, change.new))
    if isinstance(change.percent, Refused):
        return f"{before} → {after}: {change.percent.message}"
    from pagelab.analysis import wording

    interval = change.percent.interval
    ends = f"{wording.percent(interval.low / 100)} to {wording.percent(interval.high / 100)}"
    verdict = {"lower": ", lower", "higher": ", higher", "undecided": ""}[change.verdict]
    return f"{before} → {after}: {wording.percent(change.percent.value / 100)} ({ends}){verdict}"


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
