"""The page of models in a real browser: it draws every figure, complains of nothing and loads nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from models.planted import DIGITISED, points
from pagelab.models import chosen, judge, models
from pagelab.models.document import file_of, fits_of
from pagelab.models.over_workloads import Fitted
from pagelab.models.page import write, write_over
from pagelab.models.picture import along_walks
from report.browser import Browser

HOSTILE = "<script>document.title='owned'</script>"


@pytest.mark.by_turns(4)
def test_the_page_draws_everything_and_asks_nothing(tmp_path: Path) -> None:
    data = points(16, noise=0.01, rule="kink")
    data = replace(data, workload=HOSTILE, layouts=(*data.layouts[:-1], "</script>"), anchors={"4K": "layout0"})
    judgement = judge(data, chosen(["basu", "poly1", "poly3"]), folds=4)
    file = file_of(data, DIGITISED)
    page = write(file, fits_of(data, judgement, 1), tmp_path / "page")
    with Browser(tmp_path / "profile") as browser:
        for width in (1280, 375):
            browser.screen(width)
            browser.open(page)
            assert browser.value("document.querySelectorAll('.plot svg').length") == 6
            assert browser.value("document.querySelectorAll('.plot svg path[aria-roledescription=point]').length") >= 16
        assert browser.value("document.documentElement.scrollWidth") == 375
        assert "owned" not in browser.value("document.title").replace(HOSTILE, "")
        assert browser.complaints() == []
        assert set(browser.requests()) == {page.resolve().as_uri()}


def test_curves_along_the_walk_cycles_are_the_fitted_models() -> None:
    data = points(16, noise=0.01)
    file = file_of(data, DIGITISED)
    fits = fits_of(data, judge(data, chosen(["basu", "gp", "poly1", "poly3"]), folds=4), 1)
    chart = along_walks(file, fits, 600)
    drawn = [row for rows in chart["datasets"].values() for row in rows]
    assert {row["model"] for row in drawn if "model" in row} == {"poly1", "poly3"}
    assert sum("layout" in row for row in drawn) == 16
    fitted = models()["poly3"].fit(data)
    for row in (row for row in drawn if row.get("model") == "poly3"):
        assert row["r"] == float(fitted.predict(None, None, row["walks"]))


def test_the_page_over_workloads_draws_its_figures_and_asks_nothing(tmp_path: Path) -> None:
    found = []
    for rule in ("line", "kink"):
        data = replace(points(16, noise=0.01, rule=rule), workload=f"{rule} {HOSTILE}")
        judgement = judge(data, chosen(["basu", "poly1", "poly3"]), folds=4)
        found.append(Fitted(data.workload, file_of(data, DIGITISED), fits_of(data, judgement, 1)))
    page = write_over(found, tmp_path / "page")
    assert (tmp_path / "page/maximal-errors.svg").exists()
    assert (tmp_path / "page/typical-errors.svg").exists()
    assert (tmp_path / "page/errors-over-all.svg").exists()
    with Browser(tmp_path / "profile") as browser:
        for width in (1280, 375):
            browser.screen(width)
            browser.open(page)
            assert browser.value("document.querySelectorAll('.plot svg').length") == 3
            assert browser.value("document.querySelectorAll('.plot svg path[aria-roledescription=point]').length") == 18
        assert browser.value("document.documentElement.scrollWidth") == 375
        assert browser.complaints() == []
        assert set(browser.requests()) == {page.resolve().as_uri()}


def test_a_page_without_a_fitted_model_says_why(tmp_path: Path) -> None:
    data = points(2)
    file = file_of(data, DIGITISED)
    fits = fits_of(data, judge(data, chosen(["gp", "poly1"]), folds=2), 1)
    page = write(file, fits, tmp_path / "page")
    with Browser(tmp_path / "profile") as browser:
        browser.open(page)
        said = browser.value("document.body.textContent")
        assert "No model could be fitted" in said
        assert "cannot fit gp" in said
        assert browser.value("document.querySelectorAll('.plot svg').length") == 1
        assert browser.complaints() == []
