"""A machine that takes as long as the test says: run times by a rule of the counts that some description gives."""

from __future__ import annotations

import os
import signal
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagelab import paths
from pagelab.advise.campaign import policy_text
from pagelab.advise.design import Region
from pagelab.layouts import Layout
from pagelab.layouts.layout import Tile
from pagelab.policy import parse
from pagelab.record import Record
from pagelab.simulate.tlb_runs import TlbRuns, tlb
from pagelab.study.plan import Condition
from pagelab.study.progress import Silent
from pagelab.study.tools import Tools
from pagelab.trace.files import info

COMMAND = [str(paths.workload()), "gups", "--bytes", "48M", "--updates", "200000"]
WINDOW = "work"
_POOL = 1 << 40
_PLACES = {"heap": 0x6600_0000_0000, "anon": 0x6700_0000_0000, "arenas": 0x6800_0000_0000}
_UNIT = {"K": 10, "M": 20, "G": 30}

Rule = Callable[[dict[str, float]], float]
"""Cycles of R from h, m and c."""


def linear(counts: dict[str, float]) -> float:
    return 2e7 + 3.0 * counts["h"] + 0.8 * counts["c"]


def layout_of(policy_toml: str) -> Layout:
    """The layout that a policy says, without the tile beyond every program."""
    tiles = []
    for rule in tomllib.loads(policy_toml)["rule"]:
        pages = rule["pages"]
        pools = [rule["memory"]] if isinstance(rule["memory"], str) else rule["memory"]
        if isinstance(pages, str):
            size = _bytes(pages)
            tiles += [Tile(pool, 0, max(256 << 20, size), size) for pool in pools]
            continue
        for start, end, size in pages["mosaic"]:
            low, high = _bytes(start), _bytes(end)
            if high < _POOL:
                tiles += [Tile(pool, low, high, _bytes(size)) for pool in pools]
    return Layout("own", tuple(tiles))


def _bytes(text: str) -> int:
    return int(text[:-1]) << _UNIT[text[-1]] if text[-1] in _UNIT else int(text)


@dataclass
class Machine:
    """Tools of a session in which nothing is run: ``processor`` plays the hardware."""

    trace: Path
    rule: Rule = linear
    processor: str = "haswell"
    noise: float = 0.0
    seed: int = 1
    counts: bool = False
    """Whether it counts events in windows."""
    active: bool = False
    """Whether its processor has an event for cycles with a walk active: three quarters of C."""
    window: str | None = WINDOW
    tiles: int = 25
    """Of the anonymous pool, in its records."""
    wrong: dict[str, Any] = field(default_factory=dict)
    """Changes of the records by layout's tiles in 2M pages (``all``, ``none``, ``some``)."""
    permuted: bool = False
    kill_at: int | None = None
    """The execution in which this process gets ``signal``."""
    signal: int = signal.SIGKILL
    host: str = "here"
    runs: int = 0
    order: list[str] = field(default_factory=list)

    def tools(self) -> Tools:
        return Tools(
            self,
            lambda _condition: None,
            lambda: {"machine": {}, "provenance": {"host": self.host}},
            has_event=lambda _name: self.active,
        )

    def run(self, condition: Condition, stderr: Path) -> Record:
        stderr.write_text("")
        self.runs += 1
        self.order.append(condition.policy_name)
        if self.runs == self.kill_at:
            os.kill(os.getpid(), self.signal)
        layout = layout_of(condition.request.policy_toml)
        counts = self.simulated(layout)
        cycles = self.rule(counts)
        if self.permuted:
            # The same spread of times, and no more to do with the counts.
            cycles = 2e7 * (1 + np.random.default_rng([*condition.policy_name.encode()]).uniform())
        cycles *= 1 + self.noise * float(np.random.default_rng([self.seed, self.runs]).normal())
        return self.record(condition, layout, cycles, counts)

    def simulated(self, layout: Layout) -> dict[str, float]:
        key = (str(self.trace), self.processor, layout.tiles)
        if key not in _KNOWN:
            row = tlb(self.trace, self.processor, parse(layout.toml(), "own")).executions.row(0, named=True)
            _KNOWN[key] = {name: float(row[name]) for name in ("h", "m", "c")}
        return _KNOWN[key]

    def record(self, condition: Condition, layout: Layout, cycles: float, counts: dict[str, float]) -> Record:
        ns = round(cycles)
        huge = layout.huge_bytes
        named = "none" if not huge else "all" if huge >= self.tiles << 21 else "some"
        measurements = []
        if self.window is not None:
            values = {"": ns / 1e9, ".cpu": ns / 1e9, ".user": ns / 1e9, ".system": 0.0, ".thread": ns / 1e9}
            measurements = [{"name": f"{self.window}{part}", "value": v, "unit": "s"} for part, v in values.items()]
            for part in ("faults", "major_faults"):
                measurements.append({"name": f"{self.window}.{part}", "value": 0.0, "unit": ""})
        if self.counts:
            own = {"tlb.hits": counts["h"], "tlb.walks": counts["m"], "tlb.walk_cycles": counts["c"], "cycles": cycles}
            if self.active and "tlb.walk_active" in condition.request.events:
                own["tlb.walk_active"] = 0.75 * counts["c"]
            measurements += [{"name": f"{self.window}.{name}", "value": v, "unit": ""} for name, v in own.items()]
        start = _PLACES["anon"]
        page = (2 << 20) if huge else 4096
        region = {
            "region": "anon", "asked": "2M" if huge else "4K", "start": start, "end": start + (self.tiles << 21),
            "mapped_bytes": self.tiles << 21, "resident_bytes": self.tiles << 21,
            "by_size": [{"page_bytes": page, "bytes": self.tiles << 21}],
            "whole_touched_tiles": self.tiles, "tiles_as_asked": self.tiles,
        }  # fmt: skip
        parts: dict[str, Any] = {
            "schema": "pagelab.record/1",
            "started_at": datetime.now(UTC).isoformat(),
            "command": {"argv": condition.request.argv, "cwd": "/", "executable": "/x", "env": {}, "env_bytes": 1},
            "policy": {"name": condition.policy_name, "toml": "", "path": None, "digest": "0"},
            "settings": {"cpus": [0], "uid": 0, "gid": 0, "preloaded": True, "flush": "none", "scheduler": "other"},
            "outcome": {"status": "ok", "exit_code": 0, "signal": None},
            "time": {"wall_ns": ns, "user_ns": ns, "system_ns": 0},
            "peak_rss_bytes": self.tiles << 21,
            "faults": {"minor": 1, "major": 0},
            "counters": [],
            "processes": [
                {"pid": 1, "ppid": 0, "executable": "/x", "governed": True, "placement": [region]},
            ],
            "placement": {"by_size": [], "whole_touched_tiles": 0, "tiles_as_asked": 0, "placed_fraction": None},
            "fetch": {},
            "measurements": measurements,
            "warnings": [],
        }
        changes = self.wrong.get(named, {})
        return Record.model_validate({**parts, **(changes(self.runs) if callable(changes) else changes)})


@dataclass
class Notes(Silent):
    """A progress that keeps its messages."""

    said: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.said.append(text)


@dataclass
class SlowSimulation:
    """Simulations that last as long as the test says, by a clock that nothing else moves."""

    pass_s: float
    """Of a pass with one layout; one with more takes as many times as long."""
    at: float = 0.0
    passes: list[int] = field(default_factory=list)
    """Layouts of each that was done."""
    send: int | None = None
    """Signal to this process in the middle of the first pass."""

    def install(self, monkeypatch: pytest.MonkeyPatch) -> SlowSimulation:
        monkeypatch.setattr("pagelab.model_run.simulation.tlb", self.tlb)
        monkeypatch.setattr("pagelab.model_run.simulation.workers", lambda _asked: 1, raising=False)
        for module in ("simulation", "run"):
            monkeypatch.setattr(f"pagelab.model_run.{module}.monotonic", lambda: self.at)
        return self

    def tlb(self, trace: Path, processor: str, placements: Any, *, report: Any = None, **options: Any) -> TlbRuns:
        report = report or (lambda *_: None)
        layouts = len(placements) if isinstance(placements, list) else 1
        references = int(info(trace)["references"])
        report(0, references)
        if self.send is not None:
            os.kill(os.getpid(), self.send)
        for part in range(1, 11):
            self.at += self.pass_s * layouts / 10
            report(references * part // 10, references)
        self.passes.append(layouts)
        return tlb(trace, processor, placements, **options)


_KNOWN: dict[tuple[str, str, tuple[Tile, ...]], dict[str, float]] = {}


def names(layouts: Sequence[Any], role: str) -> list[str]:
    return [row.name for row in layouts if row.role == role]


def advised(directory: Path, mib: int = 20) -> Path:
    """A policy as ``pagelab advise`` writes it, in a file: one mosaic for anonymous mappings and arenas together."""
    path = directory / "advised.toml"
    text = policy_text("4K", [Region("anon", 0, mib << 20)], aligned=True)
    path.write_text(f'name = "advice"\n{text}')
    return path
