"""The package's surface: every listed name resolves, no file shadows a function, importing it is free."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from pagelab.stats import nondeterminism as nd

METHOD = Path(__file__).parents[2] / "docs" / "method" / "nondeterminism.md"


def test_every_listed_name_resolves() -> None:
    assert set(nd.__all__) == set(nd._HOME)
    for name in nd.__all__:
        assert getattr(nd, name) is not None


def test_a_submodule_never_shadows_a_function() -> None:
    files = {path.stem for path in Path(nd.__path__[0]).glob("*.py")}
    assert files.isdisjoint(nd.__all__)


def test_importing_the_package_loads_neither_numpy_nor_scipy() -> None:
    code = "import sys, pagelab.stats.nondeterminism; print({'numpy', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_doubt_has_words_and_a_place_in_the_method() -> None:
    from pagelab.stats.nondeterminism import table

    assert set(table._CONCERNS) == set(nd.IntervalWarningKind)
    named = set(re.findall(r"`([a-z-]+)`", METHOD.read_text()))
    assert {doubt.value for doubt in nd.IntervalWarningKind} <= named
