"""Settings of estimates and intervals: seed, draws, resamples, level, threads."""

from __future__ import annotations

from dataclasses import dataclass

from pagelab.stats.refusal import Refusal, StatsRefusedError, error_rate

MOST = 1_000_000
"""Most draws or resamples: more would cost memory and time, and tell nothing more about the data."""


@dataclass(frozen=True, slots=True)
class Resampling:
    """The same settings give the same digits on any number of threads."""

    seed: int
    """Names all random numbers; 0 to 2**64 - 1."""
    resamples: int = 4_999
    """Random choices of the permutation test of two experiments (``exchange``), at least 199; raised if its level needs
    more."""
    estimate_draws: int = 5_000
    """Ratios drawn for the impact factor, and again as many for its value under exchange."""
    level: float = 0.95
    threads: int = 0
    """0: one for each CPU this process may use."""

    def __post_init__(self) -> None:
        error_rate(self.level)
        if not 0 <= self.seed < 2**64:
            raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, f"seed = {self.seed}: not within 0 ... 2**64 - 1")
        for name, least in (("resamples", 199), ("estimate_draws", 100)):
            value = getattr(self, name)
            if not least <= value <= MOST:
                raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, f"{name} = {value}: not within {least} ... {MOST}")
        if not 0 <= self.threads <= 1024:
            raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, f"threads = {self.threads}: not within 0 ... 1024")

    @property
    def tail(self) -> float:
        """Probability outside the interval at either end."""
        return float(error_rate(self.level) / 2)
