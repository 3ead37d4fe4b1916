"""The precision stop: what it may look at, when, and that the simulation judges as `decide` does."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from bench.coverage.precision.cells import CELLS
from bench.coverage.precision.simulate import INTERVALS, SMALL_LOOKS, Chunk, run_chunk
from bench.coverage.precision.tabulate import _stops

from pagelab import stats

PLAN = stats.PrecisionPlan((20, 40, 60), 0.02)
PAIR = [stats.Contrast("2M", "4K")]


def sample(scale: float, n: int, seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {"2M": random.normal(0.9, scale, n), "4K": random.normal(1.0, scale, n)}


def test_stops_when_narrow_goes_on_when_wide_and_ends_at_the_maximum() -> None:
    assert stats.decide(PLAN, 20, sample(0.005, 20), PAIR).reason is stats.StopReason.TARGET_MET
    assert stats.decide(PLAN, 20, sample(0.5, 20), PAIR).reason is stats.StopReason.GO_ON
    last = stats.decide(PLAN, 60, sample(0.5, 60), PAIR)
    assert (last.stop, last.reason) == (True, stats.StopReason.MAXIMUM_REACHED)


def test_width_is_that_of_the_any_shape_interval_at_the_level_of_the_look() -> None:
    data = sample(0.05, 40)
    decision = stats.decide(PLAN, 40, data, PAIR)
    interval = stats.hodges_lehmann(data["2M"], data["4K"], level=decision.level).any_shape
    assert isinstance(interval, stats.Interval)
    assert decision.level == pytest.approx(1 - 0.05 / 3)
    assert decision.relative_half_width == {PAIR[0]: interval.half_width / np.median(data["4K"])}


@pytest.mark.parametrize("effect", [-0.5, 0.0, 3.0])
def test_the_effect_does_not_enter(effect: float) -> None:
    """Never on an effect: a constant added to the treatment changes neither the width nor the decision."""
    data = sample(0.03, 20)
    moved = {**data, "2M": data["2M"] + effect}
    for target in np.linspace(0.005, 0.06, 12):
        plan = stats.PrecisionPlan((20, 40), float(target))
        plain, shifted = stats.decide(plan, 20, data, PAIR), stats.decide(plan, 20, moved, PAIR)
        assert plain.reason is shifted.reason
        assert shifted.relative_half_width[PAIR[0]] == pytest.approx(plain.relative_half_width[PAIR[0]], rel=1e-9)


def test_every_contrast_has_to_meet_the_target() -> None:
    data = {**sample(0.005, 20), "wide": sample(0.5, 20)["4K"]}
    both = [*PAIR, stats.Contrast("wide", "4K")]
    assert stats.decide(PLAN, 20, data, PAIR).stop
    assert not stats.decide(PLAN, 20, data, both).stop


def test_a_condition_with_too_many_failed_executions_never_counts_as_precise() -> None:
    data = sample(0.001, 20)
    short = {**data, "2M": data["2M"][:19]}
    decision = stats.decide(PLAN, 20, short, PAIR)
    assert decision.relative_half_width[PAIR[0]] is None
    assert decision.reason is stats.StopReason.GO_ON
    none_left = {**data, "2M": []}
    assert stats.decide(PLAN, 60, none_left, PAIR).reason is stats.StopReason.MAXIMUM_REACHED


def test_looks_are_planned_ones_and_blocks_are_whole() -> None:
    with pytest.raises(stats.StatsRefusedError, match=r"planned at \[20, 40, 60\] only") as look:
        stats.decide(PLAN, 30, sample(0.01, 30), PAIR)
    assert look.value.refusal is stats.Refusal.NOT_A_PLANNED_LOOK
    for data in (sample(0.01, 21), {"2M": np.ones(20)}):
        with pytest.raises(stats.StatsRefusedError) as blocks:
            stats.decide(PLAN, 20, data, PAIR)
        assert blocks.value.refusal is stats.Refusal.INCOMPLETE_BLOCKS
    with pytest.raises(stats.StatsRefusedError) as negative:
        stats.decide(PLAN, 20, {"2M": np.ones(20), "4K": -np.ones(20)}, PAIR)
    assert negative.value.refusal is stats.Refusal.BASELINE_NOT_POSITIVE


@pytest.mark.parametrize("looks", [(), (19, 40), (20, 20), (40, 30)])
def test_bad_looks_are_refused(looks: tuple[int, ...]) -> None:
    with pytest.raises(stats.StatsRefusedError) as refused:
        stats.PrecisionPlan(looks, 0.02)
    assert refused.value.refusal is stats.Refusal.BAD_PLAN


@pytest.mark.parametrize("target", [0.0, -0.1, inf, nan])
def test_bad_targets_are_refused(target: float) -> None:
    with pytest.raises(stats.StatsRefusedError) as refused:
        stats.PrecisionPlan((20, 40), target)
    assert refused.value.refusal is stats.Refusal.BAD_PLAN


def test_error_is_spent_over_the_looks_and_p_values_pay_for_them() -> None:
    for looks in [(20,), (20, 40), (20, 30, 40, 50, 60)]:
        plan = stats.PrecisionPlan(looks, 0.02)
        assert sum(1 - plan.level_at(look) for look in looks) == pytest.approx(0.05)
        assert plan.adjusted_p(0.01, looks[0]) == pytest.approx(0.01 * len(looks))
        assert plan.adjusted_p(0.9, looks[0]) == (0.9 if len(looks) == 1 else 1.0)
        assert plan.maximum == looks[-1]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """A few studies of two cells, as the published table is made."""
    work = tmp_path_factory.mktemp("coverage")
    names = [cell.name for cell in CELLS]
    return {name: np.load(run_chunk(Chunk(names.index(name), 0, 60, 5), work)) for name in ("normal", "bimodal-even")}


def test_simulated_rule_stops_where_decide_stops(simulated: dict[str, np.ndarray]) -> None:
    for cell in CELLS:
        if cell.name not in simulated:
            continue
        looks = simulated[cell.name][:, len(SMALL_LOOKS) :]
        judged = INTERVALS.index("spent-any-shape")
        target = float(np.median(looks[:, 1, judged, 0]))
        stops, met = _stops(looks, judged, target)
        assert len({*stops}) > 2
        plan = stats.PrecisionPlan(cell.looks, target)
        random = np.random.Generator(np.random.PCG64([5, CELLS.index(cell), 0]))
        for study in range(20):
            treatment, baseline = cell.sample(random, cell.looks[-1])
            decisions = [
                stats.decide(plan, n, {"t": treatment[:n], "b": baseline[:n]}, [stats.Contrast("t", "b")])
                for n in cell.looks
            ]
            decision = next(each for each in decisions if each.stop)
            assert decision.look == cell.looks[stops[study]]
            assert (decision.reason is stats.StopReason.TARGET_MET) == met[study]
            random.integers(2**63, size=len(cell.looks) + len(SMALL_LOOKS))  # seeds that the simulation drew
