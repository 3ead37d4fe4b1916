"""Coverage of the effects of `pagelab model kinds`: ``python -m bench.coverage.kinds``.

Blocks of 2 and 8 combinations without any effect, which differ as wholes by 30%; the noise of an execution is normal,
Student's t with 2 degrees of freedom, exponential, or has rare bursts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pagelab.stats import Interval, paired_shift
from pagelab.stats.factorial import factorial_contrast

Noise = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
REPETITIONS = 8000
DESIGNS = ((1, 6), (3, 9), (3, 12), (3, 20))
"""Numbers of kinds and of blocks."""
NOISES: dict[str, Noise] = {
    "normal": lambda random, shape: random.normal(0, 0.03, shape),
    "t, 2 degrees": lambda random, shape: 0.02 * random.standard_t(2, shape),
    "exponential": lambda random, shape: 0.03 * random.exponential(1, shape),
    "bursts": lambda random, shape: (
        random.normal(0, 0.01, shape) + np.where(random.random(shape) < 0.1, random.exponential(0.3, shape), 0)
    ),
}


def coverage(noise: Noise, kinds: int, blocks: int, random: np.random.Generator) -> float:
    """Share of the 95% intervals of a main effect of 0 that contain 0."""
    weights = factorial_contrast(kinds, (0,))
    held = 0
    for _ in range(REPETITIONS):
        logs = random.normal(0, 0.3, (blocks, 1)) + noise(random, (blocks, 2**kinds))
        interval = paired_shift(logs @ weights).interval
        assert isinstance(interval, Interval)
        held += interval.low <= 0 <= interval.high
    return held / REPETITIONS


def main() -> None:
    """Prints the table of docs/method/models.md."""
    random = np.random.default_rng(21)
    print("| noise | " + " | ".join(f"{kinds} kinds, {blocks} blocks" for kinds, blocks in DESIGNS) + " |")
    print("|---|" + "---:|" * len(DESIGNS))
    for name, noise in NOISES.items():
        cells = [f"{100 * coverage(noise, kinds, blocks, random):.1f}" for kinds, blocks in DESIGNS]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
