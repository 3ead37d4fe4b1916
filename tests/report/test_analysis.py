"""What an analysis says of studies whose numbers are known."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import factory
import polars as pl
import pytest
from factory import Run, data_of, separated, study

from pagelab.analysis import Analysis, NothingToAnalyseError, StudyData, analyse
from pagelab.analysis.answer import Evidence, judged
from pagelab.analysis.following import following_of
from pagelab.analysis.machine import waiting_of
from pagelab.analysis.model import Contrast, Interval
from pagelab.analysis.verdict import judged_of
from pagelab.report import tables
from pagelab.report.export import analysis_json
from pagelab.study.imported import Columns, import_into, read_csv
from pagelab.study.plan import Condition, Precision
from pagelab.study.schedule import Slot
from pagelab.study.store import Store


def test_fully_separated_twenty_against_twenty_gives_prepages_p(tmp_path: Path) -> None:
    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 20), separated(20, 1.0, 2.0))
    (contrast,) = found.planned()
    assert contrast.p == pytest.approx(2 / math.comb(40, 20), rel=1e-15)
    assert contrast.p_holm == contrast.p
    assert contrast.verdict == "lower"
    assert contrast.separated
    assert contrast.shift == pytest.approx(-1.0)
    assert contrast.relative == pytest.approx(-0.5, abs=0.01)
    assert found.headline.startswith("w is 49.8% faster under b than under a (95% interval ")
    assert found.headline.endswith(", 20 executions of each, p = 1.5 × 10⁻¹¹).")
    assert contrast.sentence.endswith(
        "): the median goes from 2.010 s to 1.010 s. Each of its 20 executions lies below all 20 of a."
    )
    assert found.caveats == ()


def test_holm_covers_all_planned_contrasts_of_the_study(tmp_path: Path) -> None:
    n = 6
    times = {f"{w}/a": [2 + i / 100 for i in range(n)] for w in "xyz"}
    times |= {f"{w}/b": [1 + i / 100 for i in range(n)] for w in "xyz"}
    found = study(tmp_path, factory.plan("xyz", "ab", n), times)
    alone = 2 / math.comb(12, 6)
    assert [c.p for c in found.planned()] == pytest.approx([alone] * 3)
    assert [c.p_holm for c in found.planned()] == pytest.approx([3 * alone] * 3)
    assert all(c.p_holm is None and c.p is None for c in found.contrasts if not c.planned)


def test_a_contrast_without_executions_keeps_its_place_in_the_family(tmp_path: Path) -> None:
    plan = factory.plan(["w"], ["a", "b", "c"], 6)
    found = study(tmp_path, plan, separated(6, 1.0, 2.0))
    b, c = found.planned()
    assert b.p_holm == pytest.approx(2 * 2 / math.comb(12, 6))
    assert c.verdict == "not-testable"
    assert c.sentence == "w: no result for c; no wall time from c."
    assert "could not be made" in found.headline


def test_conditions_left_out_before_the_start_are_no_part_of_the_family(tmp_path: Path) -> None:
    plan = factory.plan(["w"], ["a", "b", "1G"], 6, left_out={"w/1G": "no 1G pages on this machine"})
    found = study(tmp_path, plan, separated(6, 1.0, 2.0))
    assert [c.policy for c in found.planned()] == ["b"]
    assert "w/1G was left out: no 1G pages on this machine" in found.caveats


def test_a_reason_for_what_was_left_out_is_told_once(tmp_path: Path) -> None:
    reasons = {f"{program}/{policy}": "not installed" for program in ("x", "y") for policy in "ab"} | {
        "w/b": "no pages"
    }
    plan = factory.plan(["v", "w", "x", "y"], ["a", "b"], 6, left_out=reasons)
    times = {"v/a": [2 + i / 100 for i in range(6)], "v/b": [1 + i / 100 for i in range(6)]}
    found = study(tmp_path, plan, times | {"w/a": [3 + i / 100 for i in range(6)]})
    told = [caveat for caveat in found.caveats if "left out" in caveat]
    assert told == ["w/b was left out: no pages", "x and y were left out: not installed"]


def test_no_difference_says_what_could_have_escaped(tmp_path: Path) -> None:
    values = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07]
    times = {"w/a": values, "w/b": [v + 0.001 for v in values]}
    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 8), times)
    (contrast,) = found.planned()
    assert contrast.verdict == "no-difference"
    assert contrast.sentence.startswith("No difference found between b and a for w (p = ")
    assert "The data are compatible with changes from −" in contrast.sentence
    assert contrast.relative_interval is not None
    assert contrast.relative_interval.low < 0 < contrast.relative_interval.high


def test_a_level_out_of_reach_is_said(tmp_path: Path) -> None:
    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 3), separated(3, 1.0, 2.0))
    (contrast,) = found.planned()
    assert contrast.verdict == "no-difference"
    assert contrast.shift_interval is None
    assert "no difference could have been found: the smallest possible p is 0.10 before correction" in contrast.sentence
    assert "not achievable" in contrast.note


def test_an_interval_that_leaves_out_zero_is_not_enough_after_holm(tmp_path: Path) -> None:
    """Four contrasts, p = 0.026 each before Holm: the interval excludes zero, the family does not allow it."""
    a = [10.0, 11, 12, 13, 14, 15]
    b = [8.0, 8.5, 9, 9.5, 12.5, 9.9]
    times = {f"w/{p}": b for p in "bcde"} | {"w/a": a}
    found = study(tmp_path, factory.plan(["w"], "abcde", 6), times)
    contrast = found.planned()[0]
    assert (contrast.p or 1) < 0.05
    assert (contrast.p_holm or 0) > 0.05
    assert contrast.verdict == "no-difference"
    assert "leaves out 0, but after the correction for several contrasts it is not enough" in contrast.sentence
    assert found.headline.startswith("No difference was found in 4 comparisons: 4 cannot be told (changes under ")


def test_one_execution_has_no_spread_no_test_worth_anything_and_no_nan(tmp_path: Path) -> None:
    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 1), {"w/a": [2.0], "w/b": [1.0]})
    summary = found.summary("w/a", "wall_s")
    assert summary is not None
    assert (summary.n, summary.sd, summary.cv, summary.median_interval) == (1, None, None, None)
    assert "not achievable" in summary.median_note
    (contrast,) = found.planned()
    assert contrast.p == 1.0
    assert contrast.verdict == "no-difference"
    assert found.spreads[0].sentence == "w, b: one execution has no spread."
    json.dumps(found.to_dict(), allow_nan=False)


def test_zero_variance_and_ties(tmp_path: Path) -> None:
    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 8), {"w/a": [1.0] * 8, "w/b": [1.0] * 8})
    (contrast,) = found.planned()
    assert contrast.p == 1.0
    assert contrast.shift == 0.0
    assert contrast.ties
    summary = found.summary("w/b", "wall_s")
    assert summary is not None
    assert (summary.minimum, summary.maximum, summary.sd) == (1.0, 1.0, 0.0)
    assert found.spreads[0].iqr_share == 0.0


def test_a_policy_under_which_nothing_ends_in_time_has_a_direction_and_no_size(tmp_path: Path) -> None:
    def stop(condition: Condition, _: Slot, run: Run) -> Run:
        run.status = "timed-out" if condition.policy == "b" else "ok"
        return run

    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 8), separated(8, 1.0, 2.0), stop)
    (contrast,) = found.planned()
    assert contrast.p == pytest.approx(2 / math.comb(16, 8))
    assert (contrast.verdict, contrast.shift, contrast.relative) == ("higher", None, None)
    assert contrast.sentence == (
        "b lengthens w (p = 1.6 × 10⁻⁴): no execution under b ended within the time limit, as those under a did; the "
        "size of the difference cannot be estimated."
    )


def test_a_time_limit_counts_for_every_time_and_for_nothing_else(tmp_path: Path) -> None:
    def stop(condition: Condition, slot: Slot, run: Run) -> Run:
        if condition.policy == "b" and slot.execution == 0:
            run.status = "timed-out"
        return run

    plan = factory.plan(["w"], ["a", "b"], 8, metric="peak_rss_bytes")
    (contrast,) = study(tmp_path / "memory", plan, separated(8, 1.0, 2.0), stop).planned()
    assert (contrast.n, contrast.timed_out) == (7, 0)
    plan = factory.plan(["w"], ["a", "b"], 8, metric="user_s")
    (contrast,) = study(tmp_path / "user", plan, separated(8, 1.0, 2.0), stop).planned()
    assert (contrast.n, contrast.timed_out) == (7, 1)
    # Seven of b are below all of a, and the one that timed out is above them: 67 choices are at least as extreme.
    assert contrast.p == pytest.approx(2 * 67 / math.comb(16, 8))


def test_executions_without_a_value_of_the_primary_metric_are_told(tmp_path: Path) -> None:
    """Regression: half of one side had printed nan, and nothing said that its verdict is about the other half."""

    def behave(condition: Condition, slot: Slot) -> Run:
        lost = condition.policy == "b" and slot.block % 2 == 0
        value = (2.0 if condition.policy == "b" else 1.0) + slot.block / 100
        return Run(measurements=[] if lost else [value])  # what is printed as nan is no measurement

    planned = factory.plan(["w"], ["a", "b"], 16, metric="measure.latency").model_copy(update={"test": "pairs"})
    found = analyse(data_of(factory.store(tmp_path, planned, behave)))
    assert found.caveats[0] == (
        "8 of 16 executions in w/b have no value of latency (none, or not a finite number): the conclusions are about "
        "the others."
    )


def test_holm_asks_less_of_a_comparison_beside_others_that_were_found(tmp_path: Path) -> None:
    """Regression: "none could have been found" was said of 6 pairs of two comparisons, of which one was rejected: the
    other then only needs p = 0.05, and six pairs reach 0.031.
    """
    planned = factory.plan(["few", "many"], ["a", "b"], 20).model_copy(
        update={"test": "pairs", "blocks": {"few": 6, "many": 20}}
    )

    def behave(condition: Condition, slot: Slot) -> Run:
        if condition.policy == "a":
            return Run(wall_s=1.0)
        small = 0.9 if slot.block == 0 else 1.1 + slot.block / 1000
        return Run(wall_s=small if condition.workload == "few" else 2.0 + slot.block / 1000)

    few, many = analyse(data_of(factory.store(tmp_path, planned, behave))).planned()
    assert (many.verdict, few.verdict, few.pairs) == ("higher", "no-difference", 6)
    assert few.smallest_p == 2 / 2**6
    assert few.sentence.startswith("No difference found between b and a for few")


def test_short_placed_executions_stay_and_are_marked(tmp_path: Path) -> None:
    def short(condition: Condition, slot: Slot, run: Run) -> Run:
        if condition.policy == "b":
            run.asked, run.huge_share, run.short = "2M", 0.9, slot.execution == 0
        return run

    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 8), separated(8, 1.0, 2.0), short)
    b = found.condition("w/b")
    assert (b.analysed, b.short_placed) == (8, 1)
    placement = next(p for p in found.placements if p.condition == "w/b")
    assert placement.asked == "2M in heap"
    assert placement.fraction_least == 60 / 128
    assert (placement.tiles_got, placement.tiles_asked) == (7 * 128 + 60, 8 * 128)
    assert [w.kind for w in factory.recorded(found)] == ["placement-shortfall"]
    assert any("1 condition got fewer pages of the asked size" in c for c in found.caveats)


def test_warmups_are_in_no_summary(tmp_path: Path) -> None:
    plan = factory.plan(["w"], ["a", "b"], 6, warmups=2)

    def run_of(_: Condition, slot: Slot) -> Run:
        failed = slot.position == 0
        return Run(wall_s=50.0 if slot.warmup else 1 + slot.execution / 100, status="failed" if failed else "ok")

    found = analyse(data_of(factory.store(tmp_path, plan, run_of)))
    summary = found.summary("w/a", "wall_s")
    assert summary is not None
    assert (summary.n, found.condition("w/a").warmups) == (6, 2)
    assert summary.maximum < 2
    assert [(f.position, f.warmup) for f in found.failures] == [(0, True)], "listed, and no loss to the analysis"
    assert found.caveats == ()


def test_measurements_count_by_execution(tmp_path: Path) -> None:
    """Many measurements inside few executions give no more evidence: the execution's mean is the unit."""
    plan = factory.plan(["w"], ["a", "b"], 6, metric="measure.latency")

    def run_of(condition: Condition, slot: Slot) -> Run:
        base = 10.0 if condition.policy == "a" else 5.0
        return Run(measurements=[base + slot.execution + x for x in (-1.0, 0.0, 1.0)] * 50)

    found = analyse(data_of(factory.store(tmp_path, plan, run_of)))
    (contrast,) = found.planned()
    assert (contrast.metric, contrast.n) == ("measure.latency", 6)
    assert contrast.smallest_p == 2 / math.comb(12, 6)
    assert "lowers the latency of w" in contrast.sentence or "No difference" in contrast.sentence
    a = next(m for m in found.measurements if m.condition == "w/a")
    assert (a.executions, a.measurements, a.unit) == (6, 900, "ns")
    assert a.sd_between == pytest.approx(math.sqrt(3.5))
    assert a.sd_within == pytest.approx(math.sqrt(2 / 3 * 900 / (900 - 6)))


def test_a_counter_with_a_baseline_of_zero_has_a_shift_but_no_percentage(tmp_path: Path) -> None:
    def count(condition: Condition, slot: Slot, run: Run) -> Run:
        run.counters = {"tlb.walks": 0 if condition.policy == "a" else 100 + slot.execution}
        return run

    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 6), separated(6, 1.0, 2.0), count)
    walks = next(c for c in found.contrasts if c.metric == "counter.tlb.walks")
    assert walks.relative is None
    assert walks.shift == pytest.approx(102.5)
    assert "no percentage of it exists" in walks.note
    assert not walks.planned


def test_a_counter_that_did_not_count_is_absent_not_zero(tmp_path: Path) -> None:
    def count(_condition: Condition, _slot: Slot, run: Run) -> Run:
        run.counters = {"tlb.walks": None}
        return run

    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 6), separated(6, 1.0, 2.0), count)
    assert "counter.tlb.walks" not in {m.name for m in found.metrics}
    assert all("counter.tlb.walks" not in e.values for e in found.executions)


def test_a_precision_stop_is_marked(tmp_path: Path) -> None:
    plan = factory.plan(["w"], ["a", "b"], 40, precision=Precision(target=0.02, looks=[20, 40]))
    times = separated(20, 1.0, 2.0)
    looks = [{"look": 20, "stop": True, "reason": "precise"}]

    def run_of(condition: Condition, slot: Slot) -> Run | None:
        return Run(wall_s=times[condition.name][slot.execution]) if slot.block < 20 else None

    found = analyse(data_of(factory.store(tmp_path, plan, run_of, looks=looks)))
    (contrast,) = found.planned()
    assert contrast.p == pytest.approx(2 / math.comb(40, 20))
    assert contrast.p_holm == pytest.approx(2 * 2 / math.comb(40, 20)), "times the number of looks"
    assert contrast.shift_interval == contrast.shift_any_shape
    assert contrast.shift_interval is not None
    assert contrast.shift_interval.level == 0.975
    assert "(97.5% interval " in contrast.sentence
    summary = found.summary("w/a", "wall_s")
    assert summary is not None
    assert summary.median_interval is not None
    assert summary.median_interval.level == 0.975
    assert found.design.precision_stop
    assert found.design.complete
    assert found.design.looks == ("after 20 blocks: precise",)
    assert "by precision: after 20 and 40 blocks" in found.design.stop
    assert any("precision stop" in c for c in found.caveats)


@pytest.mark.parametrize(("zeros", "said"), [(12, "lower"), (4, "cannot-tell"), (0, "cannot-tell")])
def test_values_of_0_without_pairs_have_an_answer(tmp_path: Path, zeros: int, said: str) -> None:
    """Regression: an interval down to −100% has no width in logarithms, and the report was a fault."""
    plan = factory.plan(["w"], ["a", "b"], 12, metric="major_faults")

    def run_of(condition: Condition, slot: Slot) -> Run:
        nothing = condition.policy == "b" and slot.execution < zeros
        return Run(faults=(1, 0 if nothing else 1000 + (slot.execution * 5) % 12))

    data = data_of(factory.store(tmp_path, plan, run_of))
    found = analyse(data)
    (one,) = judged_of(found.compared(), found.design, found.metrics)
    assert one.answer.said == said or zeros == 0
    assert one.answer.interval is not None
    assert (one.answer.interval.low == -1) == (zeros > 0)
    assert (one.answer.seen is None) == (one.answer.needed is None) == (zeros > 0)
    assert following_of(found, data).command


def unequal(directory: Path, treated: list[float], executions: int) -> Analysis:
    """A study of which the condition ``b`` has only some executions; ``a`` has times of about 1."""
    times = {"w/a": [1 + 0.001 * ((i * 7) % executions) for i in range(executions)], "w/b": treated}

    def run_of(condition: Condition, slot: Slot) -> Run:
        mine = times[condition.name]
        return Run(wall_s=mine[slot.execution]) if slot.execution < len(mine) else Run(status="failed")

    return analyse(data_of(factory.store(directory, factory.plan(["w"], ["a", "b"], executions), run_of)))


def test_unequal_numbers_are_judged_by_the_p_that_they_can_give(tmp_path: Path) -> None:
    """Regression: 3 executions against 40 were "3 executions of each, 4 are the fewest", and their p was left out."""
    beside = unequal(tmp_path / "beside", [1.0, 1.02, 1.0395], 40)
    assert "(95% interval " in beside.headline
    assert ", 3 against 40 executions, p = " in beside.headline
    assert "fewest" not in beside.headline
    near = unequal(tmp_path / "near", [1.0195, 1.0195, 1.0205], 40)
    assert "same within ±" in near.headline
    few = unequal(tmp_path / "few", [2.0, 2.1, 2.2], 5)
    assert "cannot tell: 3 against 5 executions, 4 of each are the fewest (" not in few.headline, "2/C(8,3) is below 5%"
    fewer = unequal(tmp_path / "fewer", [2.0, 2.1], 5)
    assert "cannot tell: 2 against 5 executions, 4 of each are the fewest (" in fewer.headline
    assert "p = " not in fewer.headline


@pytest.mark.parametrize("executions", [20, 2500])
def test_a_page_says_how_p_is_computed(tmp_path: Path, executions: int) -> None:
    """Regression: the note under a table of normal approximations said "exact"; p of 2,500 that separate was 0."""
    values = "".join(f"{p},{1 + (p == 'b') + i / 1e4}\n" for i in range(executions) for p in "ab")
    (tmp_path / "times.csv").write_text(f"policy,time\n{values}")
    columns = Columns(factor="policy", time="time")
    import_into(tmp_path / "s", read_csv(tmp_path / "times.csv", columns), origin=tmp_path / "times.csv", name="many")
    found = analyse(data_of(tmp_path / "s"))
    exact = executions == 20
    assert tables.contrasts(found).note.startswith(
        f"Two-sided rank-sum test, {'exact' if exact else 'by a normal approximation'}; Holm over 1 comparison."
    )
    assert ("p < 10⁻³⁰⁰)" in found.headline) == (not exact)
    assert "< 10⁻³⁰⁰" in tables.contrasts(found).rows[0] or exact


def test_the_note_on_shifts_is_that_of_the_test(tmp_path: Path) -> None:
    """Regression: of the shifts of pairs it said that they do not pair the executions."""
    notes = {}
    for test in ("pairs", "rank-sum", "stratified"):
        plan = factory.plan(["w"], ["a", "b"], 6).model_copy(update={"test": test})
        notes[test] = tables.shifts(study(tmp_path / test, plan, separated(6, 1.0, 2.0))).note
    assert notes["pairs"].startswith("The shift is made of the pairs’ differences, as the change is of their ratios")
    assert "ignore the blocks" in notes["stratified"]
    assert notes["rank-sum"].startswith("The shift is the median of all differences")


def test_an_unfinished_study_says_so(tmp_path: Path) -> None:
    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 10), separated(6, 1.0, 2.0))
    assert not found.design.complete
    assert any(c.startswith("The study is not finished: this is its state so far") for c in found.caveats)


def test_drift_is_seen(tmp_path: Path) -> None:
    plan = factory.plan(["w"], ["a", "b"], 20)
    found = analyse(data_of(factory.store(tmp_path, plan, lambda _, s: Run(wall_s=1 + 0.01 * s.position))))
    assert found.drift.tau is not None
    assert found.drift.tau > 0.9
    assert "slower at the median" in found.drift.sentence
    assert "there is a trend" in found.drift.sentence


def test_nothing_finished_is_an_error_that_says_so(tmp_path: Path) -> None:
    data = data_of(factory.store(tmp_path, factory.plan(["w"], ["a", "b"], 3), lambda *_: None))
    with pytest.raises(NothingToAnalyseError, match="example has no finished run yet"):
        analyse(data)


def test_the_same_store_gives_the_same_bytes(typical_data: StudyData, typical: Path) -> None:
    assert analysis_json(analyse(typical_data)) == analysis_json(analyse(data_of(typical)))


def test_the_order_of_rows_does_not_matter(typical_data: StudyData) -> None:
    shuffled = replace(typical_data, measurements=typical_data.measurements.reverse())
    assert analysis_json(analyse(shuffled)) == analysis_json(analyse(typical_data))


def test_golden_analysis(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """A study small enough to check by hand: six against six, one failure, a counter."""

    def change(condition: Condition, slot: Slot, run: Run) -> Run:
        run.counters = {"tlb.walks": (1000 if condition.policy == "a" else 100) + slot.execution}
        if condition.policy == "b" and slot.execution == 5:
            run.status = "failed"
        return run

    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 6), separated(6, 1.0, 2.0), change)
    golden("analysis.json", analysis_json(replace(found, created_by="pagelab")))


@pytest.mark.by_turns(4)
def test_verdicts_agree_with_scipy_on_every_small_arrangement(tmp_path: Path) -> None:
    """Exact p of every way to divide seven distinct values, against an independent implementation."""
    from scipy.stats import mannwhitneyu

    for number, chosen in enumerate(sorted({tuple(sorted(p[:3])) for p in permutations(range(7))})):
        b = [1.0 + i for i in chosen]
        a = [1.0 + i for i in range(7) if i not in chosen]
        found = study(tmp_path / str(number), factory.plan(["w"], ["a", "b"], 4), {"w/a": a, "w/b": b})
        assert found.planned()[0].p == pytest.approx(mannwhitneyu(b, a, method="exact").pvalue)


def test_a_stratified_study_is_tested_within_its_blocks(tmp_path: Path) -> None:
    """Each block is 1 s slower than the one before and the policy adds 0.3 s: hidden without the blocks."""
    planned = factory.plan(["w"], ["a", "b"], 10)

    def drifting(condition: Condition, slot: Slot) -> Run:
        return Run(wall_s=10.0 + slot.block + (0.3 if condition.policy == "b" else 0.0))

    directory = factory.store(tmp_path / "over-all", planned, drifting)
    (over_all,) = analyse(data_of(directory)).planned()
    assert (over_all.verdict, over_all.untested) == ("no-difference", 0)
    within = planned.model_copy(update={"test": "stratified"})
    found = analyse(data_of(factory.store(tmp_path / "within", within, drifting)))
    (contrast,) = found.planned()
    assert found.design.test == "stratified"
    assert (contrast.verdict, contrast.p, contrast.smallest_p) == ("higher", 2 / 2**10, 2 / 2**10)
    assert contrast.w == pytest.approx((contrast.w_expected or 0) + 5.0)


def test_executions_without_a_counterpart_in_their_block_are_told(tmp_path: Path) -> None:
    planned = factory.plan(["w"], ["a", "b"], 10).model_copy(update={"test": "stratified"})

    def failing(condition: Condition, slot: Slot) -> Run:
        late = condition.policy == "b" and slot.block == 1
        crashed = condition.policy == "a" and slot.block == 0
        return Run(
            wall_s=(2.0 if condition.policy == "b" else 1.0) + slot.block / 100,
            status="failed" if crashed else "timed-out" if late else "ok",
        )

    (contrast,) = analyse(data_of(factory.store(tmp_path, planned, failing))).planned()
    assert (contrast.untested, contrast.p) == (1, 2 / 2**9), "the time-out counts, the crash leaves its block"
    assert "1 execution without a counterpart in the same block has no part in the test." in contrast.sentence


def test_metrics_that_are_not_compared_and_had_no_value_are_the_last_caveat(tmp_path: Path) -> None:
    """Regression: every metric of a window had a caveat of its own, before all others."""
    planned = factory.plan(["w"], ["a", "b"], 6)
    planned = planned.model_copy(
        update={"conditions": [condition.model_copy(update={"drop_first": 2}) for condition in planned.conditions]}
    )

    def measured(_condition: Condition, slot: Slot) -> Run:
        return Run(measurements=[1.0], status="failed" if slot.position == 3 else "ok")

    found = analyse(data_of(factory.store(tmp_path, planned, measured)))
    assert "1 execution ended without a time to analyse" in found.caveats[0]
    assert found.caveats[-1] == (
        "11 executions reported only warm-up measurements of latency (drop_first), and so have no value of it"
    )


def test_time_spent_waiting_for_a_processor_is_told(tmp_path: Path) -> None:
    data = data_of(factory.store(tmp_path, factory.plan(["w"], ["a", "b"], 6), lambda *_: Run(wall_s=2.0)))
    assert waiting_of(data) is None
    assert waiting_of(replace(data, runs=data.runs.with_columns(waiting_s=0.08))) is None
    busy = pl.when(pl.col("policy") == "a").then(1.0).otherwise(0.5)
    told = waiting_of(replace(data, runs=data.runs.with_columns(waiting_s=busy)))
    assert told is not None
    assert "for 50.0% under a and 25.0% under b: differences in wall time" in told
    longer = waiting_of(replace(data, runs=data.runs.with_columns(waiting_s=2.5 * pl.col("execution"))))
    assert longer is not None
    assert "for more than all of it under a and more than all of it under b" in longer
    assert told in analyse(replace(data, runs=data.runs.with_columns(waiting_s=busy))).caveats


def test_waiting_is_no_caveat_of_processor_time(tmp_path: Path) -> None:
    planned = factory.plan(["w"], ["a", "b"], 6, metric="cpu_s")
    data = data_of(factory.store(tmp_path, planned, lambda *_: Run(wall_s=2.0)))
    assert waiting_of(replace(data, runs=data.runs.with_columns(waiting_s=1.0))) is None


def test_an_analysis_prints_as_a_short_table(tmp_path: Path) -> None:
    def measured(condition: Condition, slot: Slot) -> Run:
        return Run(wall_s=(2.0 if condition.policy == "b" else 1.0) + 0.001 * slot.position)

    found = analyse(data_of(factory.store(tmp_path, factory.plan(["w"], ["a", "b"], 8), measured)))
    first, row = str(found).splitlines()[:2]
    assert first == found.headline
    assert row.startswith("  w · b")
    assert "slower (95% interval" in row
    assert repr(found) == str(found)
    assert "<th style='text-align:left'>w · b</th>" in found._repr_html_()


def test_warm_up_inside_executions_is_in_no_mean_and_is_told(tmp_path: Path) -> None:
    planned = factory.plan(["w"], ["a", "b"], 8, metric="measure.latency")
    warm = [condition.model_copy(update={"drop_first": 2}) for condition in planned.conditions]
    planned = planned.model_copy(update={"conditions": warm})

    def measured(_condition: Condition, slot: Slot) -> Run:
        return Run(measurements=[900.0, 800.0] if slot.position == 5 else [900.0, 800.0, 10.0, 20.0])

    data = data_of(factory.store(tmp_path, planned, measured))
    found = analyse(data)
    assert found.design.drop_first == {"w": 2}
    values = [e.values["measure.latency"] for e in found.executions if "measure.latency" in e.values]
    assert values == [15.0] * 15
    assert {m.measurements for m in found.measurements} <= {14, 16}
    assert "1 execution reported only warm-up measurements of latency (drop_first)" in found.caveats[0]
    assert data.measurements["dropped"].sum() == 2 * data.measurements["run_id"].n_unique()
    with Store.open(tmp_path, write=False) as store:
        assert set(store.metric("measure.latency")["value"]) == {15.0}


def _paired(tmp_path: Path, blocks: int, behave: Callable[[Condition, Slot], Run]) -> Contrast:
    planned = factory.plan(["w"], ["a", "b"], blocks).model_copy(update={"test": "pairs"})
    return analyse(data_of(factory.store(tmp_path, planned, behave))).planned()[0]


def test_pairs_see_through_drift_in_test_size_and_interval(tmp_path: Path) -> None:
    """Each block is 10% slower than the one before, and the policy adds 3% in every one."""

    def drifting(condition: Condition, slot: Slot) -> Run:
        return Run(wall_s=1.1**slot.block * (1.03 if condition.policy == "b" else 1.0))

    found = _paired(tmp_path, 12, drifting)
    assert (found.verdict, found.p, found.pairs) == ("higher", 2 / 2**12, 12)
    assert found.relative == pytest.approx(0.03)
    assert found.relative_interval is not None
    assert (found.relative_interval.low, found.relative_interval.high) == (pytest.approx(0.03), pytest.approx(0.03))
    assert found.narrower == pytest.approx(0.0, abs=1e-9)
    assert " within 12 pairs; medians of all executions: " in found.sentence


def test_five_pairs_cannot_tell(tmp_path: Path) -> None:
    found = _paired(
        tmp_path, 5, lambda condition, slot: Run(wall_s=(2.0 if condition.policy == "b" else 1.0) + slot.block)
    )
    assert found.verdict == "no-difference"
    assert found.sentence.startswith("Cannot tell whether b changes w: with 5 pairs of executions")


def test_a_pair_that_lost_a_partner_is_in_no_size(tmp_path: Path) -> None:
    """The crash takes its block out of test and size; the time-out is in the test alone."""

    def behave(condition: Condition, slot: Slot) -> Run:
        late = condition.policy == "b" and slot.block == 1
        crashed = condition.policy == "a" and slot.block == 0
        slow = 1.5 if condition.policy == "b" else 1.0
        return Run(wall_s=slow * (1 + slot.block / 10), status="failed" if crashed else "timed-out" if late else "ok")

    found = _paired(tmp_path, 10, behave)
    assert (found.untested, found.p, found.pairs) == (1, 2 / 2**9, 8)
    assert found.relative == pytest.approx(0.5)
    assert "1 execution without a counterpart in the same block has no part in the test." in found.sentence


def test_blocks_that_do_not_pay_are_a_caveat(tmp_path: Path) -> None:
    """The policy is slow whenever the baseline is fast."""
    planned = factory.plan(["w"], ["a", "b"], 12).model_copy(update={"test": "pairs"})

    def opposite(condition: Condition, slot: Slot) -> Run:
        fast = (slot.block % 2 == 0) == (condition.policy == "b")
        return Run(wall_s=(1.0 if fast else 2.0) + slot.block / 1000)

    found = analyse(data_of(factory.store(tmp_path, planned, opposite)))
    assert any(caveat.startswith("Blocks did not pay here") for caveat in found.caveats)


@pytest.mark.parametrize("fewer", [1, 2, 3, 5])
def test_counts_that_may_be_0_of_few_against_many_are_reported(tmp_path: Path, fewer: int) -> None:
    """Regression: 3 against 8 executions could be tested, and the change was looked for that 3 of each would show.

    There is none: the report ended as a fault of pagelab.
    """

    def behave(condition: Condition, slot: Slot) -> Run:
        lost = condition.policy == "b" and slot.block >= fewer
        return Run(faults=(100, (slot.block + (condition.policy == "b")) % 3), status="failed" if lost else "ok")

    plan = factory.plan(["w"], ["a", "b"], 8, metric="major_faults").model_copy(update={"test": "rank-sum"})
    found = analyse(data_of(factory.store(tmp_path / "s", plan, behave)))
    assert found.headline.startswith("major faults: w under b against a: cannot tell")


@pytest.mark.parametrize("family", [1, 3])
def test_no_number_of_executions_is_too_few_for_an_answer(family: int) -> None:
    ends = Interval(-1.0, 2.0, 0.95)
    for n, m in product(range(1, 12), repeat=2):
        least = 2 / math.comb(n + m, n)
        evidence = Evidence(0.6, None, None, None, 0.0, ends, min(n, m), min(n, m), 0, (n, m), smallest_p=least)
        found = judged(evidence, level=0.95, family=family, test="rank-sum")
        assert found.said == "cannot-tell"
        assert (found.seen_shift is not None) == (found.pairs >= found.fewest)
