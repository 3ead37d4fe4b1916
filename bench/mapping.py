"""Cost of a pair of mmap and munmap: governed against native, with and without tiles."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pagelab.runner import RunRequest, run

from .sample import Result, compare, interleave
from .tools import ALL_2M, ALL_4K, KERNEL, MOSAIC, Bench

GOAL = 1.5
TILE = 2 << 20
POLICIES = {"kernel": KERNEL, "4K": ALL_4K, "2M": ALL_2M, "mosaic": MOSAIC}
TOUCH = {0: "untouched", 1: "first page touched", 2: "all touched"}
SHAPES = [
    (4096, 0),
    (4096, 1),
    (65536, 0),
    (65536, 1),
    (65536, 2),
    (TILE, 0),
    (TILE, 1),
    (TILE, 2),
    (8 * TILE, 1),
    (32 * TILE, 0),
]
BUDGET_NS = 25e6
"""CPU time that one sample should take."""


def measure(bench: Bench) -> list[Result]:
    return [result for size, touch in SHAPES for result in _shape(bench, size, touch)]


def _shape(bench: Bench, size: int, touch: int) -> list[Result]:
    program = bench.compiled("mmap_pairs")
    pairs = _pairs_in_budget(program, size, touch)

    def argv(huge: bool) -> list[str]:
        return [program, str(size), str(pairs), str(touch), str(int(huge))]

    sides: dict[str, Callable[[], float]] = {"native": lambda: _launched(bench, argv(False), KERNEL, "never")}
    if size >= TILE:
        sides["native, MADV_HUGEPAGE"] = lambda: _launched(bench, argv(True), KERNEL, "never")
    for name, toml in POLICIES.items():
        sides[name] = lambda toml=toml: _launched(bench, argv(False), toml, "always")
    samples = interleave(sides, bench.rounds)
    results = []
    for name in POLICIES:
        # A first touch of a 2 MiB page clears 2 MiB, whoever asks for it: the like is compared with the like.
        like = "native, MADV_HUGEPAGE" if size >= TILE and name in ("2M", "mosaic") else "native"
        title = f"mmap+munmap of {size // 1024} KiB, {TOUCH[touch]}: {name} / {like}"
        results.append(compare(title, "ns", samples[like], samples[name], goal=GOAL))
    return results


def _pairs_in_budget(program: str, size: int, touch: int) -> int:
    arguments = [program, str(size), "50", str(touch), "0"]
    one = float(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)
    return max(20, min(20_000, int(BUDGET_NS / one)))


def _launched(bench: Bench, argv: list[str], toml: str, preload: Literal["always", "never"]) -> float:
    """Native runs go through the launcher too, so that the library is the only difference."""
    output: Path = bench.scratch / "pairs.out"
    record = run(RunRequest(argv=argv, policy_toml=toml, preload=preload, stdout=str(output), timeout_s=120))
    if record.outcome.status != "ok":
        raise SystemExit(f"{' '.join(argv)} under\n{toml}{record.outcome}")
    return float(output.read_text())
