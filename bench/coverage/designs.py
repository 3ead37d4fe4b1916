"""How near the model comes to test layouts, by the rule that chose its layouts, at equal numbers of them.

``python -m bench.coverage.designs`` traces three programs, lets a simulator play the machine, and writes
docs/method/models_designs.csv and the table of docs/method/models.md. Counts of the model are Zen 4's; run times follow
Haswell's by a rule that no model has: walks overlap the more of them there are. Nothing is timed.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from bench.coverage.models import _filled, _markdown
from pagelab import layouts as making
from pagelab.layouts import Footprint, Layout, footprint
from pagelab.model_run import choosing, planning
from pagelab.model_run.choosing import Space
from pagelab.model_run.document import Select, Simulated
from pagelab.model_run.run import moselect_first
from pagelab.model_run.simulation import Counts, Simulator, digest
from pagelab.models import Points
from pagelab.models.gaussian_process import GaussianProcess
from pagelab.simulate import hardware
from pagelab.trace.capture import capture

Array = NDArray[np.float64]

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/method/models.md"
CSV = ROOT / "docs/method/models_designs.csv"
PROGRAMS = {
    "gups": ["pagelab-workload", "gups", "--bytes", "64M", "--updates", "200000"],
    "btree": ["pagelab-workload", "btree", "--bytes", "64M", "--lookups", "30000"],
    "malloc": ["pagelab-workload", "malloc-storm", "--bytes", "48M", "--operations", "5000"],
}
SELECTS: tuple[Select, ...] = ("adaptive", "moselect", "profile", "random")
SIZES = (10, 14, 20, 30)
TESTS = 24
NOISE = 0.003
"""Relative standard error of a layout's R."""
MODEL, MACHINE = "zen-4", "haswell"


@dataclass(frozen=True)
class Program:
    """A program's space and the two simulators."""

    footprint: Footprint
    misses: Array
    model: Simulator
    machine: Simulator

    def truth(self, layouts: Sequence[Layout]) -> Array:
        """R: a base, and walks of which a part is hidden, the more the more there are; 4K takes half as long again."""
        found = self.machine.counts([*making.anchors(self.footprint), *layouts])
        h, c = np.array([one.h for one in found]), np.array([one.c for one in found])
        cost = 3 * h + c
        share = (cost - cost.min()) / (cost[0] - cost[1])
        rule: Array = (1 + 0.75 * share - 0.25 * share**2)[2:] * 1e9
        return rule

    def points(self, layouts: Sequence[Layout], noise: Array) -> Points:
        """The layouts as a campaign would have measured them."""
        found: list[Counts] = self.model.counts(layouts)
        r = self.truth(layouts) * (1 + NOISE * noise)
        return Points.of(
            "designed", r=r, c=[one.c for one in found], h=[one.h for one in found], m=[one.m for one in found],
            layouts=[one.name for one in layouts], source="simulated", r_error=NOISE * r,
        )  # fmt: skip


def program(name: str, directory: Path) -> Program:
    here = directory / name
    here.mkdir()
    trace = here / "program.trace"
    capture(PROGRAMS[name], trace, pools=True, marker=True)
    simulators = []
    for processor in (MODEL, MACHINE):
        own = here / processor
        own.mkdir()
        how = Simulated(
            processor=processor,
            description=digest(hardware.load(processor)),
            caches=False,
            trace=str(trace),
            references=0,
        )
        simulators.append(Simulator(own, how))
    space = footprint.of_trace(trace)
    return Program(space, simulators[0].profile(space).misses, *simulators)


def designed(one: Program, select: Select, space: Space, count: int, random: np.random.Generator) -> list[Layout]:
    """The layouts that a campaign would have run, by the rules that campaigns have."""
    if select in ("profile", "random"):
        return choosing.fixed(select, space, count)
    if select == "moselect":
        made = space.allowed(moselect_first(space))[:count]
        while len(made) < count:
            c = [found.c for found in one.model.counts(made)]
            more = choosing.by_gaps(space, list(zip(made, c, strict=True)), 1, len(made))
            if not more:
                break
            made += more
        return made
    allowed = choosing.candidates(space, choosing.MOST_CANDIDATES)
    counts = one.model.counts(allowed)
    shape = planning.shape("adaptive", count, TESTS, knows_c=True)
    taken = choosing.spread(counts, shape.first, (0, 1))
    noise = random.normal(size=len(allowed))
    for more in shape.later:
        points = one.points([allowed[at] for at in taken], noise[taken])
        taken += choosing.least_certain(points, counts, taken, more, seed=1).layouts
    return [allowed[at] for at in taken]


def experiment(one: Program, select: Select, count: int, seed: int) -> tuple[int, float, float]:
    """How many layouts there were, and the maximal and geometric-mean error on test layouts, whose R has no noise."""
    random = np.random.default_rng([seed, count, *select.encode()])
    tests = making.judges(one.footprint, TESTS, without=making.anchors(one.footprint), seed=seed)
    space = Space(one.footprint, one.misses, tuple(tests), 1)
    layouts = designed(one, select, space, count, random)
    fitted = GaussianProcess().fit(one.points(layouts, random.normal(size=len(layouts))))
    found = one.model.counts(tests)
    predicted = fitted.predict(*(np.array([getattr(own, key) for own in found]) for key in ("h", "m", "c")))
    errors = np.abs(predicted / one.truth(tests) - 1)
    return len(layouts), float(errors.max()), float(np.exp(np.mean(np.log(errors))))


def all_of(name: str, seeds: int) -> list[tuple[str, str, int, int, float, float, int]]:
    """Medians over seeds of tests and noise, by selector and number of layouts."""
    with tempfile.TemporaryDirectory() as directory:
        one = program(name, Path(directory))
        rows = []
        for select in SELECTS:
            for count in SIZES:
                found = [experiment(one, select, count, seed) for seed in range(seeds)]
                had, worst, mean = (median(column) for column in zip(*found, strict=True))
                rows.append((name, select, count, int(had), worst, mean, seeds))
        return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.coverage.designs", description=__doc__)
    parser.add_argument("--seeds", type=int, default=8, help="of tests and noise, for each figure")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        rows = [row for part in pool.map(all_of, PROGRAMS, [arguments.seeds] * len(PROGRAMS)) for row in part]
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(("program", "select", "asked", "layouts", "maximum", "geometric_mean", "seeds"))
        table.writerows([f"{value:.5f}" if isinstance(value, float) else value for value in row] for row in rows)
    shown = [
        (name, select, *(_cell(rows, name, select, count) for count in SIZES))
        for name in PROGRAMS
        for select in SELECTS
    ]
    head = ("program", "layouts chosen by", *(f"{count} layouts" for count in SIZES))
    DOCUMENT.write_text(_filled(DOCUMENT.read_text(), "designs", _markdown(head, shown)))
    return 0


def _cell(rows: Sequence[tuple[str, str, int, int, float, float, int]], name: str, select: str, count: int) -> str:
    own = next(row for row in rows if row[:3] == (name, select, count))
    fewer = f" ({own[3]})" if own[3] < count else ""
    return f"{100 * own[4]:.2f}%{fewer}"


if __name__ == "__main__":
    sys.exit(main())
