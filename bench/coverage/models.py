"""How often the model's intervals hold planted truths, and how far it and Mosmodel are off at equal data.

``python -m bench.coverage.models`` writes docs/method/models_coverage.csv, docs/method/models_errors.csv and the tables
of docs/method/models.md.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagelab.models import Points, models
from pagelab.models.gaussian_process import GaussianProcess
from pagelab.models.judgement import Errors, cross_validated
from pagelab.models.prediction import run_spread

Array = NDArray[np.float64]

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/method/models.md"
COVERAGE_CSV = ROOT / "docs/method/models_coverage.csv"
ERRORS_CSV = ROOT / "docs/method/models_errors.csv"
LAYOUTS = (20, 54)
NEW = 40
"""Number of new layouts in each experiment, on which intervals are tested."""
SCATTER = 0.003
"""Relative scatter of a layout around the truth, which repeats do not remove."""
RUN_SD = 0.01
REPEATS = 5
FOLDS = 10
JUDGED = ("poly3", "mosmodel", "gp")

RULES: dict[str, Callable[[Array, Array, Array], Array]] = {
    "line": lambda h, _m, c: 1 + 0.9 * c + 0.05 * h,
    "cubic": lambda h, _m, c: 1 + 0.3 * c + 0.6 * c**2 + 0.2 * c**3 + 0.06 * h,
    "kink": lambda h, _m, c: 1 + 0.1 * c + 1.2 * np.maximum(0, c - 0.4) + 0.04 * h,
    "overlap": lambda h, _m, c: np.sqrt(0.8 + (0.2 + 1.3 * c + 0.06 * h) ** 2),
    "saturation": lambda h, _m, c: 1 + 1.4 * c / (0.4 + c) + 0.05 * h * (1 - c),
    "contention": lambda h, m, c: 1 + 0.5 * c + 0.5 * m * c + 0.3 * (1 - np.exp(-3 * h)),
}
"""R relative to its minimum, as a function of H, M and C relative to about their maxima."""


def counts(layouts: int, random: np.random.Generator, *, ends: bool) -> tuple[Array, Array, Array]:
    """H, M and C over about their largest; with ``ends`` the first layout has no huge page, the last nothing else."""
    covered = random.uniform(0, 1, layouts)
    if ends:
        covered[0], covered[-1] = 0, 1
    other = np.clip(covered + 0.6 * random.normal(size=layouts) * covered * (1 - covered), 0, 1)
    m = 1.002 - covered
    return 0.7 + 1.5 * other - 2 * other**2, m, m * (35 + 25 * (1 - covered) + random.normal(0, 1.5, layouts)) / 60


def scatter(tails: str, layouts: int, random: np.random.Generator) -> Array:
    """Relative; ``heavy``: Student's t with three degrees of freedom, of the same scale."""
    drawn = random.normal(size=layouts) if tails == "normal" else random.standard_t(3, size=layouts)
    return SCATTER * drawn


def experiment(rule: str, tails: str, layouts: int, random: np.random.Generator, *, repeats: bool) -> Points:
    h, m, c = counts(layouts, random, ends=True)
    means = 4e10 * RULES[rule](h, m, c) * (1 + scatter(tails, layouts, random))
    if not repeats:
        return Points.of(rule, r=means, c=6e10 * c, h=2e9 * h, m=1e9 * m, source="simulated")
    runs = means * (1 + RUN_SD * random.normal(size=(REPEATS, layouts)))
    return Points.of(
        rule, r=runs.mean(axis=0), c=6e10 * c, h=2e9 * h, m=1e9 * m, source="simulated",
        r_sd=runs.std(axis=0, ddof=1), repeats=[REPEATS] * layouts,
    )  # fmt: skip


def covered(rule: str, tails: str, layouts: int, experiments: int, seed: int) -> tuple[float, float, float]:
    """Shares of new layouts' means, and of single runs, that 95% intervals hold; half the mean's width over R."""
    held_mean = held_run = width = 0.0
    for i in range(experiments):
        random = np.random.default_rng([seed, layouts, i, *rule.encode(), *tails.encode()])
        points = experiment(rule, tails, layouts, random, repeats=True)
        fitted = GaussianProcess().fit(points)
        h, m, c = counts(NEW, random, ends=False)
        truth = 4e10 * RULES[rule](h, m, c) * (1 + scatter(tails, NEW, random))
        at = {"h": 2e9 * h, "m": 1e9 * m, "c": 6e10 * c}
        low, high = fitted.interval(**at)
        held_mean += np.mean((low <= truth) & (truth <= high))
        width += float(np.mean((high - low) / 2 / truth))
        run = truth * (1 + RUN_SD * random.normal(size=NEW))
        for place in range(NEW):
            one = {key: float(at[key][place]) for key in at}
            low_run, high_run = fitted.interval(**one, of="run", run_sd=run_spread(points, fitted, one))
            held_run += float(low_run <= run[place] <= high_run) / NEW
    return held_mean / experiments, held_run / experiments, width / experiments


def errors(rule: str, layouts: int, workloads: int, seed: int) -> dict[str, float]:
    """Mean over made-up workloads of the maximal error in ten folds, by model."""
    found = dict.fromkeys(JUDGED, 0.0)
    for i in range(workloads):
        random = np.random.default_rng([seed, layouts, i, *rule.encode()])
        points = experiment(rule, "normal", layouts, random, repeats=False)
        for name in JUDGED:
            found[name] += Errors.of(points, cross_validated(models()[name], points, FOLDS)).maximum / workloads
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.coverage.models", description=__doc__)
    parser.add_argument("--experiments", type=int, default=100, help="for each figure of coverage")
    parser.add_argument("--workloads", type=int, default=20, help="for each figure of error")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    cells = [(rule, tails, layouts) for rule in RULES for tails in ("normal", "heavy") for layouts in LAYOUTS]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        held = [pool.submit(covered, *cell, arguments.experiments, arguments.seed) for cell in cells]
        off = {
            (rule, layouts): pool.submit(errors, rule, layouts, arguments.workloads, arguments.seed)
            for rule in RULES
            for layouts in LAYOUTS
        }
        rows = [(*cell, *one.result(), arguments.experiments) for cell, one in zip(cells, held, strict=True)]
        compared = [(*cell, *one.result().values(), arguments.workloads) for cell, one in off.items()]
    _write(COVERAGE_CSV, ("rule", "scatter", "layouts", "mean", "run", "half_width", "experiments"), rows)
    _write(ERRORS_CSV, ("rule", "layouts", *JUDGED, "workloads"), compared)
    head = ("rule", "scatter", "layouts", "mean held", "run held", "half width")
    shown = [(*row[:3], *(f"{100 * value:.1f}%" for value in row[3:6])) for row in rows]
    text = _filled(DOCUMENT.read_text(), "coverage", _markdown(head, shown))
    errors_shown = [(*row[:2], *(f"{100 * value:.2f}%" for value in row[2:5])) for row in compared]
    DOCUMENT.write_text(_filled(text, "errors", _markdown(("rule", "layouts", *JUDGED), errors_shown)))
    return 0


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(head)
        table.writerows([f"{value:.4f}" if isinstance(value, float) else value for value in row] for row in rows)


def _markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def _filled(text: str, name: str, table: str) -> str:
    return re.sub(rf"(<!-- {name} -->\n).*?(<!-- end -->)", rf"\1\n{table}\n\n\2", text, flags=re.DOTALL)


if __name__ == "__main__":
    sys.exit(main())
