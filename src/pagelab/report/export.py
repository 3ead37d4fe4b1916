"""Writes a study's files: tables as CSV and Parquet, the analysis and the records as JSON, plots as SVG and PNG."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from pagelab import whole_file
from pagelab.analysis.data import StudyData
from pagelab.analysis.model import Analysis, SetPart
from pagelab.report.figures import figures_of

PNG_SCALE = 2
"""Pixels per CSS pixel: a plot 640 wide has 1280 pixels."""


def contrasts_frame(analysis: Analysis) -> pl.DataFrame:
    """One row per contrast; intervals as ``…_low`` and ``…_high``; relative effects are fractions."""
    rows = []
    for contrast in analysis.contrasts:
        row = asdict(contrast)
        for name in ("shift_interval", "relative_interval", "shift_any_shape", "relative_any_shape"):
            interval = row.pop(name)
            for end in ("low", "high", "achieved"):
                row[f"{name.removesuffix('_interval')}_{end}"] = interval[end] if interval else None
        rows.append(row)
    schema = {name: _TYPES.get(name, pl.Float64) for name in (rows[0] if rows else _TYPES)}
    return pl.DataFrame(rows, schema=schema)


_TYPES: dict[str, Any] = {
    **dict.fromkeys(("workload", "policy", "baseline", "metric", "verdict", "sentence", "note", "p_method"), pl.String),
    **dict.fromkeys(("n", "n_baseline"), pl.Int64),
    **dict.fromkeys(("planned", "ties", "separated"), pl.Boolean),
}


def set_frame(part: SetPart) -> pl.DataFrame:
    """One row per policy and quantity: the ratio to the baseline, with its interval as ``low`` and ``high``."""
    rows = []
    for contrast in part.contrasts:
        row = asdict(contrast)
        interval = row.pop("interval")
        row |= {end: interval[end] if interval else None for end in ("low", "high", "achieved")}
        rows.append({**row, "left_out": "; ".join(contrast.left_out)})
    words = ("policy", "baseline", "quantity", "left_out", "p_method", "verdict")
    counts = ("programs", "below", "above")
    schema = {
        name: pl.String if name in words else pl.Int64 if name in counts else pl.Float64
        for name in (rows[0] if rows else ())
    }
    return pl.DataFrame(rows, schema=schema)


def set_programs_frame(part: SetPart) -> pl.DataFrame:
    """One row per program and policy: its ratios of time and of spread."""
    schema = {"program": pl.String, "policy": pl.String, "baseline": pl.String, "configurations": pl.Int64}
    rows = [asdict(one) for one in part.programs]
    return pl.DataFrame(rows, schema={**schema, "time": pl.Float64, "spread": pl.Float64})


def frames(analysis: Analysis, data: StudyData) -> dict[str, pl.DataFrame]:
    """The tables to write, by name; with those of the set where the study is answered as a set."""
    measurements = data.measurements.cast({"name": pl.String, "unit": pl.String})
    found = {"runs": data.runs, "measurements": measurements, "contrasts": contrasts_frame(analysis)}
    if analysis.over_set is not None:
        found |= {"set": set_frame(analysis.over_set), "set_programs": set_programs_frame(analysis.over_set)}
    return found


def analysis_json(analysis: Analysis) -> str:
    """The analysis as JSON, sorted and indented, so that the same study gives the same bytes."""
    return json.dumps(analysis.to_dict(), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def records_jsonl(data: StudyData) -> str:
    """Every record as it was stored, one per line, in schedule order."""
    return "".join(line + "\n" for line in data.record_lines)


def write_tables(directory: Path, analysis: Analysis, data: StudyData) -> None:
    """Writes every table as CSV and Parquet, ``analysis.json`` and ``records.jsonl``."""
    for name, frame in frames(analysis, data).items():
        for suffix in ("csv", "parquet"):
            whole_file.put_table(directory / f"{name}.{suffix}", frame)
    (directory / "analysis.json").write_text(analysis_json(analysis), encoding="utf-8")
    with (directory / "records.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in data.record_lines)


def write_plots(directory: Path, analysis: Analysis, formats: tuple[str, ...] = ("svg", "png")) -> None:
    """Writes every figure of the page to a file, in the colours for paper."""
    import vl_convert

    plots = directory / "plots"
    plots.mkdir(exist_ok=True)
    for figure in figures_of(analysis):
        spec = figure.for_paper()
        if "svg" in formats:
            (plots / f"{figure.id}.svg").write_text(
                vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]), encoding="utf-8"
            )
        if "png" in formats:
            png = vl_convert.vegalite_to_png(spec, scale=PNG_SCALE, allowed_base_urls=[])
            (plots / f"{figure.id}.png").write_bytes(png)
