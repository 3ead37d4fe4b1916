"""Whole campaigns of real programs with planted causes: minutes each, so they run with the slow tests.

The programs' CPU time is judged, not their wall time, wherever the cause costs CPU time: other work on the machine then
matters less. What depends on the machine's quiet is not asserted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.guests import Workshop

PROGRAMS = Path(__file__).parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def diagnose(workshop: Workshop, tmp_path: Path, program: str, *options: str) -> dict[str, Any]:
    """The diagnosis of ``tests/diagnose/<program>.c``."""
    built = workshop.compile(PROGRAMS / f"{program}.c", f"diagnose_{program}")
    command = [sys.executable, "-m", "pagelab", "diagnose", "--json", "--into", str(tmp_path / "d"), *options, "--"]
    done = subprocess.run([*command, str(built)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {one["key"]: one["verdict"] for one in found["findings"]}


def test_the_stacks_address(workshop: Workshop, tmp_path: Path) -> None:
    found = diagnose(workshop, tmp_path, "stack_address", "--minutes", "4", "--metric", "cpu_s")
    assert found["outcome"] == "confirmed"
    assert verdicts(found)["aslr"] in ("cause", "part")
    environment = next(one for one in found["findings"] if one["key"] == "environment")
    assert environment["values_differ"]
    assert environment["share"]["low"] > 0.3
    assert verdicts(found)["environment"] in ("undecided", "ruled-out")  # ASLR off comes with it, and is in its control


def test_the_size_of_pages(workshop: Workshop, tmp_path: Path) -> None:
    found = diagnose(workshop, tmp_path, "page_size", "--minutes", "4", "--metric", "cpu_s")
    assert found["outcome"] == "confirmed"
    pages = next(one for one in found["findings"] if one["key"] == "pages")
    assert pages["verdict"] in ("cause", "part")
    assert pages["values_differ"]
    assert verdicts(found)["addresses"] in ("undecided", "ruled-out")
    assert len(found["confirmation"]["contrasts"]) == 2


def test_a_random_sleep(workshop: Workshop, tmp_path: Path) -> None:
    found = diagnose(workshop, tmp_path, "random_sleep", "--minutes", "3")
    assert found["outcome"] in ("unexplained", "refuted", "undecided")
    assert not any(one["verdict"] == "cause" for one in found["findings"])


def test_nothing_at_all(workshop: Workshop, tmp_path: Path) -> None:
    """On a machine that is not quiet, its noise is a spread too; no source may be accused of it."""
    found = diagnose(workshop, tmp_path, "steady", "--minutes", "3")
    assert found["outcome"] in ("nothing-to-explain", "unexplained", "refuted", "undecided")
