"""Probes cache colours with ``pagelab-workload colour-chase``, one cache after the other, the innermost first."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pagelab.machine.colours.store import machine_hash

from .. import paths
from ..errors import MachineError, PagelabError
from .colours import rule
from .colours.model import CacheVerdict, Chase, VerdictFile
from .describe import describe
from .provenance import pagelab_version, provenance
from .sysfs import Tree
from .virtual import virtualisation

ROUNDS = 60
_CLASSES = 3
_PAGES_A_CLASS = 128
_LARGEST_SHARE = 4
"""A pool takes at most 1 / this of the available memory."""


@dataclass(frozen=True)
class Cache:
    """A cache's properties, and the next inner cache's, for the measurement."""

    level: int
    size_bytes: int
    ways: int
    colours: int
    inner_colours: int
    inner_ways: int


Measure = Callable[[Sequence[str]], Chase]


def caches(machine: dict[str, Any]) -> list[Cache]:
    """The caches with two colours or more, innermost first, without those of unknown ways."""
    found = []
    inner = (1, 1)
    for entry in machine["caches"]:
        if entry["kind"] == "instruction" or not entry["ways"]:
            continue
        if entry["level"] > 1 and entry["colours"] >= 2:
            found.append(Cache(entry["level"], entry["size_bytes"], entry["ways"], entry["colours"], *inner))
        inner = (entry["colours"], entry["ways"])
    return found


def arguments(
    cache: Cache, *, rounds: int, seed: int, available_bytes: int, classes: int, masks: Sequence[int] = ()
) -> list[str]:
    """Arguments of ``colour-chase`` for one cache: chain lengths below, at and above the ways, and the pool's size."""
    ways = cache.ways
    lengths = sorted({max(1, ways // 2), ways, 2 * ways, 3 * ways, 4 * ways})
    colours = 1 << len(masks) if masks else cache.colours
    # 1.5 times as many, since no pool has equally many pages of each colour.
    wanted = max(colours * 4 * ways * 3 // 2, 4096)
    candidates = max(_PAGES_A_CLASS * cache.colours, 8 * cache.colours * ways) if classes else 2
    pool = min(max(wanted, candidates), available_bytes // _LARGEST_SHARE // 4096)
    named: dict[str, object] = {
        "colours": colours,
        "ways": ways,
        "inner-colours": cache.inner_colours,
        "inner-ways": cache.inner_ways,
        "chain-pages": ",".join(map(str, lengths)),
        "rounds": rounds,
        "classes": classes,
        "pool-pages": pool,
        "candidates": min(candidates, pool),
        "seed": seed,
    }
    if masks:
        named["masks"] = ",".join(map(hex, masks))
    return [f"--{name}={value}" for name, value in named.items()]


def probe(
    *,
    rounds: int = ROUNDS,
    seed: int = 1,
    telling: Callable[[str], None] = lambda _what: None,
    measure: Measure | None = None,
    machine: dict[str, Any] | None = None,
    virtual: str | None = None,
) -> VerdictFile:
    """Measures and judges every cache with colours (some seconds, one CPU); ``telling`` is called at each step.

    ``measure``, ``machine`` and ``virtual`` are for tests. Raises :class:`MachineError` if the caches' shape or frame
    numbers are not available.
    """
    measure = measure or chase
    described = machine or describe()
    kind = virtualisation(Tree.from_environment()).kind if virtual is None else virtual
    wanted = caches(described)
    if not wanted:
        raise MachineError(
            "cannot probe colours: the kernel reports no cache with more than one colour below "
            "/sys/devices/system/cpu/cpu0/cache; see its caches with: pagelab doctor"
        )
    found: list[CacheVerdict] = []
    for cache in wanted:
        telling(f"L{cache.level} ({cache.colours} colours)")
        found.append(_examine(cache, found, measure, rounds, seed, kind != "none"))
    known = provenance()
    return VerdictFile(
        verdict=rule.overall([cache.verdict for cache in found]),
        caches=found,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine_hash(),
        boot_id=known["boot_id"],
        host=known["host"],
        cpu=known["cpu"]["model_name"],
        virtualisation=kind,
        pagelab=pagelab_version(),
        seed=seed,
    )


def _examine(
    cache: Cache, before: list[CacheVerdict], measure: Measure, rounds: int, seed: int, virtual: bool
) -> CacheVerdict:
    available = _available_bytes()
    classes = 0 if before else _CLASSES

    def call(masks: Sequence[int] = ()) -> Chase:
        asked = arguments(
            cache, rounds=rounds, seed=seed, available_bytes=available, classes=0 if masks else classes, masks=masks
        )
        return measure(asked)

    measured = call()
    ratios = rule.ratios(measured)
    if before:
        judged = rule.judge_further(ratios, before[0].verdict)
    else:
        judged = rule.judge_first(measured, ratios, virtual=virtual)
    if judged.masks:
        judged = rule.confirmed(judged, rule.ratios(call(judged.masks)), virtual=virtual)
    return CacheVerdict(
        level=cache.level,
        size_bytes=cache.size_bytes,
        ways=cache.ways,
        colours=cache.colours,
        verdict=judged.verdict,
        reason=judged.reason,
        masks=[hex(mask) for mask in judged.masks],
        classes=len(measured.classes),
        class_pages=sum(map(len, measured.classes)),
        ratios=ratios,
    )


def chase(asked: Sequence[str]) -> Chase:
    """Runs ``colour-chase`` on one CPU. Raises :class:`MachineError` if it cannot measure here."""
    command = [str(paths.workload()), "colour-chase", *asked]
    with _on_one_cpu():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().removeprefix("pagelab-workload: ")
        kind = MachineError if done.returncode == 2 else PagelabError
        raise kind(f"cannot probe colours: {said or f'{command[0]} ended with {done.returncode}'}")
    return Chase.model_validate(json.loads(done.stdout))


@contextmanager
def _on_one_cpu() -> Iterator[None]:
    """Keeps processes that start meanwhile on one CPU, since the chain is in that CPU's cache only."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _available_bytes() -> int:
    words = next(
        (line.split() for line in Tree().text("/proc/meminfo").splitlines() if line.startswith("MemAvailable:")), []
    )
    return int(words[1]) * 1024 if len(words) > 1 else 1 << 30
