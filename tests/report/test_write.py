"""Files of a report, and the command that writes them."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import factory
import polars as pl
import pytest
from factory import Run, data_of

from pagelab.analysis import Analysis, StudyData
from pagelab.analysis.model import Contrast
from pagelab.errors import BadInputError
from pagelab.report import tables, write_report
from pagelab.report.figures import figures_of


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """``pagelab`` as users type it; its streams are shown when a test fails."""
    done = subprocess.run(
        [sys.executable, "-m", "pagelab", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"NO_COLOR": "1", "COLUMNS": "200"},
        check=False,
    )
    print(done.stdout, done.stderr, sep="\n")
    return done


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The directory of a study of two policies, eight executions each."""
    plan = factory.plan(["w"], ["a", "b"], 8)
    return factory.store(
        tmp_path / "study", plan, lambda c, s: Run(wall_s=(2 if c.policy == "a" else 1) + s.execution / 1000)
    )


@pytest.mark.by_turns(4)
def test_everything_is_written(typical_data: StudyData, typical_analysis: Analysis, tmp_path: Path) -> None:
    written = write_report(typical_data, tmp_path / "report")
    assert written.analysis == typical_analysis
    names = {p.name for p in (tmp_path / "report").iterdir()}
    assert names == {
        ".pagelab-report", "index.html", "analysis.json", "records.jsonl", "plots", "runs.csv", "runs.parquet",
        "measurements.csv", "measurements.parquet", "contrasts.csv", "contrasts.parquet",
    }  # fmt: skip
    plots = {p.name for p in (tmp_path / "report" / "plots").iterdir()}
    assert plots == {f"{f.id}.{kind}" for f in figures_of(typical_analysis) for kind in ("svg", "png")}
    assert [p.name for p in tmp_path.iterdir()] == ["report"], "nothing temporary is left"


def test_tables_say_the_same_in_every_format(
    typical_data: StudyData, typical_analysis: Analysis, tmp_path: Path
) -> None:
    report = write_report(typical_data, tmp_path / "report", ("data",)).directory
    for name in ("runs", "measurements", "contrasts"):
        parquet = pl.read_parquet(report / f"{name}.parquet")
        csv = pl.read_csv(report / f"{name}.csv", schema=parquet.schema)
        assert csv.equals(parquet), name
    runs = pl.read_parquet(report / "runs.parquet")
    assert runs.height == 4 * 4 * 13, "warm-ups and failures are there"
    assert set(runs["status"]) == {"ok", "timed-out", "signalled"}
    contrasts = pl.read_parquet(report / "contrasts.parquet")
    planned = contrasts.filter("planned")
    assert planned["p_holm"].to_list() == [c.p_holm for c in typical_analysis.planned()]
    assert planned["relative_low"].to_list() == [
        c.relative_interval.low for c in typical_analysis.planned() if c.relative_interval
    ]
    assert json.loads((report / "analysis.json").read_text())["schema"] == "pagelab.analysis/1"
    lines = (report / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["schema"] for line in lines] == ["pagelab.record/1"] * runs.height


def test_files_of_plots_need_no_style_sheet(typical_data: StudyData, tmp_path: Path) -> None:
    report = write_report(typical_data, tmp_path / "report", ("svg",)).directory
    for svg in (report / "plots").glob("*.svg"):
        text = svg.read_text()
        assert "var(--" not in text, svg.name
        assert text.count("<path") > 3, svg.name
        assert "NaN" not in text, svg.name


def test_only_what_is_asked_for_is_written(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_report(data_of(small), out, ("svg",))
    assert {p.name for p in out.iterdir()} == {".pagelab-report", "plots"}
    assert {p.suffix for p in (out / "plots").iterdir()} == {".svg"}


def test_an_older_report_is_replaced_as_a_whole(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_report(data_of(small), out, ("data",))
    (out / "stale.txt").write_text("from an older version")
    write_report(data_of(small), out)
    assert not (out / "stale.txt").exists()
    assert {p.name for p in tmp_path.iterdir()} == {"study", "out"}


def test_a_format_written_later_keeps_the_page(small: Path, tmp_path: Path) -> None:
    """Regression: ``report DIR --format data`` deleted the page and the plots of the report that proposed it."""
    out = tmp_path / "out"
    write_report(data_of(small), out, ("html", "svg", "png"))
    page = (out / "index.html").read_bytes()
    plots = {p.name for p in (out / "plots").iterdir()}
    (out / "plots" / "of-an-older-version.svg").write_text("<svg/>")
    write_report(data_of(small), out, ("data", "svg"))
    assert (out / "index.html").read_bytes() == page
    assert {p.name for p in (out / "plots").iterdir()} == plots, "what is written again has no older files"
    assert (out / "contrasts.csv").exists()


@pytest.mark.by_turns(4)
def test_where_nothing_remains_to_be_done_files_are_named_not_a_command(tmp_path: Path) -> None:
    """Regression: after ``report DIR`` the next command was ``report DIR --format data``, although data were there."""
    times = "".join(f"{policy},{2 - (policy == 'b') + n / 1000}\n" for n in range(12) for policy in "ab")
    (tmp_path / "times.csv").write_text(f"policy,time\n{times}")
    made = tmp_path / "study"
    assert run("import", tmp_path / "times.csv", "--into", made).returncode == 0
    done = run("report", made)
    assert f"every number of it: {made}/report/contrasts.csv, analysis.json\n" in done.stdout
    assert "next:" not in done.stdout
    assert ">contrasts.csv, analysis.json</a>" in (made / "report" / "index.html").read_text()
    again = run("report", made, "--format", "html", "--out", tmp_path / "page")
    assert f"next: pagelab report {made} --format data\n" in again.stdout, "what is not there is still proposed"


def test_no_more_than_the_peak_is_placed(typical_analysis: Analysis) -> None:
    """Regression: "22.9 MiB of 22.7 MiB" of the peak."""
    more = [replace(p, resident_bytes=1.01 * p.peak_bytes) for p in typical_analysis.placements]
    table = tables.placement(replace(typical_analysis, placements=tuple(more)))
    assert {str(row[3]).split(" of ")[0] for row in table.rows} == {"all"}


def test_other_peoples_files_are_never_replaced(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.tex").write_text("x")
    with pytest.raises(BadInputError, match=r"it holds other files; name a new directory with --out"):
        write_report(data_of(small), out, ("svg",))
    assert [p.name for p in out.iterdir()] == ["chapter.tex"]


def test_a_failure_leaves_the_older_report(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    write_report(data_of(small), out, ("data",))
    before = (out / "analysis.json").read_bytes()

    def fail(*_: object) -> None:
        raise RuntimeError("disk full")

    monkeypatch.setattr("pagelab.report.export.write_tables", fail)
    with pytest.raises(RuntimeError):
        write_report(data_of(small), out, ("data",))
    assert (out / "analysis.json").read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"study", "out"}


@pytest.mark.by_turns(4)
def test_the_command_writes_a_report_and_says_where(small: Path) -> None:
    done = run("report", small)
    assert done.returncode == 0
    assert done.stdout.startswith("w is 49.9% faster under b than under a (95% interval ")
    assert f"report: {small.resolve()}/report/index.html\n" in done.stdout
    assert (small / "report" / "index.html").exists()


def test_the_command_takes_the_store_itself_and_another_place(small: Path, tmp_path: Path) -> None:
    done = run("report", small / "study.db", "--out", tmp_path / "here", "--format", "data")
    assert done.returncode == 0
    assert (tmp_path / "here" / "analysis.json").exists()
    assert not (small / "report").exists()


def test_where_there_is_no_store(tmp_path: Path) -> None:
    done = run("report", tmp_path)
    assert done.returncode == 2
    assert f"no study in {tmp_path}" in done.stderr
    assert "pagelab study run" in done.stderr


def test_an_empty_store(tmp_path: Path) -> None:
    directory = factory.store(tmp_path / "study", factory.plan(["w"], ["a", "b"], 3), lambda *_: None)
    done = run("report", directory)
    assert done.returncode == 2
    assert "study example has no finished run yet; see it with: pagelab study status" in done.stderr
    assert not (directory / "report").exists()


def test_a_store_of_a_newer_version(small: Path) -> None:
    with sqlite3.connect(small / "study.db") as database:
        database.execute("UPDATE meta SET value = '999' WHERE key = 'store_version'")
    database.close()
    done = run("report", small)
    assert done.returncode == 2
    assert "999" in done.stderr
    assert "newer" in done.stderr


def test_an_unknown_format(small: Path) -> None:
    done = run("report", small, "--format", "pdf")
    assert done.returncode == 2
    assert '--format: "pdf" is unknown; allowed: html, svg, png, data' in done.stderr


def test_help_has_an_example() -> None:
    done = run("report", "--help")
    assert done.returncode == 0
    assert "pagelab report page-size.study --open" in done.stdout


@pytest.mark.by_turns(4)
def test_prepages_example_from_csv_to_report(tmp_path: Path) -> None:
    """PREPAGE's published numbers: data with its five-number summaries give its p, and complete separation."""
    off = [65.188, 66.0, 66.5, 66.9, 67.1, 67.238, 67.9, 68.2, 68.6, 68.9]
    off += [69.178, 69.5, 70.0, 70.5, 71.0, 71.219, 75.0, 80.0, 90.0, 102.644]
    on = [57.811, 57.9, 58.0, 58.05, 58.1, 58.216, 58.4, 58.5, 58.6, 58.7]
    on += [58.876, 59.0, 59.3, 59.6, 59.9, 59.967, 60.5, 61.0, 61.5, 61.919]
    rows = [f"{flag},{value}" for pair in zip(off, on, strict=True) for flag, value in enumerate(pair)]
    csv = tmp_path / "buffering.csv"
    csv.write_text("\n".join(["buffering,time", *rows]) + "\n")
    study = tmp_path / "buffering.study"
    question = "Does disk buffering matter for unpacking Linux?"
    done = run("import", csv, "--label", "0=off", "--label", "1=on", "--into", study, "--question", question)
    assert done.returncode == 0
    done = run("report", study)
    assert done.returncode == 0
    analysis = json.loads((study / "report" / "analysis.json").read_text())
    assert analysis["design"]["question"] == question
    assert analysis["design"]["imported_from"] == "buffering.csv"
    contrast = next(c for c in analysis["contrasts"] if c["planned"])
    assert contrast["p"] == pytest.approx(1.451e-11, rel=1e-3)
    assert (contrast["n"], contrast["n_baseline"], contrast["w"]) == (20, 20, 0)
    by_condition = {s["condition"].split("/")[-1]: s for s in analysis["summaries"] if s["metric"] == "wall_s"}
    five = ("minimum", "hinge_low", "median", "hinge_high", "maximum")
    assert [by_condition["off"][k] for k in five] == pytest.approx([65.188, 67.169, 69.039, 71.1095, 102.644])
    assert [by_condition["on"][k] for k in five] == pytest.approx([57.811, 58.158, 58.788, 59.9335, 61.919])
    assert "Nothing is known of the machine" in " ".join(analysis["caveats"])


def shown(table: tables.Table) -> str:
    lines = ["\t".join(table.columns)]
    for number, row in enumerate(table.rows):
        if table.groups and number in table.groups:
            lines.append(f"[{table.groups[number]}]")
        lines.append("\t".join(row))
    return "\n".join([f"## {table.caption}", *lines, table.note]) + "\n"


def test_golden_tables(typical_analysis: Analysis, golden: Callable[[str, str], None]) -> None:
    makers = (tables.contrasts, tables.times, tables.placement, tables.measurements, tables.conditions, tables.failures)
    golden("tables.txt", "\n".join(shown(make(typical_analysis)) for make in makers))


def test_golden_answers(typical_analysis: Analysis, golden: Callable[[str, str], None]) -> None:
    sentences = [typical_analysis.headline, *typical_analysis.answers, *typical_analysis.caveats]
    golden("answers.txt", "\n".join(sentences) + "\n")


def test_every_contrast_has_a_sentence(typical_analysis: Analysis) -> None:
    assert all(isinstance(c, Contrast) and c.sentence.endswith(".") for c in typical_analysis.contrasts)
