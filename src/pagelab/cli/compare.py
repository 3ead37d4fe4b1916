"""``pagelab compare``: two studies, before and after, or two commands, their executions interleaved."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagelab import terminal
from pagelab.cli.habits import REFUSED
from pagelab.cli.options import (
    JUDGE,
    MEASURE,
    OUTPUT,
    WHAT,
    Backends,
    CoRun,
    Fetch,
    Frames,
    MeasureRegex,
    Pages,
    Policies,
    Seed,
    Timeout,
    Variables,
)
from pagelab.cli.run_settings import compared
from pagelab.cli.settings import NOTHING, Typed, given
from pagelab.cli.times import minutes as minutes_of
from pagelab.errors import quoted

if TYPE_CHECKING:
    from pagelab.analysis.compare import Comparison
    from pagelab.analysis.data import StudyData
    from pagelab.study.claim import Claimed
    from pagelab.study.pair import Pair
    from pagelab.study.plan import Condition
    from pagelab.study.sides import Sides

EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}
_EXECUTIONS = 20


@compared
def compare_command(
    base: Annotated[str, typer.Argument(metavar="A", help="Directory of the study before; or a command, in quotes.")],
    new: Annotated[
        str | None,
        typer.Argument(
            metavar="B", help="Directory of the study after; or a command, in quotes; none: A under two settings."
        ),
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
            "--metric",
            metavar="NAME",
            help="wall_s, cpu_s, measure.NAME ... (default: the study's own; of commands wall_s, or cpu_s if they only "
            "wait for a processor).",
            rich_help_panel=MEASURE,
        ),
    ] = None,
    executions: Annotated[
        int | None,
        typer.Option(
            "--executions", "-n", metavar="N", help=f"Of each command (default: {_EXECUTIONS}).", rich_help_panel=WHAT
        ),
    ] = None,
    pages: Pages = None,
    fetch: Fetch = None,
    frames: Frames = None,
    backend: Backends = None,
    policy: Policies = None,
    env: Variables = None,
    settings: Typed = NOTHING,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            "-m",
            parser=minutes_of,
            metavar="N",
            help="Time instead of a number: as many executions of each as fit.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    co_run: CoRun = False,
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
    level: Annotated[
        float | None,
        typer.Option(
            "--level", help="Confidence level (default: the study's own; of commands 0.95).", rich_help_panel=JUDGE
        ),
    ] = None,
    seed: Seed = 1,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the comparison as JSON (pagelab.compare/1).", rich_help_panel=OUTPUT),
    ] = False,
) -> None:
    """Compare two studies of the same conditions, or two commands: the change from A to B, with its confidence.

    Studies: every condition that both have, by name, and what differs between their machines. Commands: both are run
    many times, interleaved in pairs, and B is judged against the A beside it; so is one command under two settings,
    where an option is given twice. Mean, non-determinism in measurement,
    unclassified, and in execution, each with its interval and the change in percent.

    Exit codes: 0 passed (or no limit was given), 1 a limit is exceeded, 2 bad input (a command that fails, too),
    3 inconclusive.

    **Examples**

        pagelab compare "./old input" "./new input" --fail-if "ratio>3%"

        pagelab compare "sort -n numbers" --pages 4K --pages 2M --fail-if "ratio>3%"

        pagelab compare before.study after.study --fail-if "mean>3%" --fail-if "execution>50%"

        pagelab compare before.study after.study --metric measure.fft --json > change.json
    """
    from pagelab.analysis.compare import Settings, compare
    from pagelab.analysis.gates import parse_gate
    from pagelab.cli.sides import are_studies, settings_of, typed
    from pagelab.errors import BadInputError
    from pagelab.study.pair import Pair
    from pagelab.study.plan import CO_RUN
    from pagelab.study.sides import LEVEL, imported, kept

    if level is not None and not 0.5 < level <= 0.9999:
        raise BadInputError(f"--level {level}: not above 0.5, up to 0.9999")
    if not 0 <= seed < 2**63:
        raise BadInputError(f"--seed {seed}: not within 0 ... 2**63 - 1")
    if executions is not None and minutes is not None:
        raise BadInputError("--executions and --minutes exclude each other: each decides how many executions there are")
    gates = tuple(parse_gate(text) for text in fail_if or [])
    axes = given(
        {"pages": pages, "fetch": fetch, "frames": frames, "backend": backend, "policy": policy, "env": env, **settings}
    )
    if are_studies(base, new):
        single = {
            "executions": executions,
            "minutes": minutes,
            "timeout": timeout,
            "measure-regex": measure_regex,
            "into": into,
            "co-run": co_run or None,
        }
        stray = [f"--{name}" for name in (*axes, *(name for name, value in single.items() if value is not None))]
        if stray:
            raise BadInputError(f"{', '.join(stray)}: only for commands; {base} is a study, and has run")
        data = studies(base, new)
        why = CO_RUN if data[0].plan.co_run else ""
        sides = None if new is not None else (kept if data[0].origin is None else imported)(data[0].plan)
    else:
        sides = typed(base, new, axes)
        pair = Pair(
            commands=(sides[0].command, sides[1].command),
            cwd=str(Path.cwd()),
            settings=settings_of(sides),
            executions=executions if executions is not None else _EXECUTIONS,
            minutes=minutes,
            seed=seed,
            metric=metric,
            level=LEVEL if level is None else level,
            regex=measure_regex,
            timeout_s=timeout,
            co_run=co_run,
        )
        data, why = run_commands(pair, into)
    judged = Settings(level=data[0].plan.level if level is None else level, seed=seed)
    found = compare(*data, gates=gates, metric=metric, settings=judged, one_study=sides is not None)
    _say(found, data[0], sides, why, judged.level, as_json)
    if into is not None and found.judgements:
        from pagelab.analysis.limits import keep_limits
        from pagelab.study.store import Store

        with Store.open(into) as store:
            keep_limits(store, [one.as_limit() for one in found.judgements])
    if into is not None and not as_json:
        terminal.echo(
            f"all executions: pagelab report {quoted(into)}; compare them again: pagelab compare {quoted(into)}"
        )
    raise typer.Exit(EXIT[found.outcome])


def _refuse_unquoted(values: dict[str, Any], rest: list[str], _context: object) -> None:
    """Refuses the words of one command as they are typed in a shell, and names the two ways to write them."""
    from pagelab.errors import BadInputError

    base, new, executions = (values.get(name) for name in ("base", "new", "executions"))
    if not isinstance(base, str) or " " in base or Path(base).exists():
        return
    if rest:
        words = [base, *([new] if isinstance(new, str) else []), *rest]
    elif not isinstance(new, str) and isinstance(executions, str) and not executions.lstrip("+-").isdigit():
        words = [base, "-n", executions]
    else:
        return
    command = shlex.join(words)
    quoted = f'"{command}"' if not set(command) & set('"$`\\') else shlex.quote(command)
    raise BadInputError(
        f'pagelab compare takes each command as one argument, in quotes: pagelab compare {quoted} "OTHER"; for two '
        f"settings of one command: pagelab try --pages 4K --pages 2M -- {command}"
    )


setattr(compare_command, REFUSED, _refuse_unquoted)


def _say(found: Comparison, data: StudyData, sides: Sides | None, why: str, level: float, as_json: bool) -> None:
    """Prints the comparison. ``why``: why a metric other than wall time is compared, if the user named none.

    ``level``: the level as it is asked for, before any looks.
    """
    if as_json:
        from pagelab.analysis.compare_document import document

        commands, ran = _document_sides(data, sides) if sides and data.origin is None else (None, None)
        answer_document = document(found, commands, ran, why)
        terminal.echo(answer_document.model_dump_json(by_alias=True, indent=1))
        return
    from pagelab.cli.compare_text import text

    again = None if sides is None or data.origin is not None else _again(found, data, sides, level)
    terminal.echo(text(found, sides, again, why))


def _document_sides(data: StudyData, sides: Sides) -> tuple[tuple[str, str], tuple[Condition, Condition]]:
    a, b = data.plan.conditions
    return (sides[0].command, sides[1].command), (a, b)


def _again(found: Comparison, data: StudyData, sides: Sides, level: float) -> str | None:
    """The command line of this comparison, without the number of executions."""
    from pagelab.study.sides import again, measured

    words = again(sides)
    if words is None:
        return None
    plan = data.plan.model_copy(update={"metric": found.metric.name, "level": level})
    return shlex.join([*words, *measured(plan)])


def studies(base: str, new: str | None) -> tuple[StudyData, StudyData]:
    """The data of both studies; without ``new``, the data of the two commands that ran in the directory ``base``."""
    from pagelab.analysis.compare import sides_of
    from pagelab.analysis.data import load
    from pagelab.study.store import Store

    found = []
    for name in (base, new):
        if name is not None:
            with Store.open(Path(name), write=False) as store:
                found.append(load(store))
    return sides_of(found[0]) if len(found) == 1 else (found[0], found[1])


def run_commands(pair: Pair, into: Path | None) -> tuple[tuple[StudyData, StudyData], str]:
    """Runs both commands; returns the data of each, and why a metric other than wall time is compared.

    Without ``into`` the study is deleted.
    """
    import tempfile

    from pagelab.errors import BadInputError
    from pagelab.study.claim import Claimed, claim
    from pagelab.study.launching import local_tools
    from pagelab.study.pair import run_pair
    from pagelab.study.prepare import TRIAL
    from pagelab.study.progress import for_terminal

    if not 2 <= pair.executions <= 100_000:
        raise BadInputError(f"--executions {pair.executions}: not within 2 ... 100000 (one execution has no spread)")
    with tempfile.TemporaryDirectory(prefix="pagelab-compare-") as temporary:
        place = Claimed(Path(temporary) / "study", existed=False) if into is None else claim(into, TRIAL)
        if place is None:
            raise BadInputError(
                f"--into {into}: it exists; if it is a study, compare its executions with: "
                f"pagelab compare {quoted(into or '')}; else name another directory"
            )
        directory = place.path.resolve()
        with _told_what_is_kept(place, into):
            why = run_pair(pair, directory, local_tools(by_option=True), for_terminal())
        return studies(str(directory), None), why


@contextmanager
def _told_what_is_kept(place: Claimed, into: Path | None) -> Iterator[None]:
    """Removes what is no study yet, or one that nothing continues; names no command for a study that is not kept."""
    from pagelab.study.errors import FullDiskError, StudyInterruptedError
    from pagelab.study.pair import TooShortError
    from pagelab.study.store import NAME

    try:
        yield
    except BaseException as error:
        if into is not None and (place.path / NAME).exists() and not isinstance(error, TooShortError):
            raise
        place.clear()
        if isinstance(error, StudyInterruptedError):
            advice = "begin with --into DIR to be able to continue" if into is None else "run the same command again"
            raise StudyInterruptedError(f"{error.stopped}; nothing is kept; {advice}", error.stopped) from None
        if isinstance(error, FullDiskError):
            # A temporary directory goes with the command.
            raise error.without_study(place.path.resolve().parent if into else place.path.parent.parent) from None
        raise
