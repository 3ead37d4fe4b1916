"""``pagelab advise``: where a program's huge pages should go, what that gains, and a check of it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.cli.options import (
    MEASURE,
    OUTPUT,
    WHAT,
    MeasureRegex,
    Minutes,
    OneMetric,
    Seed,
    Timeout,
    checked,
    command_words,
    free_directory,
)
from pagelab.cli.times import seconds as seconds_of
from pagelab.errors import BadInputError

if TYPE_CHECKING:
    from pagelab.advise.document import AdviceDocument
    from pagelab.advise.evidence import Evidence

_BAR = 30
"""Columns of the longest bar."""
_REGIONS = 24
"""Lines of regions by misses."""
_NAME = 60
"""Characters of a command in a heading."""


def advise_command(
    context: typer.Context,
    argv: Annotated[
        list[str] | None,
        typer.Argument(metavar="[--] CMD...", help="The program and its arguments.", callback=command_words),
    ] = None,
    pid: Annotated[
        int | None,
        typer.Option(
            "--pid",
            metavar="PID",
            help="A running process: advice by the memory that it touches.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            parser=seconds_of,
            metavar="S",
            help="How long --pid watches (default: 5).",
            rich_help_panel=WHAT,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="SIZE", help="Huge pages that may be used: 128M.", rich_help_panel=WHAT),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE", help="Take misses from a trace of the same command.", rich_help_panel=MEASURE
        ),
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option(
            "--samples", metavar="FILE", help="Take misses from the output of perf script.", rich_help_panel=MEASURE
        ),
    ] = None,
    processor: Annotated[
        str | None,
        typer.Option(
            "--processor",
            metavar="NAME|FILE",
            help="Processor that is simulated (default: this machine's preset).",
            rich_help_panel=MEASURE,
        ),
    ] = None,
    minutes: Minutes = 5.0,
    timeout: Timeout = None,
    metric: OneMetric = None,
    measure_regex: MeasureRegex = None,
    seed: Seed = 1,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into", metavar="DIR", help="Directory of the advice (default: CMD.advice).", rich_help_panel=OUTPUT
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the advice as JSON (pagelab.advice/1).", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Find the memory of a program that should be in 2M pages, and check the gain.

    Runs the program under random mosaics of its heap and anonymous memory, half of the regions in 2M pages, and
    estimates the gain of each region from all of them; needs neither counters nor a trace. With `--trace` or
    `--samples` the regions with TLB misses are chosen instead, and no mosaic runs. The advice is then
    checked beside the kernel's own way and everything in 2M pages, in executions that had no part in the choice.

    With `--pid` nothing is run: the accessed bits of a process are cleared and read again after some seconds. The
    output lists the memory that was touched, and the command that would collapse it into 2M pages; no gain is promised.

    Exit codes: 0 answered (nothing to gain is an answer), 2 bad input (a command that fails, or that is too long for
    the time), 3 this machine cannot do it.

    **Examples**

        pagelab advise -- ./solver big.in

        pagelab advise --budget 128M --minutes 20 -- ./solver big.in

        pagelab advise --trace solver.trace --budget 128M -- ./solver big.in

        pagelab advise --pid 4242 --seconds 10
    """
    if pid is not None:
        _refuse_with_pid(context, argv)
        terminal.echo(_live(pid, seconds, budget, as_json=as_json))
        return
    if not argv:
        raise BadInputError("nothing to advise on: give a command: pagelab advise -- CMD; or a process: --pid PID")
    if seconds is not None:
        raise BadInputError(f"--seconds {seconds:g}: applies to --pid only; for a command, use --minutes")
    checked(seed=seed, minutes=minutes)
    from pagelab.advise.answer import document
    from pagelab.advise.campaign import FOOTPRINT, Asked, advise
    from pagelab.study.launching import local_tools
    from pagelab.study.progress import for_terminal

    asked = Asked(
        argv=tuple(argv),
        cwd=str(Path.cwd()),
        budget=_budget(budget),
        minutes=minutes,
        seed=seed,
        metric=metric,
        regex=measure_regex,
        timeout_s=timeout,
        evidence=_evidence(trace, samples, processor),
    )
    hint = "it exists and is not empty; choose another directory"
    claimed = free_directory(into, Path(argv[0]).name, ".advice", hint, FOOTPRINT)
    directory = claimed.path
    found = advise(
        asked, directory.resolve(), local_tools(by_option=True), for_terminal(), keep_directory=claimed.existed
    )
    told = document(asked, found, directory)
    terminal.echo(told.model_dump_json(by_alias=True, indent=1) if as_json else _text(told))


_OF_A_COMMAND = ("trace", "samples", "processor", "minutes", "timeout", "metric", "measure_regex", "seed", "into")


def _refuse_with_pid(context: typer.Context, argv: list[str] | None) -> None:
    if argv:
        raise BadInputError(f"--pid and a command ({argv[0]}): give one of them")
    for name in _OF_A_COMMAND:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            option = f"--{name.replace('_', '-')}"
            raise BadInputError(f"{option}: does not apply to --pid, which runs and keeps nothing; leave it out")


def _live(pid: int, seconds: float | None, budget: str | None, *, as_json: bool) -> str:
    watched = 5.0 if seconds is None else seconds
    if not 0.05 <= watched <= 3600:
        raise BadInputError(f"--seconds {watched:g}: not within 0.05 ... 3600")
    from pagelab.advise.live import watch
    from pagelab.analysis import wording

    told = watch(pid, watched, _budget(budget))
    if as_json:
        return told.model_dump_json(by_alias=True, indent=1)
    name = terminal.plain(told.command)
    name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    lines = [told.verdict, "", f"{told.pid} ({name}): private memory, touched within {told.seconds:g} s"]
    kept = sorted(told.regions, key=lambda one: -one.touched_bytes)[:_REGIONS]
    for one in told.regions:
        if one in kept:
            mark = f"  collapse {wording.size(one.collapse_bytes)}" if one.collapse_bytes else ""
            lines.append(
                f"{one.kind:<6} {one.start:#x}-{one.end:#x}  touched {wording.size(one.touched_bytes)} of "
                f"{wording.size(one.resident_bytes)}, {wording.size(one.huge_bytes)} in 2M pages{mark}"
            )
    if len(told.regions) > len(kept):
        lines.append(f"and {len(told.regions) - len(kept)} regions that were touched less")
    if told.left_out_bytes:
        advised = sum(one.collapse_bytes for one in told.regions)
        if told.budget_bytes is not None and told.budget_bytes < advised + (2 << 20):
            room = "the budget has no room for it"
        else:
            room = "it does not fit into one command: run the next one, and then this again"
        lines.append(f"{wording.size(told.left_out_bytes)} more could be collapsed, and {room}")
    if told.collapse is not None:
        if told.more_resident_bytes:
            lines.append(f"it takes {wording.size(told.more_resident_bytes)} more resident memory")
        lines += [f"next: {told.collapse}", "      (process_madvise with MADV_COLLAPSE: Linux 6.1, CAP_SYS_NICE)"]
    return "\n".join(lines)


def _budget(text: str | None) -> int | None:
    if text is None:
        return None
    from pagelab.sizes import size_bytes

    size = size_bytes(text, "--budget")
    if size < 2 << 20:
        raise BadInputError(f"--budget {text}: less than one 2M page; such as --budget 128M")
    return size


def _evidence(trace: Path | None, samples: Path | None, processor: str | None) -> Evidence | None:
    from pagelab.advise.evidence import Evidence

    if trace is not None and samples is not None:
        raise BadInputError("--trace and --samples: misses come from only one of them; leave the other out")
    if processor is not None and trace is None:
        raise BadInputError(f"--processor {processor}: needs a trace to simulate; give one: --trace FILE")
    for option, path in (("--trace", trace), ("--samples", samples)):
        if path is not None and not path.is_file():
            raise BadInputError(f"cannot read {option} {path}: it is no file")
    if trace is None and samples is None:
        return None
    if trace is not None:
        from pagelab.cli.simulate.values import warn_of_killed

        warn_of_killed(trace)
    return Evidence(trace, samples, processor)


def _text(told: AdviceDocument) -> str:
    from pagelab.analysis import wording
    from pagelab.study.launching import tells_noise

    lines = [told.verdict, ""]
    if told.regions and told.evidence != "mosaics":
        source = "simulated from the trace" if told.evidence == "trace" else "sampled"
        lines += [f"{shlex.join(told.command)}: TLB misses of each region in 4K pages, {source}", *_missing(told), ""]
    elif told.regions:
        lines += [
            f"{shlex.join(told.command)}: gain of each region by 2M pages, from {told.executions} executions of "
            f"mosaics in {wording.count(told.rounds, 'round')}",
            *_bars(told),
            "",
        ]
    if told.mostly_empty:
        lines += [told.mostly_empty, ""]
    if told.checked:
        lines += ["checked beside the kernel's own way, in executions that had no part in the choice", *_checks(told)]
    if told.left_out:
        more = "regions gain" if told.evidence == "mosaics" else "tiles of 2 MiB miss"
        lines.append(f"{told.left_out} more {more}, and the budget has no room for them")
    if told.metric_why and (told.regions or told.checked):
        lines.append(f"CPU time is compared: {told.metric_why}")
    lines += [f"warning: {caveat}" for caveat in told.caveats if not tells_noise(caveat)][:1]
    if told.policy:
        beside = " (beside it mosalloc.csv, the same for Mosalloc)" if told.evidence == "mosaics" else ""
        lines.append(f"policy: {told.policy}{beside}")
        lines += _outside(told)
    return "\n".join([*lines, f"next: {told.next}", f"      ({told.why})"])


def _missing(told: AdviceDocument) -> list[str]:
    """One line for each of the regions with most misses, in order of addresses, and the number of the other regions."""
    from pagelab.analysis import wording

    kept = sorted(told.regions, key=lambda one: -(one.misses_percent or 0.0))[:_REGIONS]
    rows = [one for one in told.regions if one in kept]
    names = [f"{one.pool} {one.start_bytes >> 20}–{one.end_bytes >> 20}M" for one in rows]
    width = max(map(len, names))
    longest = max(one.misses_percent or 0.0 for one in rows)
    found = []
    for name, one in zip(names, rows, strict=True):
        share = one.misses_percent or 0.0
        bar = "█" * (round(_BAR * share / longest) if longest else 0)
        mark = "  advised" if one.chosen else ""
        found.append(f"{name:<{width}}  {bar:<{_BAR}}  {wording.percent(share / 100, signed=False):>7}{mark}")
    rest = len(told.regions) - len(rows)
    return [*found, f"and {rest} regions with fewer misses"] if rest else found


def _bars(told: AdviceDocument) -> list[str]:
    """One line per region: its place, a bar as long as its gain, and whether it is advised."""
    from pagelab.analysis import wording
    from pagelab.stats import coverage

    names = [f"{one.pool} {one.start_bytes >> 20}–{one.end_bytes >> 20}M" for one in told.regions]
    width = max(map(len, names))
    longest = max(1.0, *(one.gain_percent or 0.0 for one in told.regions))
    found = []
    for name, one in zip(names, told.regions, strict=True):
        assert one.gain_percent is not None
        assert one.low_percent is not None
        assert one.high_percent is not None
        bar = "█" * max(0, round(_BAR * one.gain_percent / longest))
        interval = f"{wording.end(one.low_percent / 100)} to {wording.end(one.high_percent / 100)}"
        mark = "  advised" if one.chosen else ""
        found.append(f"{name:<{width}}  {bar:<{_BAR}}  {wording.percent(one.gain_percent / 100):>7} ({interval}){mark}")
    return [*found, coverage.GAINS]


def _checks(told: AdviceDocument) -> list[str]:
    from pagelab.cli.forest import Row, forest

    def share(percent: float | None) -> float | None:
        return None if percent is None else percent / 100

    rows = [
        Row(one.condition, share(one.change_percent), share(one.low_percent), share(one.high_percent), one.words)
        for one in told.checked
    ]
    return [*forest(rows), *_promise(told)]


def _promise(told: AdviceDocument) -> list[str]:
    """What was promised and what the check found, both against 4K pages: the kernel's own way may be another."""
    from pagelab.analysis import wording

    if told.promised_percent is None or told.promised_low_percent is None or told.promised_high_percent is None:
        return []
    low, high = told.promised_low_percent / 100, told.promised_high_percent / 100
    line = (
        f"advice against 4K pages: promised a gain of {wording.percent(told.promised_percent / 100)} "
        f"({wording.end(low)} to {wording.end(high)})"
    )
    got = told.promise
    if got is None or not got.pairs:
        return [f"{line}; the check has no whole pair of both"]
    if got.change_percent is None:
        return [f"{line}; got in the check, of {wording.count(got.pairs, 'pair')}: {got.words}"]
    found = f"; got {wording.percent(-got.change_percent / 100)}"
    if got.low_percent is not None and got.high_percent is not None:
        found += f" ({wording.end(-got.high_percent / 100)} to {wording.end(-got.low_percent / 100)})"
    return [f"{line}{found}, {got.kept} what was promised"]


def _outside(told: AdviceDocument) -> list[str]:
    """How to get the same pages without pagelab, where that is possible; and the memory that it and everything in 2M
    pages cost."""
    from pagelab.analysis import wording

    everything = all(one.chosen for one in told.regions)
    lines = []
    if everything and {one.pool for one in told.regions} == {"heap"}:
        lines.append("outside pagelab: GLIBC_TUNABLES=glibc.malloc.hugetlb=1 has malloc ask for the same")
    elif not everything:
        lines.append(
            "outside pagelab: madvise(address, length, MADV_HUGEPAGE) on these blocks, before they are touched"
        )
    more = (told.resident_advice_bytes or 0) - told.resident_base_bytes
    if more > 2 << 20:
        lines.append(f"the advice takes {wording.size(more)} more resident memory than 4K pages")
    more = told.resident_huge_bytes - told.resident_base_bytes
    if more > 2 << 20:
        lines.append(f"everything in 2M pages takes {wording.size(more)} more resident memory than 4K pages")
    return lines
