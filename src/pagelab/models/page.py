"""Writes the report of a model's file: one self-contained page, its figures as files, its tables as CSV and JSON."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pagelab import foreign_files, whole_file
from pagelab.errors import BadInputError, cannot_write
from pagelab.report import shell
from pagelab.report.figure import Figure
from pagelab.report.tables import without_empty_columns

from . import answer, over_workloads, paper_figures, picture
from .agreement import SIMULATED
from .document import Fits, ModelFile
from .over_workloads import Fitted

PAGE = "index.html"
_MARK = ".pagelab-report"


def figures_of(file: ModelFile, fits: Fits) -> tuple[Figure, ...]:
    """The figures of a report, in reading order; those of models only if a model was fitted."""
    fitted = {"errors", "measured-predicted", "residuals"} if answer.shown(fits) else set()
    told = "; ".join(f"{row[0]}: in-sample {row[1]}, one left out {row[3]}" for row in answer.table(fits).rows)
    found = [
        Figure(
            id="errors",
            number=0,
            section="first",
            title="Maximal errors of the models",
            caption="On the layouts that each was fitted to, on layouts left out one at a time, on test layouts where "
            "there are any; and the largest error that the paper found in any workload on any machine (MOSAIC, Figure "
            "2). The axis is logarithmic.",
            alternative=f"Maximal errors. {told}.",
            draw=lambda width: picture.errors(fits, width),
        ),
        Figure(
            id="walk-cycles",
            number=0,
            section="layouts",
            title="Run time along the walk cycles",
            caption="A mark is a layout as it was measured; a curve is a model that knows the walk cycles alone. "
            "Layouts of about the same C and different R are what none of these can tell apart. Click a name to see a "
            "model alone.",
            alternative=f"Run time of {len(file.layouts)} layouts by walk cycles, with the curves of models in C.",
            draw=lambda width: picture.along_walks(file, fits, width),
        ),
        Figure(
            id="measured-predicted",
            number=0,
            section="layouts",
            title="Predicted against measured run time",
            caption="A mark is a layout, predicted by a fit without it where the model has one. On the line: predicted "
            "as measured. Click a name to see a model alone.",
            alternative=f"Predicted against measured run time of {len(file.layouts)} layouts.",
            draw=lambda width: picture.measured_against_predicted(file, fits, width),
        ),
        Figure(
            id="residuals",
            number=0,
            section="layouts",
            title="Errors along the walk cycles",
            caption="The same errors by C. A curve in them is a shape that the model does not have.",
            alternative="Relative errors by walk cycles, layout by layout.",
            draw=lambda width: picture.residuals(file, fits, width),
        ),
    ]
    found = [figure for figure in found if figure.id in fitted | {"walk-cycles"}]
    found += paper_figures.figures(file, fits)
    return tuple(replace(figure, number=number) for number, figure in enumerate(found, start=1))


def render(file: ModelFile, fits: Fits) -> str:
    """The whole page as HTML."""
    report = answer.report_of(file, fits)
    text = report.model_dump_json(by_alias=True, indent=1).encode()
    return shell.render(
        "model.html.j2",
        figures_of(file, fits),
        created_by=fits.fitted_by,
        downloads=[
            shell.download(
                "report.json", text, "application/json", "everything this page says (pagelab.model-report/1)"
            ),
            shell.download("layouts.csv", layouts_csv(file, fits).encode(), "text/csv", "one row a layout"),
        ],
        remarks=[*answer.not_validated_told(fits), *answer.coverage_told(fits), *answer.agreements_told(file.points())],
        contradictions=answer.contradictions_told(file.points()),
        anchors=paper_figures.anchors_table(file),
        errors=without_empty_columns(answer.table(fits)),
        file=file,
        formulas=answer.formulas(fits),
        r_squared=answer.r_squared(fits),
        report=report,
        subtitle=_subtitle(report),
    )


def _subtitle(report: answer.ModelReport) -> str:
    test = f" and {report.test_layouts} test layouts" if report.test_layouts else ""
    return f"{report.layouts} layouts{test} · H, M and C {report.source} · R measured"


def layouts_csv(file: ModelFile, fits: Fits) -> str:
    """CSV of each layout's counts and run time, and of each model's prediction from a fit without the layout, if any.

    Simulated counts stand beside counted ones where there are both.
    """
    out = io.StringIO()
    models = [one for one in fits.models if one.in_sample is not None]
    table = csv.writer(out, lineterminator="\n")
    beside = [name for name in file.layouts[0].extra if name.startswith(SIMULATED)]
    columns = ["layout", "role", "r", "h", "m", "c", "r_sd", "repeats", *beside]
    table.writerow([*columns, *(f"predicted_{one.model}" for one in models)])
    for row in file.layouts:
        predicted = []
        for one in models:
            errors = answer.relative_errors(one)
            predicted.append(row.r * (1 + errors[row.layout]) if row.layout in errors else None)
        own = [row.layout, row.role, row.r, row.h, row.m, row.c, row.r_sd, row.repeats]
        table.writerow([*own, *(row.extra.get(name) for name in beside), *predicted])
    return out.getvalue()


def figures_over(found: Sequence[Fitted]) -> tuple[Figure, ...]:
    """The figures of a report over several workloads."""
    judged = over_workloads.judged_on(found)
    names = ", ".join(one.name for one in found)
    return (
        Figure(
            id="maximal-errors",
            number=1,
            section="first",
            title="Maximal errors of the models by workload",
            caption=f"A mark is a model’s largest error {judged}. The axis is logarithmic. Click a name to see a model "
            "alone (MOSAIC, Figure 5).",
            alternative=f"Maximal errors of models for {names}; the table below has the numbers.",
            draw=lambda width: picture.by_workload(found, "maximum", width),
        ),
        Figure(
            id="typical-errors",
            number=2,
            section="first",
            title="Geometric means of the models’ errors by workload",
            caption="The same layouts, and the geometric mean of their errors (MOSAIC, Figure 6).",
            alternative=f"Geometric mean errors of models for {names}; the table below has the numbers.",
            draw=lambda width: picture.by_workload(found, "geometric_mean", width),
        ),
        Figure(
            id="errors-over-all",
            number=3,
            section="first",
            title="Maximal errors of the models over all workloads",
            caption=f"The largest error of each model in any layout of any workload, {judged}, and the largest of the "
            "paper’s workloads and machines, in-sample (MOSAIC, Figure 2). The axis is logarithmic.",
            alternative=f"Maximal errors of models over {names}; the table below has the numbers.",
            draw=lambda width: picture.over_all(found, width),
        ),
    )


def render_over(found: Sequence[Fitted]) -> str:
    """The whole page over several workloads, as HTML."""
    report = over_workloads.report_over(found)
    text = report.model_dump_json(by_alias=True, indent=1).encode()
    return shell.render(
        "models.html.j2",
        figures_over(found),
        created_by=found[0].fits.fitted_by,
        downloads=[
            shell.download("report.json", text, "application/json", "everything this page says (pagelab.model-set/1)")
        ],
        report=report,
        tables=[without_empty_columns(table) for table in over_workloads.tables(found)],
    )


def write(file: ModelFile, fits: Fits, out: Path) -> Path:
    """Writes page, figures (SVG) and tables of a model's report into ``out``; returns the page's path.

    Raises `BadInputError` where ``out`` holds something else than a report.
    """
    text = answer.report_of(file, fits).model_dump_json(by_alias=True, indent=1)
    tables = {"layouts.csv": layouts_csv(file, fits), "report.json": f"{text}\n"}
    return written(out, fits.fitted_by, figures_of(file, fits), tables, render(file, fits))


def write_over(found: Sequence[Fitted], out: Path) -> Path:
    """Writes the report over several workloads, as `write` does for one."""
    text = over_workloads.report_over(found).model_dump_json(by_alias=True, indent=1)
    return written(out, found[0].fits.fitted_by, figures_over(found), {"report.json": f"{text}\n"}, render_over(found))


def written(out: Path, by: str, figures: Sequence[Figure], others: Mapping[str, str], page: str) -> Path:
    """Writes a page, its figures (SVG) and ``others`` (file name → text); returns the page's path.

    Raises `BadInputError` where ``out`` holds something else than a report.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / _MARK).exists())):
        raise BadInputError(f"cannot write a report to {out}: it holds something else; name a new directory with --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Whatever the name comes to mean meanwhile, where others may change it.
        place = foreign_files.open_directory(out)
        try:
            here = Path(f"/proc/self/fd/{place}")
            whole_file.put(here / _MARK, f"{by}\n")
            for figure in figures:
                whole_file.put(here / f"{figure.id}.svg", _svg(figure))
            for name, text in others.items():
                whole_file.put(here / name, text)
            whole_file.put(here / PAGE, page)
        finally:
            os.close(place)
    except OSError as error:
        raise cannot_write(out / PAGE, error, "the report") from error
    return out / PAGE


def _svg(figure: Figure) -> str:
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(figure.for_paper(), allowed_base_urls=[])
    return svg
