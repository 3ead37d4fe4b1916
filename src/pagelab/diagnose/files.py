"""Files of a diagnosis: ``diagnosis.html`` (the whole report) and ``diagnosis.svg`` (its picture)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pagelab.diagnose.model import Diagnosis

if TYPE_CHECKING:
    from pagelab.report.figure import Figure

PAGE = "diagnosis.html"
PICTURE = "diagnosis.svg"


def write(directory: Path, found: Diagnosis) -> Path:
    """Writes both files into ``directory``; returns the page's path."""
    from pagelab.diagnose.page import Phases, figures_of, render

    phases = Phases.load(directory, found)
    sources = next(figure for figure in figures_of(found, phases) if figure.id == "sources")
    (directory / PICTURE).write_text(_svg(sources), encoding="utf-8")
    page = directory / PAGE
    temporary = page.with_name(f".{PAGE}.tmp")
    temporary.write_text(render(found, phases, directory), encoding="utf-8")
    temporary.replace(page)
    return page


def _svg(figure: Figure) -> str:
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(figure.for_paper(), allowed_base_urls=[])
    return svg
