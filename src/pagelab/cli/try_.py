"""``pagelab try``: one command under several settings, interleaved for a minute, answered in the terminal."""

from __future__ import annotations

import shlex
from math import inf, log1p
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.cli.options import (
    OUTPUT,
    Argv,
    Backends,
    CoRun,
    Fetch,
    Frames,
    Level,
    MeasureRegex,
    Minutes,
    OneMetric,
    Pages,
    Policies,
    Seed,
    Timeout,
    Variables,
    checked,
    free_directory,
)
from pagelab.cli.run_settings import compared
from pagelab.cli.settings import FLAGS, NOTHING, POLICY_AXES, Typed, given, setting, shown, variables
from pagelab.errors import BadInputError, PagelabError, quoted

if TYPE_CHECKING:
    from pagelab.analysis import Analysis
    from pagelab.analysis.answer import Answer
    from pagelab.analysis.model import Metric
    from pagelab.analysis.try_document import Setting as Judged
    from pagelab.analysis.try_document import TryDocument
    from pagelab.study.setting import Setting
    from pagelab.study.trying import Pilot, Trying


@compared
def try_command(
    argv: Argv,
    pages: Pages = None,
    fetch: Fetch = None,
    frames: Frames = None,
    backend: Backends = None,
    policy: Policies = None,
    env: Variables = None,
    settings: Typed = NOTHING,
    minutes: Minutes = 1.0,
    co_run: CoRun = False,
    timeout: Timeout = None,
    metric: OneMetric = None,
    measure_regex: MeasureRegex = None,
    level: Level = 0.95,
    seed: Seed = 1,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="DIR", help="Directory of the study.", rich_help_panel=OUTPUT),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the answer as JSON (pagelab.try/1).", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Try a command under several settings of one kind: which is faster, by how much, and with which confidence.

    Each block runs every setting once, in random order; each is compared with the execution of the first setting that
    ran beside it. A first block shows how long one takes; then whole blocks follow until the time is used. Every
    execution is kept, as a study. A setting given once is compared with the kernel's own way.

    Exit codes: 0 answered ("cannot tell" is an answer), 2 bad input (a command that fails, or that is too long for the
    time), 3 this machine cannot do it.

    **Examples**

        pagelab try --pages 4K --pages 2M -- sort -n numbers.txt

        pagelab try --env MALLOC_ARENA_MAX=1 --env MALLOC_ARENA_MAX=8 --minutes 5 -- ./server --bench

        pagelab try --aslr on --aslr off -- python3 job.py
    """
    checked(seed=seed, minutes=minutes, level=level)
    from pagelab.study.errors import FullDiskError, StudyInterruptedError
    from pagelab.study.launching import local_tools
    from pagelab.study.pair import TooShortError
    from pagelab.study.prepare import TRIAL
    from pagelab.study.progress import for_terminal
    from pagelab.study.store import NAME
    from pagelab.study.trying import Trying, run_try

    axes = {
        "pages": pages,
        "fetch": fetch,
        "frames": frames,
        "backend": backend,
        "policy": policy,
        "env": env,
        **settings,
    }
    wanted = Trying(
        argv=tuple(argv),
        cwd=str(Path.cwd()),
        settings=_settings(given(axes)),
        minutes=minutes,
        seed=seed,
        level=level,
        metric=metric,
        regex=measure_regex,
        timeout_s=timeout,
        co_run=co_run,
    )
    hint = f"it exists; see its report: pagelab report {quoted(into or '')}"
    place = free_directory(into, f"try-{Path(argv[0]).name}", ".study", hint, TRIAL)
    directory = place.path
    try:
        pilot, blocks = run_try(wanted, directory.resolve(), local_tools(by_option=True), for_terminal())
    except (PagelabError, KeyboardInterrupt) as error:
        if (directory / NAME).exists() and not isinstance(error, TooShortError):
            raise
        place.clear()
        if isinstance(error, FullDiskError):
            raise error.without_study(directory.resolve().parent) from None
        if not isinstance(error, StudyInterruptedError | KeyboardInterrupt):
            raise
        stopped = error.stopped if isinstance(error, StudyInterruptedError) else "stopped"
        named = [] if into is None else ["--into", str(into)]
        command = shlex.join([*_again(axes, metric, wanted), "--minutes", f"{minutes:g}", *named, "--", *argv])
        raise StudyInterruptedError(
            f"{stopped} before the first comparison; nothing is kept; begin again with: {command}", stopped
        ) from None
    from pagelab.analysis import analyse, load
    from pagelab.study.store import Store

    with Store.open(directory, write=False) as store:
        found = analyse(load(store))
    again = _again(axes, found.primary.name if pilot.metric_why else metric, wanted)
    document = _document(wanted, found, directory, pilot, blocks, again)
    if as_json:
        terminal.echo(document.model_dump_json(by_alias=True, indent=1))
    else:
        terminal.echo(_text(document, found))


def _settings(axes: dict[str, list[str]]) -> tuple[Setting, ...]:
    """The conditions: one for each value of the axis with several values; or the only value against the default."""
    from pagelab.study.setting import KERNEL, Setting

    by_name = variables(axes.get("env", []))
    several = [name for name, values in axes.items() if name != "env" and len(values) > 1]
    several += [f"env {name}" for name, values in by_name.items() if len(values) > 1]
    if len(several) > 1:
        raise BadInputError(
            f"--{several[0].split()[0]} and --{several[1].split()[0]} are both given several times: try one kind at a "
            "time, or cross them in a study: pagelab study init"
        )
    fixed = {name: values[0] for name, values in axes.items() if name != "env" and len(values) == 1}
    always = {name: values[0] for name, values in by_name.items() if len(values) == 1}
    if not several:
        # A backend beside frames says how they are placed, and is no setting of its own.
        beside = {"backend": fixed.pop("backend")} if "backend" in fixed and len(fixed) > 1 else {}
        single = [*fixed, *(f"env {name}" for name in always)]
        if not single:
            raise BadInputError(
                "nothing to try: give settings before the command, such as --pages 4K --pages 2M, or --env A=1 --env "
                "A=2"
            )
        if len(single) > 1:
            raise BadInputError(
                f"{' and '.join('--' + name.split()[0] for name in single)}: which is to be tried? Give it twice, "
                "first with the value to compare with"
            )
        if single[0] in FLAGS and FLAGS[single[0]].kind == "switch":
            other = "off" if fixed[single[0]] == "on" else "on"
            return tuple(_one(single[0], value, {}, {}) for value in (other, fixed[single[0]]))
        return Setting("kernel" if single[0] in POLICY_AXES else "as it is", KERNEL), _one(
            single[0], fixed.get(single[0]) or always[single[0].split()[-1]], beside, {}
        )
    axis = several[0]
    values = by_name[axis.split()[1]] if axis.startswith("env ") else axes[axis]
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise BadInputError(f"--{axis.split()[0]} {twice} is given twice; a setting cannot be compared with itself")
    return tuple(_one(axis, value, fixed, always) for value in values)


def _one(axis: str, value: str, fixed: dict[str, str], always: dict[str, str]) -> Setting:
    """The condition with this value of ``axis``, and the other settings fixed."""
    if axis.startswith("env "):
        name = axis.split()[1]
        return setting(f"{name}={value}", fixed, {**always, name: value})
    return setting(shown(axis, value), {**fixed, axis: value}, always)


def _again(axes: dict[str, list[str] | list[Path] | None], metric: str | None, wanted: Trying) -> list[str]:
    """The command line as it was typed, without its minutes and its program."""
    words = ["pagelab", "try"]
    for name, values in axes.items():
        words += [word for value in values or () for word in (f"--{name}", str(value))]
    words += ["--co-run"] if wanted.co_run else []
    words += ["--metric", metric] if metric else []
    words += ["--measure-regex", wanted.regex] if wanted.regex else []
    words += ["--timeout", f"{wanted.timeout_s:g}"] if wanted.timeout_s is not None else []
    return words + (["--level", f"{wanted.level:g}"] if wanted.level != type(wanted).level else [])


def _document(
    wanted: Trying, found: Analysis, directory: Path, pilot: Pilot, blocks: int, again: list[str]
) -> TryDocument:
    from pagelab.analysis.try_document import TryDocument
    from pagelab.analysis.verdict import judged_of

    judged = {one.contrast.policy: one.answer for one in judged_of(found.compared(), found.design, found.metrics)}
    baseline = wanted.settings[0].name
    answers = [judged[name] for name in wanted.names()[1:]]
    following, why = f"pagelab report {quoted(directory)}", "every execution, and the kernel's placement"
    further = _further(answers, wanted, blocks, pilot, again, directory)
    if further is not None:
        following, why = further
    return TryDocument(
        command=list(wanted.argv),
        baseline=baseline,
        metric=found.primary.name,
        metric_why=pilot.metric_why,
        level=wanted.level,
        minutes=wanted.minutes,
        executions=blocks,
        settings=[
            _judged(answer, setting.name, name, baseline, found.primary)
            for answer, setting, name in zip(answers, wanted.settings[1:], wanted.names()[1:], strict=True)
        ],
        caveats=list(found.caveats),
        study=str(directory),
        next=following,
        why=why,
    )


def _further(
    answers: list[Answer], wanted: Trying, blocks: int, pilot: Pilot, again: list[str], directory: Path
) -> tuple[str, str] | None:
    """The command that would decide the undecided comparisons, and its purpose; None if all are decided."""
    from pagelab.analysis.answer import further, needs
    from pagelab.study.budget import MOST_BLOCKS
    from pagelab.study.progress import shown_duration

    # More executions under a time limit that ended some of them would end as many again.
    missing = [one for one in answers if one.said == "cannot-tell" and not one.late]
    if not missing:
        return None
    widest = max(missing, key=lambda one: further(one, blocks))
    needed = further(widest, blocks)
    if needed <= blocks:
        return None
    aim = needs(widest) if widest.needed else "an answer"
    why = f"{aim} needs about {needed:,} executions of each"
    if needed > MOST_BLOCKS:  # more than any time makes
        command = f"pagelab study resume {quoted(directory)} --executions {needed}"
        longer = shown_duration((needed - blocks) * pilot.block_s)
        return command, f"{why}: {longer} more, and a further look, which is judged more strictly"
    minutes = pilot.minutes_for(needed)
    command = shlex.join([*again, "--minutes", f"{minutes:g}", "--", *wanted.argv])
    return command, f"{why}, {shown_duration(60 * minutes)}"


def _judged(found: Answer, setting: str, name: str, baseline: str, metric: Metric) -> Judged:
    from pagelab.analysis import answer
    from pagelab.analysis.try_document import Setting as Judged
    from pagelab.analysis.try_document import change

    return Judged(
        setting=setting,
        condition=name,
        **change(found, metric),
        seen_percent=None if found.seen is None else 100 * found.seen,
        needed=found.needed,
        sentence=f"{answer.sentence(found, metric, setting, baseline)} ({', '.join(answer.facts(found, metric))}).",
    )


def _text(document: TryDocument, found: Analysis) -> str:
    from pagelab.analysis import wording
    from pagelab.cli.forest import Row, forest
    from pagelab.study.launching import tells_noise

    def share(percent: float | None) -> float | None:
        return None if percent is None else percent / 100

    metric = found.primary
    base = next(c for c in found.design.conditions if c.is_baseline)
    summary = found.summary(base.id, metric.name)
    middle = f"median {wording.quantity(summary.median, metric)}" if summary else "no value"
    rows = [Row(document.baseline, None, None, None, middle)]
    rows += [
        Row(one.setting, share(one.change_percent), share(one.low_percent), share(one.high_percent), one.words)
        for one in sorted(document.settings, key=lambda one: one.change_percent or 0.0)
    ]
    pairs = sorted({one.pairs for one in document.settings})
    numbers = f"{pairs[0]:,} to {pairs[-1]:,} pairs" if len(pairs) > 1 else wording.count(pairs[0], "pair")
    # Fewer pairs than executions: some failed, timed out, or have no value.
    in_pairs = "in pairs" if pairs == [document.executions] else f"{numbers} with both values"
    of_each = f"{wording.count(document.executions, 'execution')} of each, {in_pairs}"
    head = f"{shlex.join(document.command)}: {metric.label}, {of_each}"
    verdict = _first(document)
    lines = [verdict, "", f"{head}; change against {document.baseline}", *forest(rows), ""]
    lines += [f"CPU time is compared: {document.metric_why}"] if document.metric_why else []
    lines += [one.sentence for one in document.settings if one.sentence != verdict]
    # That the machine is not quiet was said when the study began.
    told = f"{document.metric_why[:1].upper()}{document.metric_why[1:]}."
    serious = [caveat for caveat in found.caveats if not tells_noise(caveat) and caveat != told]
    lines += [f"warning: {serious[0]}"] if serious else []
    return "\n".join([*lines, f"next: {document.next}", f"      ({document.why})"])


def _distance(one: Judged) -> float:
    """How far a found change is from none, on the scale of ratios; without a size because of time-outs: farthest."""
    return inf if one.change_percent is None else abs(log1p(max(one.change_percent / 100, -0.999999)))


def _first(document: TryDocument) -> str:
    """The answer: the largest change that was found; else the answer on the only setting; else the common result."""
    found = [one for one in document.settings if one.said in ("lower", "higher")]
    if found:
        return max(found, key=_distance).sentence
    if len(document.settings) == 1:
        return document.settings[0].sentence
    same = sum(one.said == "same" for one in document.settings)
    if same == len(document.settings):
        within = ", within ±3%" if all(one.low_percent is not None for one in document.settings) else ""
        return f"All {same} are the same as {document.baseline}{within}."
    unknown = len(document.settings) - same
    return f"No difference from {document.baseline} was found; {unknown} of {len(document.settings)} cannot be told."
