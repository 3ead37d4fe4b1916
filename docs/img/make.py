"""Draws README's plot from a finished study: ``python docs/img/make.py DIR [WORKLOAD …]``.

Writes ``page-size.svg``, ``page-size-dark.svg`` and ``page-size.png`` beside this file, from the measured data in
DIR and nothing else. With workloads named, only these are drawn (Holm's family stays the whole study's).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import vl_convert

from pagelab.analysis import Analysis, analyse, load
from pagelab.charts import theme
from pagelab.report import charts
from pagelab.study.store import Store

WIDTH = 800


def main(directory: str, *workloads: str) -> None:
    with Store.open(Path(directory), write=False) as store:
        analysis = _only(analyse(load(store)), workloads)
    here = Path(__file__).parent
    spec = charts.forest(analysis, WIDTH)
    for name, colours in (("page-size", theme.LIGHT), ("page-size-dark", theme.DARK)):
        svg = vl_convert.vegalite_to_svg(theme.on_paper(spec, colours), allowed_base_urls=[])
        (here / f"{name}.svg").write_text(svg, encoding="utf-8")
    png = vl_convert.vegalite_to_png(theme.on_paper(spec), scale=2, allowed_base_urls=[])
    (here / "page-size.png").write_bytes(png)
    print(analysis.headline, *(c.sentence for c in analysis.planned()), sep="\n")


def _only(analysis: Analysis, workloads: tuple[str, ...]) -> Analysis:
    """The analysis with the contrasts of these workloads alone."""
    unknown = set(workloads) - set(analysis.design.workloads)
    if unknown:
        raise SystemExit(f"no workload {sorted(unknown)[0]}; there are: {', '.join(analysis.design.workloads)}")
    kept = tuple(c for c in analysis.contrasts if not workloads or c.workload in workloads)
    return replace(analysis, contrasts=kept)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
