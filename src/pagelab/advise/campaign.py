"""Runs an advice: footprint, random mosaics, choice, and a check by executions that had no part in the choice.

Studies: ``DIR/footprint`` (one execution in base pages, one in huge pages), ``DIR/mosaics-1`` and so on for the rounds,
``DIR/check``. ``DIR/policy.toml`` is the advice, and ``DIR/mosalloc.csv`` the same for Mosalloc.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import compress
from math import ceil, floor
from pathlib import Path
from time import monotonic

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pagelab import whole_file
from pagelab.advise.choose import Choice, choose
from pagelab.advise.design import SIZES, TILE, Region, mosaics, regions, rows
from pagelab.advise.effects import Effects
from pagelab.advise.evidence import Evidence, chosen, layout, misses, refuse_unfit
from pagelab.advise.screening import FIRST, ROUNDS, Round, blocks_for, estimated, refined
from pagelab.analysis.wording import count
from pagelab.errors import BadInputError, MachineError, PagelabError, quoted
from pagelab.layouts import Layout
from pagelab.layouts.footprint import lacks_huge_pages, no_huge_pages, used
from pagelab.layouts.layout import POOLS
from pagelab.study.budget import MOST_BLOCKS, fewest_of, unknown_time
from pagelab.study.errors import StudyInterruptedError
from pagelab.study.pair import only_measurement, run_own
from pagelab.study.primary import metric_of
from pagelab.study.progress import Progress, Silent, Titled, meanwhile, shown_duration
from pagelab.study.setting import KERNEL, Setting
from pagelab.study.store import Store
from pagelab.study.tools import Tools
from pagelab.study.trying import Trying

FOOTPRINT, MOSAICS, CHECK = "footprint", "mosaics", "check"
POLICY, LAYOUT = "policy.toml", "mosalloc.csv"
BASE, ADVICE = "4K", "advice"
CHECKED = ("kernel", ADVICE, "2M", BASE)
"""Conditions of the check: the kernel's own choice, the advice, everything in huge pages, and what gains are promised
against."""
_EXPLORED = 0.6
"""Share of the time for mosaics; the check has the rest."""
_FEWEST_BLOCKS, _MOST_BLOCKS = 2, 40
_FEWEST_PAIRS = 8
"""Least number of whole pairs over all rounds; fewer give no result."""
_FAR = (1 << 39, (1 << 39) + TILE)
"""A tile in the middle of a pool's 1 TiB, which no program reaches."""
_CANNOT = "no advice can be given"
_APART = "\n".join(f'[[rule]]\nmemory = "{pool}"\npages = "2M"\n' for pool in POOLS)
"""Everything in 2M pages, each kind of memory in a pool of its own."""


@dataclass(frozen=True)
class Asked:
    """The request: the command, the limits and the evidence."""

    argv: tuple[str, ...]
    cwd: str
    budget: int | None = None
    """Most bytes of huge pages to advise; None: no limit."""
    minutes: float = 5.0
    seed: int = 1
    metric: str | None = None
    regex: str | None = None
    timeout_s: float | None = None
    evidence: Evidence | None = None
    """A file of misses to choose by; None: mosaics are timed."""

    @property
    def options(self) -> str:
        """All options but the minutes as they are typed, each after a space."""
        typed = "" if self.evidence is None else f" {self.evidence.option}"
        for option, value in (
            ("--budget", None if self.budget is None else f"{self.budget >> 20}M"),
            ("--metric", self.metric),
            ("--measure-regex", self.regex),
            ("--timeout", None if self.timeout_s is None else f"{self.timeout_s:g}"),
            ("--seed", None if self.seed == 1 else str(self.seed)),
        ):
            typed += "" if value is None else f" {option} {shlex.quote(value)}"
        return typed


@dataclass(frozen=True)
class Found:
    """The result of the mosaics (or misses), before the check."""

    used: dict[str, int]
    """Pool → bytes of addresses, from its beginning to the last byte that was used; most of them may have no memory. By
    misses: of its tiles."""
    regions: list[Region]
    effects: Effects | None
    """Gains by region; None by misses, or if there is no memory to give huge pages to."""
    choice: Choice | None
    rounds: int
    """Rounds of mosaics; each has regions of its own."""
    executions: int
    """Executions of mosaics in all rounds."""
    metric: str
    metric_why: str
    resident_base: int
    """Peak resident bytes in base pages."""
    resident_huge: int
    """Peak resident bytes with everything in 2M pages."""
    misses: NDArray[np.float64] | None = None
    """Shares of all misses, by region; None if mosaics were timed."""


def advise(
    asked: Asked, directory: Path, tools: Tools, progress: Progress | None = None, *, keep_directory: bool = False
) -> Found:
    """Runs footprint, mosaics, choice and check; writes ``policy.toml`` if something is advised.

    ``keep_directory``: if no advice is possible, only what was written is removed, and the directory stays.
    Raises BadInputError if the command fails or takes too long for the time, MachineError if 2M pages are not
    available, StudyInterruptedError if it is interrupted.
    """
    try:
        return _advised(asked, directory, tools, progress, keep_directory)
    except (StudyInterruptedError, KeyboardInterrupt) as error:
        # A round that is continued later would not be close to the others in time, so the advice must start again.
        stopped = str(error).split(";", 1)[0] or "stopped"
        raise StudyInterruptedError(
            f"{stopped} before the advice was made; {directory} has the executions until then; begin again with: "
            f"pagelab advise --minutes {asked.minutes:g}{asked.options} -- {shlex.join(asked.argv)}"
        ) from None


def _advised(asked: Asked, directory: Path, tools: Tools, progress: Progress | None, keep_directory: bool) -> Found:
    progress = progress or Silent()
    began = monotonic()
    with _kept_if_it_runs(directory, keep_directory):
        small, large = policy_text("4K", [], aligned=True), _all_huge()
        if asked.evidence is not None:
            refuse_unfit(asked.evidence, asked.argv)
            small, large = layout([]).toml(), _APART
        pilot = _trying(asked, (Setting("4K", small), Setting("2M", large)))
        runs = _footprint(pilot, directory / FOOTPRINT, tools, asked)
        metric, why = _metric(asked, directory / FOOTPRINT, runs)
        extent, resident = _used(directory / FOOTPRINT)
    run_s = float(np.median(runs["duration_s"].drop_nulls()))
    if asked.evidence is not None:
        reading = _reading(asked.evidence, progress)
        asked = replace(asked, metric=metric)
        with _kept_if_it_runs(directory, keep_directory), reading:
            told = _by_misses(asked, directory, sum(extent.values()))
        if told is None:
            return Found(extent, [], None, None, 0, 0, metric, why, *resident)
        text = told.advice.toml() if told.choice.chosen.any() else ""
        if text:
            whole_file.put(directory / POLICY, text)
        _check(asked, directory, text, "", (began, run_s), tools, progress)
        return Found(told.extent, told.regions, None, told.choice, 0, 0, metric, why, *resident, told.misses)
    left_s = 60 * asked.minutes - (monotonic() - began)
    found = regions(extent, _regions_for(extent, run_s, left_s * _EXPLORED, asked))
    if not found:
        return Found(extent, found, None, None, 0, 0, metric, why, *resident)
    asked = replace(asked, metric=metric)
    found, shares, rounds, run_s = _explore(asked, found, began, run_s, directory, tools, progress)
    choice = choose(found, shares, asked.budget)
    text = policy_text("4K", compress(found, choice.chosen), aligned=True)
    if choice.chosen.any():
        whole_file.put(directory / POLICY, f'name = "advice"\n{text}')
        csv = mosalloc_text(extent, compress(found, choice.chosen))
        whole_file.put(directory / LAYOUT, csv)
    _check(asked, directory, text if choice.chosen.any() else "", small, (began, run_s), tools, progress)
    executions = sum(one.times.size for one in rounds)
    return Found(extent, found, shares, choice, len(rounds), executions, metric, why, *resident)


def _reading(evidence: Evidence, progress: Progress) -> AbstractContextManager[None]:
    title = f"reading the misses: {evidence.option}"
    progress.note(title)
    return meanwhile(progress.note, lambda so_far_s: f"{title}, {shown_duration(so_far_s)} so far")


@dataclass(frozen=True)
class _Missing:
    """The result by misses."""

    extent: dict[str, int]
    regions: list[Region]
    misses: NDArray[np.float64]
    choice: Choice
    advice: Layout


def _by_misses(asked: Asked, directory: Path, used_bytes: int) -> _Missing | None:
    """Chooses by misses; None if the program uses less than a tile."""
    assert asked.evidence is not None
    if used_bytes < TILE:
        return None
    with Store.open(directory / FOOTPRINT, write=False) as store:
        records = dict(zip(store.runs()["policy"].to_list(), store.records(), strict=True))
    space, profile = misses(asked.evidence, asked.argv, records)
    found = chosen(space, profile, asked.budget)
    extent = {pool: TILE * sum(own == pool for own, _ in space.tiles) for pool in space.pools}
    advice = layout(list(compress(found.regions, found.choice.chosen)))
    return _Missing(extent, found.regions, found.misses, found.choice, advice)


def _check(
    asked: Asked,
    directory: Path,
    advice: str,
    base: str,
    time: tuple[float, float],
    tools: Tools,
    progress: Progress,
) -> None:
    """Runs the check: the kernel's own choice, the advice (unless it is empty), everything in 2M pages, and with an
    advice the ``base`` that its gain was promised against (unless it is empty).

    ``time``: the start of the user's time limit, and the seconds of an execution.
    """
    began, run_s = time
    left_s = 60 * asked.minutes - (monotonic() - began)
    policies = {"kernel": KERNEL, ADVICE: advice, "2M": _all_huge(), BASE: base if advice else ""}
    settings = tuple(Setting(name, policies[name]) for name in CHECKED if policies[name])
    check = _trying(asked, settings)
    # Each comparison is with the kernel's own way or, alone, with the base.
    fewest = fewest_of(2 if advice else 1, check.level)
    # A number of blocks, not minutes: if the machine became slower, the check must still have enough executions.
    blocks = min(max(fewest, floor(left_s / (run_s * len(settings)))), MOST_BLOCKS)
    spec = check.write(
        directory / CHECK, {"executions": blocks}, question=_question(asked) if advice and base else None
    )
    run_own(spec, directory / CHECK, tools, Titled(progress, "check"), _CANNOT)


def _question(asked: Asked) -> str:
    """The question of a check with the base, whose report compares every condition with the first."""
    return (
        f"What do {ADVICE} and 2M change for {' '.join(asked.argv)}, compared with kernel? {BASE} is beside them only "
        f"for the gain of {ADVICE} against it, which was promised; pagelab advise does not compare it with kernel."
    )


def policy_text(otherwise: str, huge: Iterable[Region], *, aligned: bool = False) -> str:
    """A policy with ``huge`` in 2M pages and the rest of heap, anonymous memory and arenas in ``otherwise``.

    Blocks of 2 MiB and more begin at multiples of their pool's largest page size. With ``aligned``, a pool without huge
    pages gets one huge tile far beyond its used part, so that blocks have the same offsets in all mosaics.
    """
    rules = []
    huge = list(huge)
    for pool, memory in (("heap", '"heap"'), ("anon", '["anon", "arenas"]')):
        spans = _joined(region for region in huge if region.pool == pool) or ([_FAR] if aligned else [])
        listed = ", ".join(f'["{start >> 20}M", "{end >> 20}M", "2M"]' for start, end in spans)
        pages = f'{{ mosaic = [{listed}], otherwise = "{otherwise}" }}' if spans else f'"{otherwise}"'
        rules.append(f"\n[[rule]]\nmemory = {memory}\npages = {pages}\n")
    return f'pages = "{otherwise}"\n' + "".join(rules)


def mosalloc_text(extent: Mapping[str, int], huge: Iterable[Region]) -> str:
    """The advice as Mosalloc's CSV (docs/policy.md, "Mosalloc layouts"); pools end where their use did, in tiles."""
    lines = ["type,pageSize,startOffset,endOffset"]
    regions_ = list(huge)
    for pool, kind in (("heap", "brk"), ("anon", "mmap")):
        spans = _joined(region for region in regions_ if region.pool == pool)
        size = max([-(-extent.get(pool, 0) // TILE) * TILE, TILE, *(end for _, end in spans)])
        lines += [f"{kind},-1,0,{size}", *(f"{kind},{TILE},{start},{end}" for start, end in spans)]
    return "\n".join(lines) + "\n"


def _all_huge() -> str:
    return policy_text("2M", [])


def _joined(parts: Iterable[Region]) -> list[tuple[int, int]]:
    """Spans of the regions, with neighbours joined."""
    spans: list[tuple[int, int]] = []
    for region in sorted(parts, key=lambda region: region.start):
        if spans and spans[-1][1] == region.start:
            spans[-1] = (spans[-1][0], region.end)
        else:
            spans.append((region.start, region.end))
    return spans


def _trying(asked: Asked, settings: tuple[Setting, ...]) -> Trying:
    return Trying(
        argv=asked.argv,
        cwd=asked.cwd,
        settings=settings,
        minutes=asked.minutes,
        seed=asked.seed,
        metric=asked.metric,
        regex=asked.regex,
        timeout_s=asked.timeout_s,
    )


@contextmanager
def _kept_if_it_runs(directory: Path, keep_directory: bool) -> Iterator[None]:
    """Removes the directory if the first executions show that there can be no advice."""
    try:
        yield
    except StudyInterruptedError:
        raise
    except PagelabError:
        shutil.rmtree(directory / FOOTPRINT, ignore_errors=True)
        if not keep_directory:
            with suppress(OSError):
                directory.rmdir()
        raise


def _footprint(pilot: Trying, directory: Path, tools: Tools, asked: Asked) -> pl.DataFrame:
    """Runs one execution in base and one in huge pages; returns the two runs."""
    limit = 60 * asked.minutes / (rows(SIZES[0]) * _FEWEST_BLOCKS)
    if asked.timeout_s is not None:
        limit = min(limit, asked.timeout_s)
    spec = pilot.write(directory, {"executions": 1}, timeout_s=max(1.0, limit))
    run_own(spec, directory, replace(tools, noise=lambda _plan: None), Silent(), _CANNOT)
    with Store.open(directory, write=False) as store:
        runs = store.runs()
    late = runs.filter(pl.col("status") == "timed-out").height
    if late and limit != asked.timeout_s:
        raise BadInputError(
            f"one execution takes more than {shown_duration(max(1.0, limit))}, and {_CANNOT} with fewer than "
            f"{rows(SIZES[0]) * _FEWEST_BLOCKS}; {unknown_time(asked.minutes, asked.argv)}"
        )
    failed = runs.filter(pl.col("status") != "ok").select("condition", "status", "message")
    if failed.height:
        told = "; ".join(f"{name.split('/', 1)[1]}: {status}: {text}" for name, status, text in failed.iter_rows())
        raise BadInputError(f"{told}; {_CANNOT}; see it by itself: pagelab run --pages 4K -- {shlex.join(asked.argv)}")
    return runs


def _metric(asked: Asked, directory: Path, runs: pl.DataFrame) -> tuple[str, str]:
    if asked.metric is not None:
        return asked.metric, ""
    if asked.regex is not None:
        return only_measurement(directory), ""
    return metric_of(runs)


def _used(directory: Path) -> tuple[dict[str, int], tuple[int, int]]:
    """Used bytes of each pool, and peak resident bytes in base and in huge pages."""
    with Store.open(directory, write=False) as store:
        names = [condition.policy for condition in store.plan().conditions]
        order = store.runs()["policy"].to_list()
        records = dict(zip(order, store.records(), strict=True))
    by_size = {"4K": records[names[0]], "2M": records[names[1]]}
    if lacks_huge_pages(by_size["2M"]):
        raise MachineError(no_huge_pages(_CANNOT))
    return used(by_size), (by_size["4K"].peak_rss_bytes or 0, by_size["2M"].peak_rss_bytes or 0)


def _regions_for(extent: dict[str, int], run_s: float, seconds: float, asked: Asked) -> int:
    """Number of regions of the first round: :data:`FIRST`, or fewer if time or memory does not allow as many."""
    tiles = sum(-(-size // TILE) for size in extent.values())
    allowed = [size for size in SIZES if size <= FIRST and rows(size) * _FEWEST_BLOCKS * run_s <= seconds]
    if not allowed:
        least = rows(SIZES[0]) * _FEWEST_BLOCKS * run_s / 60 / _EXPLORED * 1.1
        raise BadInputError(
            f"one execution takes {shown_duration(max(1, run_s))}; the fewest that can show a gain need --minutes "
            f"{ceil(10 * least) / 10:g}, not {asked.minutes:g}"
        )
    return min(tiles, allowed[-1])


def _explore(
    asked: Asked, first: list[Region], began: float, run_s: float, directory: Path, tools: Tools, progress: Progress
) -> tuple[list[Region], Effects, list[Round], float]:
    """Runs rounds of mosaics while there is time; returns the last round's regions, their gains, all rounds, and the
    seconds of an execution. ``began``: the start of the user's time limit.
    """
    start = monotonic()
    left_s = began + 60 * asked.minutes - start
    rng = np.random.default_rng(asked.seed)
    wanted, rounds = first, list[Round]()
    while len(rounds) < ROUNDS:
        # Time for the check's least number of executions is kept; their duration is known better after each round.
        check_s = max(left_s * (1 - _EXPLORED), fewest_of(2, 0.95) * len(CHECKED) * run_s)
        seconds = left_s - check_s - (monotonic() - start)
        blocks = blocks_for(len(wanted), floor(seconds / run_s), first=not rounds)
        if not rounds:
            blocks = max(blocks, _FEWEST_BLOCKS)
        if not blocks:
            break
        found = wanted
        where = directory / f"{MOSAICS}-{len(rounds) + 1}"
        rounds.append(_round(asked, found, min(blocks, _MOST_BLOCKS), where, rng, tools, progress))
        _refuse_too_few(rounds, where)
        # The real time of an execution includes the session's overhead and the present load of the machine.
        run_s = (monotonic() - start) / sum(one.times.size for one in rounds)
        shares = estimated(rounds, found, rng)
        wanted = refined(found, shares)
    return found, shares, rounds, run_s


def _round(
    asked: Asked,
    found: list[Region],
    blocks: int,
    directory: Path,
    rng: np.random.Generator,
    tools: Tools,
    progress: Progress,
) -> Round:
    included = mosaics(len(found), rng)
    settings = tuple(
        Setting(f"m{number:03d}", policy_text("4K", compress(found, row), aligned=True))
        for number, row in enumerate(included)
    )
    progress.note(
        f"{count(len(found), 'region')}, {included.shape[0]} mosaics of them, {count(blocks, 'execution')} of each"
    )
    spec = _trying(asked, settings).write(directory, {"executions": blocks}, together=2)
    # Comparisons of single mosaics are not made; they could find nothing.
    run_own(spec, directory, tools, Titled(progress, "mosaics", notes=False), _CANNOT)
    _tell_short(directory, progress)
    return Round(found, included, _times(directory, asked.metric or "wall_s", included.shape[0], blocks))


def _tell_short(directory: Path, progress: Progress) -> None:
    """Says in how many executions memory did not get the pages of its mosaic: these make every gain look smaller."""
    with Store.open(directory, write=False) as store:
        runs = store.runs().filter(pl.col("status") == "ok")
    short = int(runs["short_placed"].sum())
    if short:
        progress.note(
            f"warning: in {short} of {count(runs.height, 'execution')} memory did not get the pages of its mosaic; "
            "gains may be greater than they look; what is in the way: pagelab doctor"
        )


def _times(directory: Path, metric: str, mosaics_: int, blocks: int) -> NDArray[np.float64]:
    """Values of the metric, shape (blocks, mosaics); NaN if an execution failed or has no value above 0."""
    with Store.open(directory, write=False) as store:
        values = store.runs().filter(pl.col("status") == "ok").join(store.metric(metric), on="run_id")
        order = {condition.policy: at for at, condition in enumerate(store.plan().conditions)}
    times = np.full((blocks, mosaics_), np.nan)
    for block, policy, value in values.select("execution", "policy", "value").iter_rows():
        if value > 0:
            times[block, order[policy]] = value
    return times


def _refuse_too_few(rounds: list[Round], directory: Path) -> None:
    whole = sum(int(np.isfinite(one.times[:, 0::2] + one.times[:, 1::2]).sum()) for one in rounds)
    pairs = sum(one.times.size // 2 for one in rounds)
    if whole < _FEWEST_PAIRS:
        raise BadInputError(
            f"only {whole} of {pairs} pairs of mosaics ran whole, and {_FEWEST_PAIRS} are needed; "
            f"what failed: pagelab study status {quoted(directory)}"
        )
