"""Specifications of charts: every colour is known in light and dark, and no number is lost on the way."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import factory
from factory import Run, data_of

from pagelab.analysis import Analysis, analyse
from pagelab.analysis.answer import reach
from pagelab.analysis.limits import Limit
from pagelab.charts import theme
from pagelab.report import charts
from pagelab.report.figure import slug
from pagelab.report.figures import figures_of


def test_every_colour_has_a_light_and_a_dark_value(typical_analysis: Analysis) -> None:
    text = json.dumps([f.for_page() for f in figures_of(typical_analysis)])
    used = set(re.findall(r"var\(--([a-z0-9]+)\)", text))
    assert used <= set(theme.LIGHT)
    assert set(theme.LIGHT) == set(theme.DARK)
    assert not re.findall(r"#[0-9a-fA-F]{6}", text), "colours are named, so that they follow the page"


def test_paper_colours_leave_no_variable(typical_analysis: Analysis) -> None:
    for figure in figures_of(typical_analysis):
        text = json.dumps(figure.for_paper())
        assert "var(--" not in text
        assert '"transparent"' not in text


def test_the_boxplot_shows_the_summary_and_every_execution(typical_analysis: Analysis) -> None:
    spec = charts.boxplot(typical_analysis, "gups")
    data = [values for part in spec["datasets"].values() for values in part]
    boxes = {row["policy"]: row for row in data if "median" in row}
    for policy, row in boxes.items():
        summary = typical_analysis.summary(f"gups/{policy}", "wall_s")
        assert summary is not None
        assert (row["minimum"], row["median"], row["maximum"]) == (summary.minimum, summary.median, summary.maximum)
    points = sorted(row["value"] for row in data if "value" in row)
    assert points == sorted(
        e.values["wall_s"] for e in typical_analysis.executions if e.workload == "gups" and e.analysed
    )


def test_the_forest_plot_fills_only_what_holm_allows(typical_analysis: Analysis) -> None:
    spec = charts.forest(typical_analysis)
    rows = [row for part in spec["datasets"].values() for row in part if "found" in row]
    expected = {(c.workload, c.policy): (c.p_holm or 1) <= 0.05 for c in typical_analysis.planned()}
    assert {(row["workload"], row["policy"]): row["found"] for row in rows} == expected
    assert set(expected.values()) == {True, False}


def test_what_reaches_far_beyond_the_others_is_cut_off_with_an_arrow(tmp_path: Path) -> None:
    factor = {"a": 1.0, "b": 40.0, **{f"c{i}": 0.98 for i in range(5)}}
    plan = factory.plan(["w"], factor, 6)
    directory = factory.store(tmp_path, plan, lambda c, s: Run(wall_s=factor[c.policy] + s.execution / 1000))
    analysis = analyse(data_of(directory))
    assert charts.is_cut(analysis)
    assert "b lengthens w 39.9-fold (95% interval 39.8–40.0, p = " in analysis.answers[0]
    assert analysis.headline.startswith("w takes 39.9 times as long under b as under a (95% interval 39.8–40.0 times, ")
    spec = charts.forest(analysis)
    rows = [row for part in spec["datasets"].values() for row in part if "above" in row]
    assert [row["policy"] for row in rows if row["above"] is not None] == ["b"]
    assert [row["policy"] for row in rows if row["relative"] is None] == ["b"]
    assert max(row["high"] for row in rows) <= 100
    assert "Arrows mark values outside" in next(f.caption for f in figures_of(analysis) if f.id == "effects")


def test_no_axis_goes_below_what_a_change_can_be() -> None:
    """Nothing takes less than no time, however coarse the steps of the axis."""
    assert reach([(-0.9, 14.0)]) == (-1.0, 14.0)


def test_the_forest_plot_is_sorted_and_says_what_the_rule_says(typical_analysis: Analysis) -> None:
    rows = [row for part in charts.forest(typical_analysis)["datasets"].values() for row in part if "words" in row]
    sizes = {(c.workload, c.policy): c.relative or 0.0 for c in typical_analysis.planned()}
    order = [(row["workload"], row["policy"]) for row in rows]
    assert order == sorted(sizes, key=lambda key: sizes[key])
    assert rows[0]["words"] == "38.1% faster"
    assert {row["words"].split(" within")[0] for row in rows if not row["found"]} == {"same"}
    assert not charts.is_cut(typical_analysis)


def test_a_file_keeps_room_for_the_labels_of_wider_fonts(typical_analysis: Analysis) -> None:
    spec = charts.forest(typical_analysis, 640)
    padding = spec["config"]["padding"]
    assert padding["left"] >= 0.25 * 5 * len("python · mosaic")
    assert padding["right"] >= 0.25 * 5 * len("same within ±2.4%")
    rows = spec["config"]["axisY"]["labelLimit"]
    limits = [layer["encoding"]["y"]["axis"].get("labelLimit", rows) for layer in spec["layer"] if _has_axis(layer)]
    assert limits == [0, 0]


def test_no_file_cuts_the_label_of_a_row(typical_analysis: Analysis) -> None:
    """Regression: all pictures but the first cut names of conditions at 150 to 170 px."""
    for figure in figures_of(typical_analysis):
        spec = figure.for_paper()
        assert spec["config"]["axisY"]["labelLimit"] == spec["config"]["legend"]["labelLimit"] == 0
        assert not re.search(r'"labelLimit": [1-9]', json.dumps(spec)), figure.id
        longest = max(len(c.policy) for c in typical_analysis.design.conditions)
        if figure.section in ("times", "memory"):
            assert spec["config"]["padding"]["left"] >= 4 + 0.25 * 6.6 * longest


def _has_axis(layer: dict[str, Any]) -> bool:
    return bool(layer["encoding"].get("y", {}).get("axis"))


def test_names_that_look_alike_keep_their_own_rows(tmp_path: Path) -> None:
    plan = factory.plan(["a", "a · b"], ["base", "b · c", "c"], 6)
    directory = factory.store(tmp_path, plan, lambda _, s: Run(wall_s=1 + s.execution / 1000))
    analysis = analyse(data_of(directory))
    spec = charts.forest(analysis)
    rows = [row["row"] for part in spec["datasets"].values() for row in part if "found" in row]
    assert len(rows) == len(set(rows)) == 4


def test_file_names_are_safe_and_unique() -> None:
    used: set[str] = set()
    names = [slug(text, used) for text in ("gups", "../../etc", "..", "", "漢字", "gups", "a b", "a/b", "x" * 500)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) for name in names)


def test_larger_pages_are_drawn_stronger() -> None:
    ranks = [int(theme.page_size_colour(size)[7:-1]) for size in theme.PAGE_SIZES]
    assert ranks == sorted(set(ranks))
    assert theme.page_size_colour(8192) == theme.page_size_colour(4096)


def test_limits_stand_on_the_axis_where_it_holds_them(tmp_path: Path) -> None:
    """The axis is stretched for one that is near; one far out, and one on something else, would say nothing there."""
    found = factory.study(tmp_path, factory.plan(["w"], ["a", "b"], 6), factory.separated(6, 1.9, 2.0))
    near, far, mean = Limit("ratio>8%", "pass", 0.08), Limit("ratio<-90%", "pass", -0.9), Limit("mean>3%", "pass", None)
    limited = replace(found, limits=(near, far, mean))
    assert charts.drawn_limits(found) == []
    assert charts.drawn_limits(limited) == [near]
    spec = charts.forest(limited)
    assert [row for part in spec["datasets"].values() for row in part if "limit" in row] == [
        {"limit": 8.0, "text": "limit 8%"}
    ]
    caption = next(f.caption for f in figures_of(limited) if f.section == "effects")
    assert caption.endswith("Dashed: the limit.")
