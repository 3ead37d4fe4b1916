"""Computes the smallest p-value that a study can attain, before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Literal

from pagelab.stats.rank_test import Alternative
from pagelab.stats.refusal import Refusal, StatsRefusedError, error_rate


@dataclass(frozen=True, slots=True)
class Reach:
    """The smallest attainable p of n against m executions over a family of contrasts."""

    n_treatment: int
    n_baseline: int
    contrasts: int
    alpha: float
    smallest_p: float
    """p of values that all differ and separate completely."""
    smallest_adjusted_p: float
    """``smallest_p`` after Holm's first step over ``contrasts``."""
    reachable: bool
    smallest_n: int
    """Least number of executions in each condition with which the level can be reached."""

    def __str__(self) -> str:
        verdict = "can reach" if self.reachable else "cannot reach"
        more = "" if self.reachable else f"; use at least {self.smallest_n} executions a condition"
        over = f"{self.contrasts} contrast" + ("s" if self.contrasts > 1 else "")
        return (
            f"{self.n_treatment} against {self.n_baseline} executions {verdict} the level {self.alpha:g}: the smallest "
            f"possible p is {self.smallest_p:.3g}, {self.smallest_adjusted_p:.3g} after Holm over {over}{more}"
        )


def smallest_p(
    n_treatment: int,
    n_baseline: int,
    *,
    alternative: Alternative | Literal["two-sided", "greater", "less"] = Alternative.TWO_SIDED,
    stratified: bool = False,
) -> Fraction:
    """2 / C(n+m, n) two-sided, 1 / C(n+m, n) one-sided: the p of complete separation without ties.

    ``stratified``: the p of the test within blocks that contain each condition once, 2 / 2^b and 1 / 2^b, with
    b = min(n, m) blocks that can contain both.

    Ties are known only afterwards. With n = m they can only raise this bound. With n != m the midranks need not be
    symmetric; an extreme result without an equally extreme opposite can then have half of this p.
    """
    for name, count in (("n_treatment", n_treatment), ("n_baseline", n_baseline)):
        if count < 1:
            raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, f"{name} = {count}: not 1 or more")
    sides = 2 if Alternative(alternative) is Alternative.TWO_SIDED else 1
    choices = 2 ** min(n_treatment, n_baseline) if stratified else comb(n_treatment + n_baseline, n_treatment)
    return min(Fraction(1), Fraction(sides, choices))


def reachable(
    n_treatment: int, n_baseline: int, *, contrasts: int, alpha: float = 0.05, stratified: bool = False
) -> Reach:
    """Whether p <= ``alpha`` after Holm over ``contrasts`` two-sided tests is possible at all, and the n it needs.

    Holm's first step multiplies the smallest p by the family size. If it fails, nothing is rejected; if all contrasts
    separate completely, it is the hardest step. So smallest p times ``contrasts`` <= alpha is necessary and sufficient.
    To be reachable is not power: 6 against 6 executions reach 0.05 only by complete separation.
    """
    if contrasts < 1:
        raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, f"contrasts = {contrasts}: not 1 or more")
    bound = 1 - error_rate(alpha)
    best = smallest_p(n_treatment, n_baseline, stratified=stratified)
    return Reach(
        n_treatment=n_treatment,
        n_baseline=n_baseline,
        contrasts=contrasts,
        alpha=alpha,
        smallest_p=float(best),
        smallest_adjusted_p=float(min(Fraction(1), best * contrasts)),
        reachable=best * contrasts <= bound,
        smallest_n=smallest_equal_n(bound / contrasts, stratified=stratified),
    )


def smallest_equal_n(bound: Fraction, *, stratified: bool = False) -> int:
    """Smallest n with 2 / C(2n, n) <= ``bound``; for the test within blocks, with 2 / 2^n <= ``bound``."""
    n = 1
    while smallest_p(n, n, stratified=stratified) > bound:
        n += 1
    return n
