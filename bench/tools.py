"""Functions for all benchmarks: a scratch directory, compiled helpers, and the compared policies."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.harness import packages

HERE = Path(__file__).parent

KERNEL = 'pages = "kernel"\n'
ALL_4K = 'pages = "4K"\n'
ALL_2M = 'pages = "2M"\n'
MOSAIC = """pages = "4K"
[[rule]]
memory = ["heap", "anon", "arenas"]
pages = { mosaic = [["0", "64M", "2M"], ["128M", "1G", "2M"]], otherwise = "4K" }
"""
LEVELS = {"PAGELAB_INSTRUCTIONS=avx2": "AVX2 at most", "PAGELAB_INSTRUCTIONS=baseline": "no AVX"}
"""Environments that keep the simulators' code to instructions of older processors."""


@dataclass(frozen=True)
class Bench:
    """``rounds``: pairs of every comparison."""

    scratch: Path
    rounds: int

    def compiled(self, name: str, *flags: str) -> str:
        path = self.scratch / name
        if not path.exists():
            subprocess.run([need("cc"), "-O2", *flags, "-o", str(path), str(HERE / f"{name}.c")], check=True)
        return str(path)


def need(program: str) -> str:
    """Path of a program; raises with the package to install."""
    found = packages.find(program)
    if found is None:
        raise SystemExit(f"bench needs {program}; run: apt-get install {packages.providing(program)}")
    return found


def built_example(name: str) -> str:
    """The path of an example of ``crates/simulate``, built as the package is."""
    cargo = need("cargo")
    package = ["-p", "pagelab-simulate", "--example", name]
    subprocess.run([cargo, "build", "--release", "--locked", "-q", *package], check=True)
    metadata = [cargo, "metadata", "--no-deps", "--format-version", "1"]
    target = json.loads(subprocess.run(metadata, check=True, capture_output=True).stdout)["target_directory"]
    return str(Path(target) / "release/examples" / name)
