"""The sources of variance between executions that pagelab can switch, and their pinned values."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

from pagelab.diagnose.model import Pin, Settings, Source
from pagelab.study.substitute import literal

PADDING = "PAGELAB_PADDING"
"""Environment variable that makes the environment longer, and so moves the stack."""
_STACK_STEP_BYTES = 16
"""Alignment of the stack pointer by the kernel at the program's start."""
_STACK_RANGE_BYTES = 4096
_MOST_CPUS = 4
COMBINED = "everything"
ASLR_OFF = "aslr-off"
CONTROL_COPIES = 2
"""Copies of a control in each block; the default, with which several sources are compared, has one more."""
_POOL_END = ("1048572M", "1T")
"""The last tiles of a pool, which no program reaches: a policy for them alone makes the pool and sizes no used page."""


def sources(
    settings: Settings, machine: Mapping[str, Any], aslr_mode: int | None, values: int, peak_bytes: int = 0
) -> list[Source]:
    """Every source, with ``values`` pinned values where values are drawn; an impossible source has the reason.

    ``aslr_mode``: ``/proc/sys/kernel/randomize_va_space``; ``peak_bytes``: the memory that the program needs.
    The caller checks whether the policies are feasible.
    """
    return [
        _aslr(aslr_mode),
        _addresses(),
        _environment(settings.seed, values),
        _pages(machine),
        _cpu(),
        _cache(settings),
        _host(machine, peak_bytes),
        _frames("page-coloring", "page colouring", []),
        _frames("bin-hopping", "bin hopping", _seeds(settings.seed, values)),
        _frames("random", "random frames", _seeds(settings.seed, values)),
        _combined(settings, aslr_mode),
    ]


def _aslr(mode: int | None) -> Source:
    off = "it is off already on this machine (kernel.randomize_va_space = 0)" if mode == 0 else None
    pin = Pin(name=ASLR_OFF, keys={"aslr": "off"}, how="pagelab run --aslr off (or: setarch -R)")
    return Source(key="aslr", label="ASLR", pins=[pin], left_out=off)


def _addresses() -> Source:
    """The source of the side effects of a policy for page sizes. Its pin is a control for page sizes."""
    return Source(key="addresses", label="fixed addresses", pins=[_pool("4K", None)])


def _pool(size: str, control_of: str | None) -> Pin:
    """A pin of addresses alone: the library is loaded, and heap and mappings lie at the same addresses in every
    execution, those that they have with pages of ``size``; the kernel chooses the page sizes."""
    keys = {"pages": {"mosaic": [[*_POOL_END, size]], "otherwise": "kernel"}}
    start, end = _POOL_END
    text = f'pages = {{ mosaic = [["{start}", "{end}", "{size}"]], otherwise = "kernel" }}'
    name = "addresses-fixed" if size == "4K" else f"addresses-fixed-{size}"
    return Pin(name=name, keys=keys, how=f"pagelab run --policy FILE, in which: {text}", control_of=control_of)


def _environment(seed: int, values: int) -> Source:
    """The source of the environment's size: sizes drawn at random within one page, by which the start of the stack
    moves.

    The draws are independent, not one from each part of the page: so the share of the variance is that of a random
    size, and its interval is right. ASLR is off for them, otherwise the kernel would move the stack anyway. ASLR is
    also off in the control, whose environment has the same variable, empty.
    """
    steps = _STACK_RANGE_BYTES // _STACK_STEP_BYTES
    sizes = [number % steps * _STACK_STEP_BYTES for number in _numbers(seed, values)]
    pins = [
        Pin(
            name=f"environment-{number}",
            keys={"aslr": "off", "env": {PADDING: "x" * size}},
            how=f"pagelab run --aslr off, with {size:,} bytes more of environment ({PADDING})",
        )
        for number, size in enumerate(sizes, start=1)
    ]
    return Source(
        key="environment",
        label="environment size",
        pins=pins,
        controls=_copies("environment-control", {"aslr": "off", "env": {PADDING: ""}}, "pagelab run --aslr off"),
        against="ASLR off, the environment as it is",
        drawn=True,
    )


def _copies(name: str, keys: dict[str, Any], how: str) -> list[Pin]:
    return [Pin(name=f"{name}-{number}", keys=keys, how=how) for number in range(1, CONTROL_COPIES + 1)]


def _pages(machine: Mapping[str, Any]) -> Source:
    sizes = ["4K"] + (["2M"] if machine.get("thp_bytes") == 2 << 20 else [])
    pins = [Pin(name=f"pages-{size}", keys={"pages": size}, how=f"pagelab run --pages {size}") for size in sizes]
    controls = [_pool(size, f"pages-{size}") for size in sizes]
    against = "the same library and addresses, page sizes left to the kernel"
    return Source(key="pages", label="page size", pins=pins, controls=controls, against=against)


def _cpu() -> Source:
    cpus = sorted(os.sched_getaffinity(0))
    pins = [
        Pin(name=f"cpu-{cpu}", keys={"cpus": [cpu]}, how=f"pagelab run --cpu {cpu} (or: taskset -c {cpu})")
        for cpu in _spread_out(cpus, _MOST_CPUS)
    ]
    only = f"only CPU {cpus[0]} may be used here: the program is pinned already" if len(cpus) == 1 else None
    return Source(key="cpu", label="CPU pinning", pins=pins, left_out=only)


def _cache(settings: Settings) -> Source:
    files = input_files(settings)
    shown = " ".join(files)
    warm = {"setup": [{"command": ["cat", *(literal(name) for name in files)]}]}
    pins = [
        Pin(name="cache-warm", keys=warm, how=f"read its files before it runs: cat {shown} > /dev/null"),
        Pin(
            name="cache-flushed",
            keys={"flush": {"mode": "files", "files": [literal(name) for name in files]}},
            how="pagelab run " + " ".join(f"--flush {name}" for name in files),
        ),
    ]
    controls = _copies("page-cache-control", {"setup": [{"command": ["cat", "/dev/null"]}]}, "cat /dev/null before it")
    against = "the page cache as it is, with a process before each run that reads nothing"
    return Source(key="page-cache", label="page cache", pins=pins, controls=controls, against=against)


def _host(machine: Mapping[str, Any], peak_bytes: int) -> Source:
    """The source of free page reporting: the host must back again memory that was free for seconds (docs/run.md)."""
    kept = None if machine.get("free_page_reporting") else "this machine does not tell its host which memory is free"
    size = f"{max(2, ceil(peak_bytes / (1 << 20)))}M"
    pin = Pin(name="host-backed", keys={"host_backed": size}, how=f"pagelab run --host-backed {size}")
    controls = _copies("host-control", {"host_backed": "1M"}, "pagelab run --host-backed 1M")
    against = "a process before each run that touches 1 MiB"
    return Source(key="host", label="memory of the host", pins=[pin], controls=controls, against=against, left_out=kept)


def input_files(settings: Settings) -> list[str]:
    """The program and those of its arguments that are files: the known part of a page-cache state."""
    first = settings.argv[0]
    found = str(Path(settings.cwd) / first) if "/" in first else shutil.which(first)
    names = [found] if found else []
    names += [str(Path(settings.cwd) / word) for word in settings.argv[1:]]
    return list(dict.fromkeys(name for name in names if len(name) < 4096 and Path(name).is_file()))


def _frames(kind: str, label: str, seeds: list[int]) -> Source:
    wanted: list[tuple[str, dict[str, Any], str]] = [
        (f"{kind}-{number}", {"kind": kind, "seed": seed}, f"{kind}:seed={seed}")
        for number, seed in enumerate(seeds, start=1)
    ] or [(kind, {"kind": kind}, kind)]
    pins = [
        Pin(name=name, keys={"frames": keys}, how=f"sudo pagelab run --frames {flag}") for name, keys, flag in wanted
    ]
    controls = _copies(
        "frames-control",
        {"frames": {"kind": "modulo", "colors": 1, "pattern": [0]}},
        "sudo pagelab run --frames modulo:colors=1,pattern=0",
    )
    against = "the same engine, handing out any frame (one colour)"
    return Source(key=f"frames-{kind}", label=label, pins=pins, controls=controls, against=against, drawn=bool(seeds))


def _combined(settings: Settings, aslr_mode: int | None) -> Source:
    """The source that combines all pins that need no privileges: it shows causes too small to be found singly."""
    cpu = sorted(os.sched_getaffinity(0))[-1]
    aslr = {} if aslr_mode == 0 else {"aslr": "off"}
    keys = {**aslr, "pages": "4K", "cpus": [cpu], **_cache(settings).pins[0].keys}
    flags = " ".join(["--aslr off"] * bool(aslr) + ["--pages 4K", f"--cpu {cpu}"])
    parts = [ASLR_OFF, "pages-4K", f"cpu-{cpu}", "cache-warm"]
    absent = {ASLR_OFF} if aslr_mode == 0 else set()
    absent |= {f"cpu-{cpu}"} if os.sched_getaffinity(0) == {cpu} else set()
    pin = Pin(name=COMBINED, keys=keys, how=f"pagelab run {flags}, its files read before it runs")
    return Source(key=COMBINED, label="all of these", pins=[pin], parts=[each for each in parts if each not in absent])


def _seeds(seed: int, values: int) -> list[int]:
    return [number % 1_000_000 for number in _numbers(seed + 1, values)]


def _numbers(seed: int, count: int) -> list[int]:
    """``count`` raw outputs of PCG64, whose stream NumPy guarantees."""
    from pagelab.study.schedule import raw_source

    draw = raw_source(seed)
    return [draw() >> 16 for _ in range(count)]


def _spread_out(items: list[int], most: int) -> list[int]:
    count = min(most, len(items))
    return [items[round(index * (len(items) - 1) / max(1, count - 1))] for index in range(count)]
