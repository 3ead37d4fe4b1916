"""The paper's Figures 2, 3 and 7 to 11 and Table 7: what is drawn is what was fitted and measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from models.planted import DIGITISED, points
from pagelab.models import Points, chosen, judge, models
from pagelab.models.document import Fits, ModelFile, file_of, fits_of
from pagelab.models.over_workloads import Fitted, over_workloads
from pagelab.models.paper_figures import SLOPE_ONE, against_measured, anchors_table, figures
from pagelab.models.picture import over_all
from pagelab.models.points import Source

NAMES = ["basu", "yaniv", "poly1", "poly2", "mosmodel"]


def fitted(names: list[str], **changes: Any) -> tuple[ModelFile, Fits]:
    data = points(18, noise=0.002, rule="kink")
    data = replace(data, anchors={"4K": "layout0", "2M": "layout17"}, **changes)
    file = file_of(data, DIGITISED)
    return file, fits_of(data, judge(data, chosen(names), folds=3), 1)


def drawn(chart: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for rows in chart["datasets"].values() for row in rows]


def test_each_figure_is_drawn_where_its_models_are_fitted() -> None:
    file, fits = fitted(NAMES)
    found = figures(file, fits)
    assert [one.id for one in found] == ["linear-mosmodel", "basu", "linear", "quadratic"]
    told = ["MOSAIC, Figure 3", "MOSAIC, Figure 7", "MOSAIC, Figures 8 and 9", "MOSAIC, Figure 10"]
    assert all(figure in one.caption for one, figure in zip(found, told, strict=True))
    assert [one.id for one in figures(*fitted(["poly1"]))] == ["linear"]
    assert figures(*fitted(["yaniv"])) == []


def test_a_check_of_other_pages_has_its_figure() -> None:
    """`pagelab model check` writes a file with one test layout: the pages that were checked.

    Regression: a test layout of an import was said to be in pages that no model had seen.
    """
    roles = ("train",) * 9 + ("test",) + ("train",) * 8
    assert "unseen-pages" not in [one.id for one in figures(*fitted(NAMES, roles=roles))]
    moved = np.where(np.arange(18) == 9, 1.01, np.nan)
    found = figures(*fitted(NAMES, roles=roles, extra={"4K_moved": moved, "2M_moved": moved}))
    assert found[-1].id == "unseen-pages"
    assert "MOSAIC, Figure 11" in found[-1].caption
    assert sum("layout" in row and row.get("role") == "test layout" for row in drawn(found[-1].draw(600))) == 1


@pytest.mark.parametrize(
    ("sign", "source", "told"),
    [
        (1, "counted", "Each walk cycle costs 0.5 cycles: as much of a walk as the processor does not hide."),
        (5, "counted", "Each walk cycle costs 2.5 cycles: more than the walks themselves."),
        (5, "simulated", "Each walk cycle, as the simulator counts it, costs 2.5 cycles. "),
        (-1, "counted", "Each walk cycle takes 0.5 cycles off the run time. "),
    ],
)
def test_a_slope_is_explained_where_c_is_in_cycles_of_the_machine(sign: int, source: Source, told: str) -> None:
    c = np.linspace(1e9, 9e9, 18)
    data = Points.of("w", r=4e10 + 0.5 * sign * c, c=c, source=source)
    file = file_of(data, DIGITISED)
    (found,) = figures(file, fits_of(data, judge(data, chosen(["poly1"]), folds=3), 1))
    assert told in found.caption


@pytest.mark.parametrize(("name", "over"), [("basu", "m"), ("poly1", "c"), ("poly2", "c"), ("yaniv", "c")])
def test_lines_are_the_fitted_models(name: str, over: str) -> None:
    file, fits = fitted(NAMES)
    data = file.points()
    model = models()[name].fit(data)
    rows = [row for row in drawn(against_measured(file, fits, (name,), over, 600)) if row.get("model") == name]  # type: ignore[arg-type]
    assert len(rows) >= 50
    counts = data.m if over == "m" else data.c
    assert counts is not None
    assert (rows[0]["x"], rows[-1]["x"]) == (counts.min(), counts.max())
    for row in rows:
        h, m, c = (None, row["x"], None) if over == "m" else (None, None, row["x"])
        assert row["r"] == pytest.approx(float(model.predict(h, m, c)))


def test_mosmodel_is_drawn_layout_by_layout_and_the_second_line_has_slope_one() -> None:
    file, fits = fitted(NAMES)
    data = file.points()
    rows = [row for row in drawn(against_measured(file, fits, ("mosmodel",), "c", 600)) if row.get("model")]
    expected = models(fits.seed)["mosmodel"].fit(data).predict(data.h, data.m, data.c)
    assert [row["r"] for row in rows] == pytest.approx(expected.tolist())
    line = drawn(against_measured(file, fits, ("poly1", SLOPE_ONE), "c", 600))
    ends = [row for row in line if row.get("model") == SLOPE_ONE]
    assert (ends[-1]["r"] - ends[0]["r"]) / (ends[-1]["x"] - ends[0]["x"]) == pytest.approx(1)


def test_captions_have_the_largest_errors_of_what_is_drawn() -> None:
    file, fits = fitted(NAMES)
    basu = fits.named("basu")
    assert basu is not None
    assert basu.in_sample is not None
    worst = max(basu.in_sample.relative.items(), key=lambda one: abs(one[1]))
    caption = next(one.caption for one in figures(file, fits) if one.id == "basu")
    side = "below" if worst[1] < 0 else "above"
    assert f"At most {100 * abs(worst[1]):.1f}% {side} what was measured, in {worst[0]} (MOSAIC, Figure 7)." in caption


def test_the_table_of_the_anchors_has_their_counts() -> None:
    file, _ = fitted(["poly1"])
    table = anchors_table(file)
    assert table is not None
    data = file.points()
    assert [row[0] for row in table.rows][:3] == ["run time, cycles", "walk cycles", "TLB misses"]
    for row, values in zip(table.rows, (data.r, data.c, data.m), strict=False):
        assert values is not None
        assert float(row[1]) == pytest.approx(values[0], rel=1e-3)
        assert float(row[2]) == pytest.approx(values[17], rel=1e-3)
    assert "need counters" in table.note
    assert anchors_table(file.model_copy(update={"anchors": {}})) is None


def test_over_all_workloads_the_largest_error_stands_beside_the_papers() -> None:
    found = []
    for rule in ("line", "kink"):
        data = replace(points(16, noise=0.01, rule=rule), workload=rule)
        found.append(
            Fitted(rule, file_of(data, DIGITISED), fits_of(data, judge(data, chosen(["poly1", "poly3"]), folds=4), 1))
        )
    rows = drawn(over_all(found, 600))
    here = {row["model"]: row["error"] for row in rows if row["way"] == "here"}
    assert here == pytest.approx({name: 100 * over_workloads(found, name).maximum for name in ("poly1", "poly3")})
    paper = {row["model"]: row["error"] for row in rows if row["way"] != "here"}
    assert paper == pytest.approx({"poly1": 26.0, "poly3": 6.0})
    assert np.all(np.array(list(here.values())) > 0)
