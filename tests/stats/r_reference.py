"""One Rscript call for many cases: start-up of R and coin dominates."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.packages import need

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPT = Path(__file__).with_name("reference.R")
INSTALL = "apt-get install r-base-core r-cran-exactranktests r-cran-coin"


@dataclass
class Cases:
    """Cases collected first, answered together."""

    script: Path = SCRIPT
    install: str = INSTALL
    lines: list[str] = field(default_factory=list)
    inputs: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def add(self, kind: str, name: str, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray = ()) -> None:
        identifier = f"{kind}:{name}"
        assert identifier not in self.inputs
        self.inputs[identifier] = (np.asarray(x, dtype=float), np.asarray(y, dtype=float))
        fields = [",".join(repr(float(v)) for v in side) for side in (x, y)]
        self.lines.append("\t".join([identifier, kind, *fields]))

    def of(self, kind: str) -> list[str]:
        return [name for name in self.inputs if name.startswith(f"{kind}:")]

    def answer(self) -> dict[str, dict[str, np.ndarray]]:
        done = subprocess.run(
            [need("Rscript"), "--vanilla", str(self.script)],
            input="\n".join(self.lines) + "\n",
            capture_output=True,
            text=True,
        )
        advice = f"{self.script.name} failed; if a package is missing, run: {self.install}"
        assert done.returncode == 0, f"{advice}\n{done.stderr}"
        answers: dict[str, dict[str, np.ndarray]] = {}
        for line in done.stdout.splitlines():
            identifier, key, values = line.split("\t")
            answers.setdefault(identifier, {})[key] = np.array([_number(v) for v in values.split(",")])
        assert set(answers) == set(self.inputs)
        return answers


def _number(text: str) -> float:
    return float("nan") if text == "NA" else float(text)
