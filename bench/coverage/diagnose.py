"""Error rates of ``pagelab diagnose``: ``python -m bench.coverage.diagnose`` makes the tables of docs/diagnose.md.

Simulates run times whose causes are known, and judges them with the functions and settings that ship, but for the
number of permutations, which is a fifth of theirs: their own noise is then larger, their level the same. Seeded: the
same options give the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.coverage.tables import cell, main, table
from pagelab.diagnose import allocate, judge
from pagelab.diagnose.allocate import Effect
from pagelab.diagnose.model import Finding, Pin, Settings, Source
from pagelab.diagnose.sources import COMBINED, CONTROL_COPIES
from pagelab.diagnose.specs import COPIES, DEFAULT, default_names
from pagelab.diagnose.spread import between_values, block_effects, coefficient_of_variation, spread_ratio

LEVEL = 0.95
PERMUTATIONS = 999
SOURCES = ((1, COPIES), (1, COPIES), (5, 2), (2, 2), (2, COPIES), (2, 2), (1, 2), (5, 2), (5, 2), (1, COPIES))
"""Pinned values of each source of a whole diagnosis, and copies of its control."""
TESTS = sum(1 + (values > 1) for values, _ in SOURCES)
BLOCK = COPIES + 4 * CONTROL_COPIES + sum(values for values, _ in SOURCES)
"""Executions of a block, the unit of a confirmation's share of the budget."""
Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[Any]]


def _drifting(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Log times on a machine that is busier in some blocks, which affects both level and noise."""
    blocks = np.cumsum(random.normal(0, 0.3, shape[-1]))
    return np.asarray(np.exp(0.02 * blocks + 0.01 * random.normal(0, 1, shape) * np.exp(blocks.clip(-3, 3))))


SHAPES: dict[str, Draw] = {
    "normal": lambda r, n: r.normal(100, 2, n),
    "log-normal (σ = 0.5) over a base": lambda r, n: 90 + 10 * r.lognormal(0, 0.5, n),
    "exponential over a base": lambda r, n: 90 + r.exponential(5, n),
    "two modes, 30% apart": lambda r, n: r.choice([85.0, 115.0], n) + r.normal(0, 1, n),
    "1 in 10 is 30% slower": lambda r, n: 100 + 30 * (r.random(n) < 0.1) + r.normal(0, 1, n),
    "1 in 50 is twice as slow": lambda r, n: 100 + 100 * (r.random(n) < 0.02) + r.normal(0, 1, n),
    "t with 3 degrees": lambda r, n: 200 + r.standard_t(3, n).clip(-100, 100),
    "drifting machine": _drifting,
}


@cache
def true_sd(shape: str) -> float:
    """Standard deviation of the log times, from 4 million executions."""
    return float(np.log(SHAPES[shape](np.random.default_rng(99), (4_000_000,))).std())


def _random(*key: object) -> np.random.Generator:
    return np.random.default_rng([ord(letter) for letter in repr(key)])


# -- whole diagnoses of programs without a cause ---------------------------------------------------------------------


def accused(draw: Draw, blocks: int, factor: float, random: np.random.Generator, permutations: int, seed: int) -> bool:
    """Does a diagnosis accuse any source of anything, where pinning only multiplies every time by ``factor``?

    Values of one source have the same time: a difference between them would be true.
    """
    from pagelab.stats.multiplicity import holm

    counts = [COPIES, *(CONTROL_COPIES for _ in range(4)), *(values for values, _ in SOURCES)]
    rows = np.split(draw(random, (sum(counts), blocks)), np.cumsum(counts)[:-1])
    controls, settings = iter(range(1, 5)), {"seed": seed, "permutations": permutations}
    frames: int | None = None
    p = []
    for number, (values, copies) in enumerate(SOURCES):
        pinned = factor * rows[5 + number]
        if copies == COPIES:
            control = 0
        elif number in (7, 8):  # the frames sources share one control
            assert frames is not None
            control = frames
        else:
            control = frames = next(controls)
        others = np.concatenate([each for i, each in enumerate(rows) if i not in (control, 5 + number)])
        p.append(spread_ratio(rows[control], pinned, block_effect=block_effects(others), **settings).p)
        if values > 1:
            p.append(between_values(pinned, drawn=False, **settings).p)
    return any(holm(p).rejected)


def false_alarms(shape: str, blocks: int, factor: float, trials: int, permutations: int = PERMUTATIONS) -> float:
    """Percent of whole diagnoses with a false alarm."""
    random = _random("alarms", shape, blocks, factor)
    draw = SHAPES[shape]
    return 100 * sum(accused(draw, blocks, factor, random, permutations, each) for each in range(trials)) / trials


def false_confirmations(shape: str, executions: int, factor: float, trials: int) -> float:
    """Percent of confirmations of a pin that only multiplies every time by ``factor``."""
    random, wrong = _random("confirm", shape, executions, factor), 0
    for trial in range(trials):
        rows = SHAPES[shape](random, (2, executions))
        found = spread_ratio(rows[:1], factor * rows[1:], seed=trial, permutations=PERMUTATIONS)
        wrong += found.p <= 1 - LEVEL and judge.falls(found)
    return 100 * wrong / trials


# -- intervals -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """A default and a pinned distribution."""

    default: Draw
    pinned: Draw

    @property
    def log_ratio(self) -> float:
        """True log ratio of the standard deviations of log times."""
        draws = [np.log(each(np.random.default_rng(98), (2_000_000,))) for each in (self.pinned, self.default)]
        return log(float(draws[0].std() / draws[1].std()))


CHANGES: dict[str, Change] = {
    "normal, half": Change(lambda r, n: r.normal(100, 4, n), lambda r, n: r.normal(100, 2, n)),
    "log-normal, half": Change(lambda r, n: r.lognormal(0, 0.5, n), lambda r, n: r.lognormal(0, 0.25, n)),
    "exponential, equal": Change(SHAPES["exponential over a base"], SHAPES["exponential over a base"]),
    "two modes → one": Change(SHAPES["two modes, 30% apart"], lambda r, n: r.normal(85, 1, n)),
    "1 in 10 slower → never": Change(SHAPES["1 in 10 is 30% slower"], lambda r, n: r.normal(100, 1, n)),
    "1 in 10 slower, all 50% slower": Change(
        SHAPES["1 in 10 is 30% slower"], lambda r, n: 1.5 * SHAPES["1 in 10 is 30% slower"](r, n)
    ),
    "normal, double": Change(lambda r, n: r.normal(100, 2, n), lambda r, n: r.normal(110, 4.4, n)),
}


def covered(name: str, blocks: int, values: int, trials: int, permutations: int = PERMUTATIONS) -> float:
    """Percent of 95% intervals of the variance removed that hold the truth."""
    change, random, held = CHANGES[name], _random("covered", name, blocks, values), 0
    true = change.log_ratio
    for trial in range(trials):
        rows = change.default(random, (COPIES, blocks)), change.pinned(random, (values, blocks))
        found = spread_ratio(*rows, seed=trial, permutations=permutations)
        held += found.log_ratio.low <= true <= found.log_ratio.high
    return 100 * held / trials


EFFECTS: dict[str, Draw] = {
    "normal": lambda r, n: r.normal(0, 1, n),
    "uniform": lambda r, n: r.uniform(-sqrt(3), sqrt(3), n),
    "two levels": lambda r, n: r.choice([-1.0, 1.0], n),
    "1 in 5 is slow": lambda r, n: ((r.random(n) < 0.2) - 0.2) / 0.4,
}


def share_covered(effect: str, share: float, values: int, blocks: int, trials: int) -> float:
    """Percent of 95% intervals that hold the share of the population of values; normal times around each value."""
    random, held = _random("share", effect, share, values, blocks), 0
    for trial in range(trials):
        levels = sqrt(share) * EFFECTS[effect](random, (values, 1))
        times = np.exp(0.05 * (levels + sqrt(1 - share) * random.normal(0, 1, (values, blocks))))
        found = between_values(times, drawn=True, seed=trial, permutations=1).share
        assert found is not None
        held += found.low <= share + 1e-12 and share <= found.high
    return 100 * held / trials


def spread_covered(shape: str, blocks: int, trials: int) -> float:
    """Percent of 95% intervals of the default's spread that hold it."""
    true, random, held = coefficient_of_variation(true_sd(shape)), _random("spread", shape, blocks), 0
    for _ in range(trials):
        found = judge.default_spread(SHAPES[shape](random, (COPIES, blocks)), LEVEL)
        held += found.low <= true <= found.high
    return 100 * held / trials


# -- true causes -----------------------------------------------------------------------------------------------------

CAUSES: dict[str, Draw] = {
    "normal": lambda r, n: r.normal(0, 1, n),
    "two modes": lambda r, n: 2.0 * (r.random(n) < 0.5),
    "1 in 10 is slow": lambda r, n: (r.random(n) < 0.1) / 0.3,
}
"""Distributions with a variance of 1."""
_SD = 0.1
_SMALL_SD = 0.01
"""Few executions tell such a mean, so that the confirmation has those that the spread needs."""


@dataclass(frozen=True)
class Found:
    """Percent of diagnoses; ``confirmed`` and the following: of those with a confirmation."""

    found: float
    confirmed: float
    refuted: float
    undecided: float
    executions: float
    """Median number of executions of each condition in the confirmation."""


def true_cause(cause: str, share: float, blocks: int, trials: int) -> Found:
    """A cause that makes ``share`` of the variance of log times, pinned away; the rest is normal."""
    random, counts, sizes = _random("cause", cause, share, blocks), dict.fromkeys(("found", *_RESULTS), 0), []
    affordable = int((1 - allocate.EXPLORE_SHARE) / allocate.EXPLORE_SHARE * blocks * BLOCK / 2)

    def times(rows: int, length: int, *, pinned: bool) -> Array:
        rest = sqrt(1 - share) * random.normal(0, 1, (rows, length))
        return np.exp(_SMALL_SD * (rest + (0 if pinned else sqrt(share) * CAUSES[cause](random, (rows, length)))))

    for trial in range(trials):
        rows = times(COPIES, blocks, pinned=False), times(1, blocks, pinned=True)
        first = spread_ratio(*rows, seed=trial, tests=TESTS, permutations=PERMUTATIONS)
        if not (first.p * TESTS <= 1 - LEVEL and judge.falls(first)):
            continue
        counts["found"] += 1
        seen = Effect.of(np.log(rows[0]), np.log(rows[1]), 1 - LEVEL)
        sds = float(rows[0].std()), float(rows[1].std())
        enough = max(allocate.for_mean(sds, float(rows[0].mean()), 0.01, LEVEL), seen.executions())
        executions = allocate.confirmation_runs(affordable, 1.0, enough)
        sizes.append(executions)
        fresh = {DEFAULT: times(1, executions, pinned=False)[0], "pin": times(1, executions, pinned=True)[0]}
        settings = Settings(argv=["x"], cwd="/", seed=trial)
        result = judge.confirm(fresh, _NOTHING, Pin(name="pin"), None, [seen], settings, PERMUTATIONS)
        counts[result.result] += 1
    chosen = max(1, counts["found"])
    shares = (100 * counts[result] / chosen for result in _RESULTS)
    return Found(100 * counts["found"] / trials, *shares, float(np.median(sizes)) if sizes else 0.0)


_RESULTS = ("confirmed", "refuted", "undecided")
_NOTHING = Finding(key="x", label="x", verdict="cause")


# -- several causes --------------------------------------------------------------------------------------------------

PARTS = ("aslr-off", "pages-4K", "cpu-1", "cache-warm")


def _sources() -> list[Source]:
    pages = [Pin(name="pages-control-4K", control_of="pages-4K")]
    cache = [Pin(name=f"page-cache-control-{number}") for number in (1, 2)]
    return [
        Source(key="aslr", label="ASLR", pins=[Pin(name="aslr-off")]),
        Source(key="pages", label="page size", pins=[Pin(name="pages-4K")], controls=pages),
        Source(key="cpu", label="CPU pinning", pins=[Pin(name="cpu-1")]),
        Source(key="page-cache", label="page cache", pins=[Pin(name="cache-warm")], controls=cache),
        Source(key=COMBINED, label="all of these", pins=[Pin(name=COMBINED)], parts=list(PARTS)),
    ]


Program = Callable[[np.random.Generator, int, frozenset[str]], Array]
"""(random, executions, pinned sources) → times."""


def _additive(cause: str, share: float, *, on_logs: bool) -> Program:
    def times(random: np.random.Generator, count: int, pinned: frozenset[str]) -> Array:
        value = sqrt(max(0.0, 1 - len(PARTS) * share)) * random.normal(0, 1, count)
        for part in PARTS:
            value += sqrt(share) * CAUSES[cause](random, (count,)) * (part not in pinned)
        return np.exp(_SD * value) if on_logs else np.asarray(1 + _SD * value.clip(-9, 90))

    return times


def _either(random: np.random.Generator, count: int, pinned: frozenset[str]) -> Array:
    """Slow by chance, unless both ASLR and the CPU are pinned: each of them alone changes nothing."""
    slow = (random.random(count) < 0.5) * (not {"aslr-off", "cpu-1"} <= pinned)
    return np.exp(_SD * (2 * slow + 0.3 * random.normal(0, 1, count)))


def _same(random: np.random.Generator, count: int, pinned: frozenset[str]) -> Array:
    """Slow by chance, unless ASLR or the CPU is pinned: both act on the same thing."""
    slow = (random.random(count) < 0.5) * (not {"aslr-off", "cpu-1"} & pinned)
    return np.exp(_SD * (2 * slow + 0.3 * random.normal(0, 1, count)))


SEVERAL: dict[str, Program] = {
    "4 × 24% of log times, two modes": _additive("two modes", 0.24, on_logs=True),
    "4 × 24% of log times, normal": _additive("normal", 0.24, on_logs=True),
    "4 × 15% of log times, 1 in 10 slow": _additive("1 in 10 is slow", 0.15, on_logs=True),
    "4 × 24% of times, two modes": _additive("two modes", 0.24, on_logs=False),
    "4 × 24% of times, 1 in 10 slow": _additive("1 in 10 is slow", 0.24, on_logs=False),
    "steady only where two are pinned": _either,
    "steady where one of two is pinned": _same,
}


@dataclass(frozen=True)
class Judged:
    """Percent of diagnoses with this statement."""

    alone: float
    """A single source is found."""
    together: float
    """Several sources are found to act together."""
    small: float
    """All sources together have an effect, but no single one is large enough to be found."""
    overlap: float


def several(name: str, blocks: int, trials: int, permutations: int = PERMUTATIONS) -> Judged:
    """Statements on several causes at once."""
    program, random, sources = SEVERAL[name], _random("several", name, blocks), _sources()
    copies = default_names(COPIES)
    pinned = {pin.name: frozenset([pin.name]) for source in sources for pin in source.pins}
    pinned |= {COMBINED: frozenset(PARTS)}
    names = [*copies, *pinned, *(control.name for source in sources for control in source.controls)]
    counts = dict.fromkeys(("alone", "together", "small", "overlap"), 0)
    for trial in range(trials):
        times = {each: program(random, blocks, pinned.get(each, frozenset())) for each in names}
        found = judge.findings(times, copies, sources, Settings(argv=["x"], cwd="/", seed=trial), None, permutations)
        result = " ".join(judge.interactions(found, times, copies, sources, LEVEL))
        counts["alone"] += any(one.verdict in ("cause", "part") for one in found if one.key != COMBINED)
        counts["together"] += "they act together" in result
        counts["small"] += "no single source is large enough" in result
        counts["overlap"] += "overlap" in result
    return Judged(**{key: 100 * count / trials for key, count in counts.items()})


# -- tables ----------------------------------------------------------------------------------------------------------


def tables(trials: int) -> Mapping[str, Callable[[], str]]:
    """Markdown by the name of its place in docs/diagnose.md."""

    def alarms() -> str:
        cells, some = ((10, 1.0), (10, 0.5), (20, 0.5)), max(1, 2 * trials // 3)
        heads = ["A/A program", *(f"{n} blocks{', every time halved' * (f < 1)}" for n, f in cells)]
        return table(heads, ([shape, *(cell(false_alarms(shape, n, f, some)) for n, f in cells)] for shape in SHAPES))

    def confirmations() -> str:
        cells = ((40, 1.0), (15, 0.5), (40, 0.5), (150, 0.5))
        heads = ["A/A program", *(f"{n} of each{', halved' * (f < 1)}" for n, f in cells)]
        return table(
            heads, ([shape, *(cell(false_confirmations(shape, n, f, trials)) for n, f in cells)] for shape in SHAPES)
        )

    def removed() -> str:
        cells = ((10, 1), (10, 4), (20, 1), (20, 4), (40, 1))
        return table(
            ["spread", *(f"{n} × {v}" for n, v in cells)],
            ([name, *(cell(covered(name, n, v, trials), wanted=90) for n, v in cells)] for name in CHANGES),
        )

    def shares() -> str:
        cells = ((0.25, 5), (0.5, 5), (0.9, 5), (0.5, 2), (0.9, 2))
        return table(
            ["effects of the values", *(f"{share:.0%}, {values} values" for share, values in cells)],
            (
                [name, *(cell(share_covered(name, share, v, 20, 5 * trials), wanted=90) for share, v in cells)]
                for name in EFFECTS
            ),
        )

    def spreads() -> str:
        blocks = (8, 20, 40, 100)
        return table(
            ["program", *(f"3 × {n}" for n in blocks)],
            (
                [shape, *(cell(spread_covered(shape, n, 5 * trials), wanted=90) for n in blocks)]
                for shape in SHAPES
                if SHAPES[shape] is not _drifting  # its spread is what it drifts in the blocks at hand
            ),
        )

    def power() -> str:
        heads = [
            "cause",
            "of the variance",
            "blocks",
            "found",
            "then confirmed",
            "refuted",
            "cannot tell",
            "executions",
        ]

        def rows() -> Iterator[list[str]]:
            for cause in CAUSES:
                for share in (0.25, 0.5, 0.75):
                    for blocks in (20, 40):
                        one = true_cause(cause, share, blocks, trials)
                        percents = one.found, one.confirmed, one.refuted, one.undecided
                        shown = (
                            f"{percent:.0f}" if number == 0 or one.found >= 5 else "–"
                            for number, percent in enumerate(percents)
                        )
                        yield [cause, f"{share:.0%}", str(blocks), *shown, f"{one.executions:.0f}"]

        return table(heads, rows())

    def causes() -> str:
        heads = ["causes", "blocks", "one found alone", "“act together”", "“no single one”", "“overlap”"]

        def rows() -> Iterator[list[str]]:
            for name in SEVERAL:
                for blocks in (12, 40):
                    one = several(name, blocks, trials)
                    yield [name, str(blocks), *(cell(x) for x in (one.alone, one.together, one.small, one.overlap))]

        return table(heads, rows())

    return {
        "false alarms": alarms,
        "false confirmations": confirmations,
        "power": power,
        "several causes": causes,
        "coverage of the variance removed": removed,
        "coverage of shares": shares,
        "coverage of the spread": spreads,
    }


if __name__ == "__main__":
    main("python -m bench.coverage.diagnose", __doc__, tables)
