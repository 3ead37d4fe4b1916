"""Did the machine change while the study ran? Descriptive: the schedule already guards the contrasts."""

from __future__ import annotations

from statistics import median

from pagelab.analysis import wording
from pagelab.analysis.model import Drift

_FEWEST = 9
_CHANCE = 0.01
"""Below this p a trend is mentioned: one look a study, at data whose order was randomised."""


def drift_of(ratios: list[tuple[int, float]], randomised: bool = True) -> Drift:
    """Drift of (place in the schedule, metric over its condition's median), in schedule order.

    Kendall's tau-b (Kendall 1945), and the medians of the first and last thirds of the schedule. With fewer than
    nine executions nothing is said. ``randomised``: the schedule is known to be pagelab's.
    """
    values = [ratio for _, ratio in ratios]
    if len(values) < _FEWEST:
        return Drift(len(values), None, None, None, "Too few executions to look for drift.")
    third = len(values) // 3
    first, last = median(values[:third]), median(values[-third:])
    tau, p = None, 1.0
    if len(set(values)) > 1:
        from scipy.stats import kendalltau  # heavy: most of a second, which `compare` need not have

        found = kendalltau([place for place, _ in ratios], values)
        tau, p = float(found.statistic), float(found.pvalue)
    change = last / first - 1
    trend = "no trend beyond chance" if p >= _CHANCE else f"there is a trend, {wording.p_value(p)}"
    size = wording.percent(abs(change), signed=False)
    sentence = (
        f"From the first to the last third of the schedule, executions became {size} "
        f"{'slower' if change > 0 else 'faster'} at the median (Kendall's τ = {wording.digits(tau or 0.0, 2)}: "
        f"{trend}); "
        + (
            "the blocks spread this over all conditions alike."
            if randomised
            else "how it met the conditions is not known."
        )
    )
    return Drift(len(values), first, last, tau, sentence)
