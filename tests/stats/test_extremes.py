"""Values at the ends of the double range: a number, or a refusal; never infinity, NaN or another error."""

import numpy as np
import pytest

from pagelab.stats import Interval, StatsRefusedError, blocks_pay, paired_ratio, pairs_of, relative_effect, spread_ratio
from pagelab.stats import nondeterminism as nd
from pagelab.stats.paired import Pairs

HUGE = np.array([1.7e308, 1e308, 1.7e308, 1e308, 1.3e308, 1e308, 1.7e308])
STEPS = np.array([1.0, 1.0000000000000002, 1.0, 1.0, 1.0, 1.0, 1.0000000000000002])
TINY = np.array([1e-310, 2e-310, 2e-310, 1e-310, 2e-310, 1e-310, 2e-310])


def paired(treatment: np.ndarray, baseline: np.ndarray) -> Pairs:
    blocks = np.arange(len(treatment))
    return pairs_of(treatment, baseline, treatment_blocks=blocks, baseline_blocks=blocks)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
@pytest.mark.parametrize("other", [HUGE, TINY], ids=["huge", "tiny"])
def test_a_ratio_of_spreads_does_not_depend_on_the_unit(other: np.ndarray, scale: float) -> None:
    plain = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0])
    alone = paired(plain, np.array([1.7, 1, 1.7, 1, 1.3, 1, 1.7]) if other is HUGE else TINY * 2.0**1020)
    assert spread_ratio(paired(plain * scale, other)) == pytest.approx(spread_ratio(alone), rel=1e-9)
    assert spread_ratio(paired(STEPS, other)) > 0


@pytest.mark.parametrize("size", [paired_ratio, lambda pairs: relative_effect(pairs.treatment, pairs.baseline)])
def test_a_ratio_that_is_no_double_in_percent_is_refused(size: object) -> None:
    with pytest.raises(StatsRefusedError, match="exceeds the double range"):
        size(paired(HUGE, np.ones(7)))  # type: ignore[operator]  # both are functions


def test_a_correlation_does_not_depend_on_the_unit() -> None:
    time = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0])
    found, plain = (nd.correlation(time, other, seed=1) for other in (HUGE, HUGE / 2.0**1000))
    assert found == plain
    assert isinstance(found.interval, Interval)


def test_whether_blocks_pay_does_not_depend_on_the_unit() -> None:
    signed = np.array([1.0, 1.0, -1.0, 0.0, 0.0, 1.0, 1.0])
    found, plain = (blocks_pay(paired(signed * unit, HUGE / 1.7e308 * unit)) for unit in (1.7e308, 1.0))
    assert found is not None
    assert plain is not None
    assert found.narrower == pytest.approx(plain.narrower)
