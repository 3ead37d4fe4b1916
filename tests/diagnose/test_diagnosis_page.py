"""The report of a diagnosis: in words first, then everything; it needs nothing else and draws all it has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_diagnose import diagnosed, sleeps, stack

from pagelab.diagnose import allocate
from pagelab.diagnose.model import Diagnosis
from pagelab.diagnose.page import Phases, figures_of, render, write
from pagelab.diagnose.picture import axis_ends
from pagelab.record import WarningKind
from report.browser import Browser

SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "diagnosis-2.json"


@pytest.fixture(scope="module")
def of_the_stack(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Diagnosis]:
    directory = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocate, "MOST_BLOCKS", 16)
        patch.setattr(allocate, "MOST_CONFIRMED", 60)
        return directory / "d", diagnosed(directory, stack)


def test_the_diagnosis_comes_first_then_everything(of_the_stack: tuple[Path, Diagnosis]) -> None:
    directory, found = of_the_stack
    text = render(found, Phases.load(directory, found), directory)
    order = [
        "ASLR decides it: 100 or 130", "Fresh executions, by default and with aslr-off", "Of the variance:",
        "pagelab run --aslr off -- true", "a fixed layout is one draw", "What was found", "spread falls from",
        "Source by source", "Sources of variance, each pinned alone", "Every value that was pinned",
        "Before you rely on this", "Every execution of the exploration", 'id="warnings"', 'id="machine"',
        'id="method"', "diagnosis.json",
    ]  # fmt: skip
    places = [text.index(each) for each in order]
    assert places == sorted(places)


def test_warnings_of_every_phase_are_there_but_those_about_a_studys_tests(
    of_the_stack: tuple[Path, Diagnosis],
) -> None:
    directory, found = of_the_stack
    phases = Phases.load(directory, found)
    (untested,) = (one for one in phases.analyses["probe"].warnings if one.kind == WarningKind.LEVEL_NOT_REACHABLE)
    assert untested.message not in render(found, phases, directory)
    for name, analysis in phases.analyses.items():
        told = replace(untested, kind=WarningKind.NOISY_MACHINE, message=f"disturbed in {name}")
        phases.analyses[name] = replace(analysis, warnings=(told,))
    text = render(found, phases, directory)
    assert len(phases.analyses) > 2
    assert all(f"{name}: disturbed in {name}" in text for name in phases.analyses)


def test_it_is_drawn_on_desk_and_phone_and_asks_for_nothing(
    of_the_stack: tuple[Path, Diagnosis], tmp_path: Path
) -> None:
    directory, found = of_the_stack
    page = write(directory, found)
    wanted = {figure.id for figure in figures_of(found, Phases.load(directory, found))}
    assert wanted == {"confirmation", "sources", "schedule"}
    with Browser(tmp_path / "profile") as browser:
        for width, dark in ((1280, False), (375, True)):
            browser.screen(width, dark=dark)
            browser.open(page)
            drawn = browser.value(
                """[...document.querySelectorAll('[data-chart]')].filter(place =>
                     place.querySelectorAll('svg .role-mark path').length > 20).map(place => place.dataset.chart)"""
            )
            assert set(drawn) == wanted
            assert browser.value("document.documentElement.scrollWidth <= innerWidth")
            assert browser.complaints() == []
            assert browser.requests() == [page.resolve().as_uri()]


@pytest.mark.by_turns(4)
def test_without_a_cause_the_default_alone_is_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocate, "MOST_BLOCKS", 10)
    found = diagnosed(tmp_path, sleeps)
    phases = Phases.load(tmp_path / "d", found)
    assert found.outcome == "unexplained"
    figures = [(figure.id, figure.section) for figure in figures_of(found, phases)]
    assert figures == [("default", "first"), ("sources", "sources"), ("schedule", "schedule")]
    assert "Confirmation: fresh" not in render(found, phases, tmp_path / "d")


def test_a_stray_execution_does_not_squash_the_others() -> None:
    times = np.linspace(1.0, 1.1, 100)
    assert axis_ends(np.append(times, 30.0)) == (1.0, 1.1)
    assert axis_ends(np.append(times, [0.1, 30.0, 31.0])) == (1.0, 1.1)
    # A mode of its own is none, nor is one of a few.
    assert axis_ends(np.append(times, np.full(6, 2.0))) == (1.0, 2.0)
    assert axis_ends(np.array([1.0, 1.1, 1.2, 1.3, 2.0])) == (1.0, 2.0)
    assert axis_ends(np.ones(3)) == (1.0, 1.0)


def test_the_published_schema_is_that_of_the_code(of_the_stack: tuple[Path, Diagnosis]) -> None:
    current = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Diagnosis.model_json_schema(by_alias=True)}
    text = json.dumps(current, indent=2) + "\n"
    if not SCHEMA.exists() or SCHEMA.read_text() != text:
        SCHEMA.with_suffix(".json.new").write_text(text)
    assert SCHEMA.read_text() == text, f"the new version is {SCHEMA}.new"
    directory, found = of_the_stack
    assert Diagnosis.model_validate_json((directory / "diagnosis.json").read_text()) == found
