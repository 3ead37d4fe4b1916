"""The package's surface: every listed name resolves, and importing it costs the command line nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pagelab.stats as stats


def _fresh(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_listed_name_resolves() -> None:
    for name in stats.__all__:
        assert getattr(stats, name).__name__ == name
    assert set(stats.__all__) == set(stats._HOME)


def test_importing_the_package_loads_neither_numpy_nor_scipy() -> None:
    assert _fresh("import sys, pagelab.stats; print({'numpy', 'scipy'} & set(sys.modules))") == "set()"


def test_rank_test_and_shift_need_no_scipy() -> None:
    code = "import sys; from pagelab.stats import *; hodges_lehmann([1], [2]); rank_sum([1], [2]); "
    assert _fresh(code + "print('scipy' in sys.modules)") == "False"


def test_a_submodule_never_shadows_a_function() -> None:
    """Regression: `rank_sum.py` once replaced the function `rank_sum` by the module once another file imported it."""
    files = {path.stem for path in Path(stats.__path__[0]).glob("*.py")}
    assert files.isdisjoint(stats.__all__)
