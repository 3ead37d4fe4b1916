"""The package as users import it, and what an installed one has besides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pagelab
from pagelab.cli import manpage

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def test_dir_names_what_there_is() -> None:
    assert dir(pagelab) == sorted(pagelab.__all__)
    assert all(getattr(pagelab, name) is not None for name in dir(pagelab))
    with pytest.raises(AttributeError, match="it has: BadInputError"):
        _ = pagelab.nonsense


def test_importing_it_imports_nothing_heavy() -> None:
    script = "import sys, pagelab; print([name for name in ('numpy', 'polars', 'pydantic') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_and_its_results_show_themselves(path: Path) -> None:
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    shown = []
    for cell in cells:
        *statements, last = "".join(cell["source"]).rsplit("\n", 1)
        exec("\n".join(statements), names)
        shown.append(eval(last, names))
    records = [value for value in shown if isinstance(value, pagelab.Record)]
    assert records
    assert records[0]._repr_html_().startswith("<table>")
    assert "wall" in str(records[0])


def test_names_of_others_are_escaped() -> None:
    from pagelab.terminal import Shown

    class Result(Shown):
        def _title(self) -> str:
            return "<b>"

        def _rows(self) -> list[tuple[str, str]]:
            return [("a", "<script>\x1b[2J")]

    assert "<script>" not in Result()._repr_html_()
    assert "<b>" not in Result()._repr_html_()
    assert "\x1b" not in str(Result())


def test_the_man_page_and_the_completions_are_those_of_the_commands(tmp_path: Path) -> None:
    """Regenerate with: make man"""
    for made in manpage.write(tmp_path):
        published = ROOT / "share" / made.relative_to(tmp_path)
        assert published.read_text() == made.read_text()
