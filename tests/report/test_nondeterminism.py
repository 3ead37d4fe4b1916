"""Non-determinism in a study: ALLOC's figures from stored records, against the statistics and scipy called directly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import factory
import nondeterministic
import numpy as np
import polars as pl
import pytest
from browser import Browser
from factory import Run, data_of
from nondeterministic import part_of
from scipy import stats as scipy_stats

from pagelab.analysis import Analysis, StudyData, analyse
from pagelab.analysis.nondeterminism import words
from pagelab.analysis.nondeterminism.interval_warnings import KINDS
from pagelab.report import write_report
from pagelab.report.charts import program_spreads
from pagelab.report.figures import figures_of, first_picture
from pagelab.report.nondeterminism import tables
from pagelab.report.nondeterminism.figures import misses as misses_figures
from pagelab.stats import nondeterminism as nd
from pagelab.study.plan import Condition, Precision
from pagelab.study.schedule import Slot

MEAN, INSIDE, EVERYTHING, BETWEEN = (metric.value for metric in nd.Metric)
SINGLE = ("gcc", "xz")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> StudyData:
    return data_of(nondeterministic.repeated(tmp_path_factory.mktemp("nd") / "study", single=SINGLE))


@pytest.fixture(scope="module")
def analysis(data: StudyData) -> Analysis:
    return analyse(data)


def rows_of(data: StudyData, condition: str) -> list[list[float]]:
    """Measurements by execution, in the order of the schedule, straight from the frames."""
    runs = data.runs.filter(pl.col("condition") == condition).sort("position")["run_id"].to_list()
    return [data.measurements.filter(pl.col("run_id") == run).sort("idx")["value"].to_list() for run in runs]


# The numbers


def test_numbers_are_those_of_the_statistics(data: StudyData, analysis: Analysis) -> None:
    part = part_of(analysis)
    workloads = [w for w in analysis.design.workloads if w not in SINGLE]
    experiments = [
        nd.Experiment(w, p, nd.Executions.of(rows_of(data, f"{w}/{p}")))
        for w in workloads
        for p in nondeterministic.POLICIES
    ]
    table = nd.characterize(experiments, nd.Resampling(seed=part.seed, level=0.95))
    for i, one in enumerate(experiments):
        found = part.experiment(one.group, one.condition)
        assert found is not None
        for metric in nd.Metric:
            expected = table.estimate(i, metric)
            assert isinstance(expected, nd.Estimate)
            number = found.numbers[metric.value]
            assert (number.value, number.low, number.high) == (
                expected.value, expected.interval.low, expected.interval.high,
            )  # fmt: skip
    groups = nd.groups_of(table, nd.Metric.EXECUTION)
    family = part.families[0]
    assert family.repeated
    assert family.groups == tuple(workloads)
    ranking = family.ranking(BETWEEN)
    assert ranking is not None
    assert [share.percent for share in ranking.shares] == [dict(s.percent) for s in nd.rank_shares(groups)]


def test_programs_timed_as_a_whole_are_counted_apart(analysis: Analysis) -> None:
    repeated, single = part_of(analysis).families
    assert (repeated.repeated, single.repeated) == (True, False)
    assert single.groups == SINGLE
    assert [ranking.metric for ranking in single.rankings] == [MEAN, EVERYTHING]


def test_planted_differences_are_ranked(analysis: Analysis) -> None:
    """Bin hopping is 15% slower, the default unsteady."""
    family = part_of(analysis).families[0]
    mean, between = family.ranking(MEAN), family.ranking(BETWEEN)
    assert mean is not None
    assert between is not None
    assert mean.share(10.0).percent["bin-hopping"][0] == 0
    assert mean.share(0.0).percent["page-coloring"][0] == 100
    assert between.share(0.0).percent["default"][0] == 0
    worse = next(p for p in mean.pairs if (p.first, p.second, p.threshold) == ("bin-hopping", "default", 3.0))
    assert (worse.better, worse.worse, worse.groups) == (0, 100, 6)
    overhead = next(o for o in mean.overheads if o.condition == "bin-hopping")
    assert overhead.mean.value == pytest.approx(10, abs=3)
    assert overhead.significant == 6


def test_balance_counts_the_factors(analysis: Analysis) -> None:
    repeated, single = part_of(analysis).families
    assert repeated.balance.levels == {
        "benchmark": {"fft": 3, "lu": 3},
        "size": {"double": 2, "equal": 2, "half": 2},
    }
    assert repeated.balance.unbalanced == ()
    told = tables.balance_sentences(analysis)
    assert told[0] == (
        "6 programs measured repeatedly, by factor: benchmark: fft 3, lu 3; size: double 2, equal 2, half 2."
    )
    assert single.balance.levels["size"] == {"none": 2}


def test_a_family_that_is_not_balanced_says_so(tmp_path: Path) -> None:
    study = nondeterministic.repeated(tmp_path / "s", ("fft-half", "fft-equal", "lu-half"), measurements=5)
    told = tables.balance_sentences(analyse(data_of(study)))
    assert "Not balanced over benchmark and size" in told[0]
    assert "1 combination of levels was not run" in told[0]


def test_the_distribution_is_that_of_the_impact_factors(analysis: Analysis) -> None:
    part = part_of(analysis)
    assert part.distribution is not None
    assert part.distribution.group_size == 12
    for curve in part.distribution.curves:
        values = [
            one.numbers[BETWEEN].value for one in part.experiments if one.condition == curve.condition and one.repeated
        ]
        assert list(curve.values) == sorted(v for v in values if v is not None)
        assert curve.fractions[-1] == 1
        assert curve.fractions[0] == pytest.approx(1 / 6)


def test_impact_factors_of_different_group_sizes_are_brought_to_one(tmp_path: Path) -> None:
    def fewer(run: Run, condition: Condition, _: Slot) -> Run:
        run.measurements = run.measurements[:4] if condition.workload == "lu-half" else run.measurements
        return run

    study = nondeterministic.repeated(tmp_path / "s", ("fft-half", "lu-half"), executions=8, change=fewer)
    part = part_of(analyse(data_of(study)))
    assert {one.group_size for one in part.experiments} == {4, 8}
    assert part.distribution is not None
    assert part.distribution.group_size == 4


def test_correlations_are_scipy_s(data: StudyData, analysis: Analysis) -> None:
    part = part_of(analysis)
    assert part.misses.counter == "counter.cache.l3_misses"
    for group in part.misses.groups:
        for one in group.within:
            runs = data.runs.filter(pl.col("condition") == f"{group.group}/{one.condition}").sort("position")
            misses = runs["counter.cache.l3_misses"].to_numpy()
            time = (
                runs["wall_s"].to_numpy()
                if group.group in SINGLE
                else np.array([np.mean(row) for row in rows_of(data, f"{group.group}/{one.condition}")])
            )
            assert one.pearson == pytest.approx(scipy_stats.pearsonr(time, misses).statistic)
            assert one.spearman == pytest.approx(scipy_stats.spearmanr(time, misses).statistic)
            assert one.bootstrap.low is not None
            assert one.bootstrap.low <= one.pearson <= (one.bootstrap.high or 0)
    assert any(group.all_differ for group in part.misses.groups)


def test_a_group_whose_least_mean_is_0_differs_most(analysis: Analysis) -> None:
    """Regression: the ratio of the greatest to the least mean was a division by zero."""
    part = part_of(analysis)
    group = replace(part.misses.groups[0], all_differ=False)
    groups = [replace(group, group=name, time=time) for name, time in (("x", (1.0, 9.0)), ("y", (0.0, 1.0)))]
    groups.append(replace(group, group="z", time=(0.0, 0.0)))
    changed = replace(analysis, nondeterminism=replace(part, misses=replace(part.misses, groups=tuple(groups))))
    assert [one.title.split(":")[0] for one in misses_figures(changed, 0)] == ["y"]


def test_times_that_follow_their_misses_are_seen_and_times_that_do_not_are_not(analysis: Analysis) -> None:
    """Planted: misses grow with an execution's level, which varies 30 times more by default than with bin hopping."""
    for group in part_of(analysis).misses.groups:
        default = next(one for one in group.within if one.condition == "default")
        assert default.pearson is not None
        assert default.pearson > 0.9
        for name in ("normalized_time", "normalized_misses"):
            assert max(map(abs, getattr(group, name))) == 1


# Words and figures


def test_the_first_screen_says_it_in_words(analysis: Analysis) -> None:
    part = part_of(analysis)
    assert part.speed.startswith("Speed: page-coloring was among the fastest in 100% of 6 programs measured repeatedly")
    assert part.steadiness.startswith("Steadiness from one execution to the next: ")
    first = first_picture(analysis, figures_of(analysis))
    assert first is not None
    assert (first.id, first.number) == ("programs", 1)
    assert "fft-half: default " in first.alternative
    ranks = figures_of(analysis)[1]
    assert (ranks.id, ranks.number) == ("ranks", 2)
    assert "Mean time: 2 programs, whole: " in ranks.alternative


def test_a_dumbbell_joins_a_programs_spread_under_every_policy(analysis: Analysis) -> None:
    rows = program_spreads.rows_of(analysis)
    assert [max(by_policy.values()) for _, by_policy in rows] == sorted(
        (max(by_policy.values()) for _, by_policy in rows), reverse=True
    )
    name, by_policy = rows[0]
    summary = analysis.summary(f"{name}/default", analysis.primary_of(name).name)
    assert summary is not None
    assert by_policy["default"] == pytest.approx(100 * summary.sd / summary.mean)
    spec = program_spreads.dumbbells(analysis)
    values = [row for part in spec["datasets"].values() for row in part]
    lines = {row["program"]: (row["low"], row["high"]) for row in values if "low" in row}
    marks = [(row["program"], row["policy"], row["spread"]) for row in values if "policy" in row]
    assert set(lines) == {name for name, _ in rows}
    assert len(marks) == 3 * len(rows)
    assert all(lines[program][0] <= spread <= lines[program][1] for program, _, spread in marks)


def test_dumbbells_are_of_studies_of_non_determinism_alone(typical_analysis: Analysis) -> None:
    assert "programs" not in {figure.id for figure in figures_of(typical_analysis)}


def test_bars_that_are_all_full_of_one_page_size_are_not_drawn(analysis: Analysis) -> None:
    assert {share.page_bytes for one in analysis.placements for share in one.by_size} == {4096}
    assert "memory" not in {figure.id for figure in figures_of(analysis)}


@pytest.mark.by_turns(4)
def test_of_many_programs_the_steadiest_are_left_out_and_told(tmp_path: Path) -> None:
    names = tuple(f"p{number}" for number in range(45))
    found = analyse(data_of(nondeterministic.repeated(tmp_path / "s", names, measurements=5, executions=6)))
    figure = figures_of(found)[0]
    assert figure.id == "programs"
    assert "5 programs that spread less are not drawn." in figure.caption


def test_unpaired_intervals_do_not_deny_on_the_page_what_the_pairs_have_found(tmp_path: Path) -> None:
    """Regression: under "b is 5% faster" stood that no policy could be told from another."""
    made = factory.plan(["v", "w"], ["a", "b"], 12)

    def drifting(condition: Condition, slot: Slot) -> Run:
        return Run(wall_s=(1 + 0.05 * slot.execution) * (0.97 if condition.policy == "b" else 1.0))

    study = factory.store(tmp_path / "s", made, drifting)
    found = analyse(data_of(study))
    assert "no policy’s interval lies clear of another’s" in part_of(found).speed
    page = write_report(data_of(study), tmp_path / "report", ("html",)).page
    assert page is not None
    assert "Speed: " not in page.read_text()


def test_every_figure_of_the_paper_is_there(analysis: Analysis) -> None:
    captions = " ".join(figure.caption for figure in figures_of(analysis))
    for number in ("Figure 1.", "Figures 4, 5 and 7.", "Figure 9:", "Figure 10:"):
        assert f"Hocko and Kalibera’s {number}" in captions
    assert "Hocko and Kalibera’s Figures 6 (mean) and 8" in tables.best(analysis).note
    ids = [figure.id for figure in figures_of(analysis)]
    assert len(set(ids)) == len(ids)


def test_few_programs_keep_the_effects_first(tmp_path: Path) -> None:
    found = analyse(data_of(nondeterministic.repeated(tmp_path / "s", ("fft-half", "lu-half"), measurements=5)))
    first = first_picture(found, figures_of(found))
    assert first is not None
    assert first.id == "effects"
    assert part_of(found).speed


def test_without_counters_the_page_says_so_in_place(tmp_path: Path) -> None:
    study = nondeterministic.repeated(tmp_path / "s", ("fft-half", "lu-half"), counters=False, measurements=5)
    written = write_report(data_of(study), tmp_path / "report", ("html",))
    assert written.page is not None
    text = written.page.read_text()
    at = text.index("Time and cache misses</h3>")
    assert "counter counted in these executions, so whether slow executions" in text[at : at + 400]
    assert "Hocko and Kalibera’s Figure 10" not in text


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.by_turns(4)
def test_all_figures_are_drawn_on_desk_and_phone(
    browser: Browser, data: StudyData, analysis: Analysis, tmp_path: Path
) -> None:
    page = write_report(data, tmp_path / "report", ("html",)).page
    assert page is not None
    for width, dark in ((1280, False), (375, True)):
        browser.screen(width, dark=dark)
        browser.open(page)
        sizes = browser.value(
            """[...document.querySelectorAll('[data-chart]')].map(place => {
                 const box = place.querySelector('svg').getBoundingClientRect();
                 const marks = place.querySelectorAll('.role-mark path, .role-mark line').length;
                 return [place.dataset.chart, box.width, box.height, marks]; })"""
        )
        assert {name for name, *_ in sizes} == {figure.id for figure in figures_of(analysis)}
        assert all(wide > 200 and high > 80 and marks >= 3 for _, wide, high, marks in sizes), sizes
        assert browser.complaints() == []
        inner = "document.documentElement.clientWidth"  # less than the screen where there is a scroll bar
        assert browser.value("document.documentElement.scrollWidth") == browser.value(inner)


# What may be doubted, and what cannot be


def test_every_doubt_is_a_typed_warning() -> None:
    assert set(KINDS) == set(nd.IntervalWarningKind)
    assert set(words.NAMES) == {metric.value for metric in nd.Metric}


def test_warm_up_and_trend_reach_the_page_as_typed_warnings(tmp_path: Path) -> None:
    def warming(run: Run, _: Condition, slot: Slot) -> Run:
        run.measurements = [
            v * (1.3 if i == 0 else 1) * (1 + slot.execution / 50) for i, v in enumerate(run.measurements)
        ]
        return run

    found = analyse(data_of(nondeterministic.repeated(tmp_path / "s", ("fft-half", "lu-half"), change=warming)))
    by_kind = {group.kind: group for group in found.warnings}
    warm = by_kind["level-changes-inside"]
    assert warm.count == 6
    assert "leave them out (drop_first = 1)" in warm.message
    assert warm.objects[0]["data"] == {
        "doubt": "warm-up", "condition": "fft-half/default", "metrics": [MEAN, INSIDE, EVERYTHING, BETWEEN],
    }  # fmt: skip
    assert by_kind["trend-over-schedule"].conditions


@pytest.mark.parametrize(
    ("looks", "level"),
    [({}, 0.95), ({"earlier_looks": [10, 15]}, 0.9875), ({"precision": Precision(target=0.05, looks=[20, 30])}, 0.975)],
)
def test_means_and_spreads_have_the_level_of_the_looks(tmp_path: Path, looks: dict[str, Any], level: float) -> None:
    """Regression: the page's head and the medians said 98.75%, and the table of means and spreads was at 95%."""
    draws = random.Random(1)
    plan = factory.plan(["w"], ["kernel", "2M"], 20).model_copy(update=looks)
    look = [{"look": 20, "stop": True, "reason": "target-met"}] if "precision" in looks else []
    where = factory.store(tmp_path / "s", plan, lambda *_: factory.Run(wall_s=draws.gauss(1, 0.02)), looks=look)
    found = analyse(data_of(where))
    part = part_of(found)
    assert found.design.interval_level == part.level == level
    assert f"{100 * level:g}% intervals" in tables.metrics(found).note
