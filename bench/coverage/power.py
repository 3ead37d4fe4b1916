"""Changes that would be seen: ``python -m bench.coverage.power`` makes the table of docs/method.md.

How often studies of normal pairs find the change that pagelab says four of five of them find. Seeded: the same options
give the same table.
"""

from __future__ import annotations

import sys
from math import sqrt
from pathlib import Path
from statistics import NormalDist

import numpy as np

from bench.coverage.tables import experiments_of, put
from pagelab.analysis.answer import answer_of, fewest_of, rejects
from pagelab.analysis.model import Interval
from pagelab.stats.interval import NotAchievable
from pagelab.stats.paired import paired_shift
from pagelab.stats.power import POWER, shift_seen
from pagelab.stats.wilcoxon import signed_rank

DOCUMENT = Path(__file__).parents[2] / "docs/method.md"
ALPHA = 0.05
SCATTER = 0.03
STUDIES = 400
"""Studies of whose promised changes the median is taken."""
COMPARISONS = (1, 2, 9, 25, 100)
MORE_PAIRS = (0, 1, 4)
LARGE = 40


def promised(random: np.random.Generator, pairs: int, comparisons: int) -> tuple[float, float]:
    """Medians over studies of the logarithm of the change that would be seen, and of that by normal quantiles."""
    seen, before = [], []
    normal = NormalDist()
    z = (normal.inv_cdf(1 - ALPHA / comparisons / 2) + normal.inv_cdf(POWER)) / normal.inv_cdf(1 - ALPHA / 2)
    for _ in range(STUDIES):
        found = paired_shift(SCATTER * random.standard_normal(pairs))
        assert not isinstance(found.interval, NotAchievable)
        low, high = (float(np.expm1(end)) for end in (found.interval.low, found.interval.high))
        change = float(np.expm1(found.estimate))
        answer = answer_of(change, Interval(low, high, 1 - ALPHA), 1.0, pairs, level=1 - ALPHA, family=comparisons)
        seen.append(float(np.log1p(answer.seen or np.nan)))
        before.append(z * found.interval.half_width)
    return float(np.median(seen)), float(np.median(before))


def found(random: np.random.Generator, pairs: int, comparisons: int, shift: float, experiments: int) -> float:
    """Share of studies that find a shift of the logarithms in Holm's hardest step."""
    values = shift + SCATTER * random.standard_normal((experiments, pairs))
    return sum(rejects(signed_rank(each).p * comparisons, ALPHA) for each in values) / experiments


def row(comparisons: int, pairs: int, experiments: int, seed: int) -> str:
    random = np.random.default_rng([seed, comparisons, pairs])
    normal = NormalDist()
    z = normal.inv_cdf(1 - ALPHA / comparisons / 2) + normal.inv_cdf(POWER)
    forecast = SCATTER * shift_seen(pairs, ALPHA / comparisons * (1 + 1e-9))
    shifts = forecast, SCATTER * z / sqrt(pairs), *promised(random, pairs, comparisons)
    shown = [f"{100 * found(random, pairs, comparisons, shift, experiments):.0f}" for shift in shifts]
    return f"| {comparisons} | {pairs} | {' | '.join(shown)} |"


def main() -> int:
    arguments = experiments_of("python -m bench.coverage.power", __doc__, "simulated for each figure")
    lines = [
        "| comparisons | pairs | forecast | before | would be seen | before |",
        "| --: | --: | --: | --: | --: | --: |",
    ]
    for comparisons in COMPARISONS:
        fewest = fewest_of("pairs", ALPHA / comparisons)
        for pairs in (*(fewest + more for more in MORE_PAIRS), LARGE):
            lines.append(row(comparisons, pairs, arguments.experiments, arguments.seed))
    put("power: seen", "\n".join(lines), DOCUMENT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
