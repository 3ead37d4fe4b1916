"""Plans the numbers of layouts and repeats that fit the minutes, from the pilot's noise and duration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from pagelab.errors import BadInputError
from pagelab.model_run.choosing import START
from pagelab.model_run.document import Asked, Plan, Select
from pagelab.model_run.estimate import Noise, perfect
from pagelab.study.progress import shown_duration

SIZES = (54, 45, 36, 30, 24, 20, 16, 12, 10, 8)
"""Possible numbers of training layouts, anchors included; the paper has 54."""
USUAL = 20
MOSELECT = 9
"""Layouts of moselect's first round."""
FEWEST = 8
ANCHORS = 2
_LEAST_REPEATS, _REPEATS, _MOST_REPEATS = 2, 3, 50
_MOST_LATER_ROUNDS = 6
FEWEST_RUNS = (FEWEST + 12) * _LEAST_REPEATS + 8
"""Least number of executions: trial, pilot and the smallest campaign."""


@dataclass(frozen=True)
class Shape:
    """The training layouts of each round of a campaign."""

    first: int
    """Training layouts of the first round, anchors included."""
    later: tuple[int, ...]
    """New training layouts of each further round, which also runs the anchors."""
    tests: int

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return 1 + len(self.later)

    @property
    def runs(self) -> int:
        """Number of executions if every round had one block."""
        return self.first + sum(count + ANCHORS for count in self.later) + self.tests

    def tests_of(self, number: int) -> range:
        """Positions of a round's test layouts; they are spread evenly over the rounds, as conditions may change."""
        return range(number * self.tests // self.rounds, (number + 1) * self.tests // self.rounds)


def shape(select: Select, layouts: int, tests: int, *, knows_c: bool) -> Shape:
    """The rounds of a campaign; with ``knows_c``, C is known before a layout runs and moselect needs one round only."""
    at_once = select in ("random", "profile") or (select == "moselect" and knows_c)
    start = MOSELECT if select == "moselect" else START
    if at_once or layouts <= start:
        return Shape(layouts, (), tests)
    left = layouts - start
    rounds = min(_MOST_LATER_ROUNDS, max(1, ceil(left / 4)))
    return Shape(start, tuple(left * (i + 1) // rounds - left * i // rounds for i in range(rounds)), tests)


def refuse_few_tiles(tiles: int, tests: int) -> None:
    """Raises `BadInputError` if so few tiles have too few different layouts for the tests and a model."""
    mixtures, needs = 2**tiles - ANCHORS, tests + FEWEST - 2 * ANCHORS
    if mixtures < needs:
        raise BadInputError(
            f"the program uses so little memory ({tiles} tiles of 2 MiB) that there are {mixtures} different mixtures "
            f"of 4K and 2M pages, and {tests} test layouts and a model need {needs}; give it a larger input; to find "
            "which kind of memory matters, less is enough: pagelab model kinds -- CMD"
        )


def fewest_layouts(asked: Asked, tiles: int) -> int:
    """The fewest training layouts that a plan can have; windows in few tiles may be fewer than the usual least."""
    windows = tiles * (tiles + 1) // 2 + 1
    return max(FEWEST - ANCHORS, min(asked.layouts or FEWEST, windows - asked.tests))


def refuse_few_minutes(
    asked: Asked, run_s: float, left_s: float, layouts: int, *, knows_c: bool, simulating_s: float = 0.0
) -> None:
    """Raises `BadInputError` if the fewest executions of so many layouts and ``simulating_s`` take longer than is left.

    The error has the minutes that would do.
    """
    fewest = _Fewest(asked, run_s, layouts, shape(asked.select, layouts, asked.tests, knows_c=knows_c), simulating_s)
    if fewest.seconds > left_s:
        raise fewest.error(left_s)


@dataclass(frozen=True)
class _Fewest:
    """The smallest campaign of so many layouts."""

    asked: Asked
    run_s: float
    layouts: int
    shape: Shape
    simulating_s: float

    @property
    def runs(self) -> int:
        """Its executions."""
        return self.shape.runs * _LEAST_REPEATS

    @property
    def seconds(self) -> float:
        """Seconds that it takes."""
        return self.runs * self.run_s + self.simulating_s

    def error(self, left_s: float) -> BadInputError:
        """The error that says what it takes, and with how many minutes it fits."""
        # The next trial may find executions slower than this one did.
        minutes = 1.5 * (self.asked.minutes + max(0.0, self.seconds - left_s) / 60)
        simulating = ""
        if self.simulating_s >= 1:
            simulating = f", and simulating their counts takes about {shown_duration(self.simulating_s)}"
        return BadInputError(
            f"one execution takes {shown_duration(max(1, self.run_s))}, and {self.layouts} layouts beside "
            f"{self.asked.tests} tests need {self.runs}{simulating}: give it --minutes {ceil(minutes * 10) / 10:g}, "
            "or a smaller input"
        )


def plan(
    asked: Asked,
    noise: Noise,
    run_s: float,
    left_s: float,
    available: int,
    *,
    knows_c: bool,
    simulating_s: Callable[[int], float] = lambda _layouts: 0.0,
) -> Plan:
    """Plans the most layouts whose repeats' noise stays below half of the aim, else :data:`USUAL`, else fewer.

    ``available``: number of distinct layouts; ``simulating_s``: seconds of simulation, by the number of layouts. Raises
    `BadInputError` if the layouts, or the minutes, are too few.
    """
    if available < FEWEST - ANCHORS:
        raise BadInputError(
            f"the program uses so little memory that only {available} different layouts of 2M pages are left beside "
            f"{asked.tests} test layouts, and a model needs {FEWEST - ANCHORS}; give it a larger input; to find which "
            "kind of memory matters, less is enough: pagelab model kinds -- CMD"
        )

    def made(layouts: int) -> Plan | None:
        wanted = shape(asked.select, layouts, asked.tests, knows_c=knows_c)
        simulating = simulating_s(layouts)
        repeats = min(_MOST_REPEATS, int((left_s - simulating) / run_s) // wanted.runs)
        if repeats < _LEAST_REPEATS:
            return None
        return Plan(
            layouts=layouts,
            tests=asked.tests,
            repeats=repeats,
            rounds=wanted.rounds,
            executions=repeats * wanted.runs,
            run_s=run_s,
            simulating_s=simulating,
            run_sd=noise.run_sd,
            perfect=perfect(noise.error(repeats), asked.tests),
            aim_minutes=None,
        )

    sizes = [size for size in SIZES if size <= available] or [available]
    if asked.layouts is not None:
        sizes = [min(asked.layouts, available)]
    plans = [one for size in sizes if (one := made(size)) is not None]
    if not plans:
        least = sizes[-1]
        smallest = shape(asked.select, least, asked.tests, knows_c=knows_c)
        raise _Fewest(asked, run_s, least, smallest, simulating_s(least)).error(left_s)
    precise = [one for one in plans if one.perfect <= asked.aim / 2 and one.repeats >= _REPEATS]
    usual = [one for one in plans if one.layouts <= USUAL and one.repeats >= _REPEATS]
    chosen = (precise or usual or plans[-1:])[0]
    return chosen.model_copy(update={"aim_minutes": _aim_minutes(asked, chosen, left_s - chosen.simulating_s)})


def _aim_minutes(asked: Asked, chosen: Plan, left_s: float) -> float | None:
    """Minutes that would bring the error from noise alone down to the aim; None if the plan's is below it already."""
    if chosen.perfect <= asked.aim:
        return None
    # For every estimator the error falls roughly with the root of the repeats.
    repeats = ceil(chosen.repeats * (chosen.perfect / asked.aim) ** 2)
    more_s = chosen.executions / chosen.repeats * repeats * chosen.run_s - left_s
    return ceil(10 * (asked.minutes + max(0.0, more_s) / 60)) / 10
