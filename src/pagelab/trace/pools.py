"""Puts the memory of a captured program where a governed run would put it: heap, mappings and arenas in pools.

The preload library governs the emulated program as it governs a native one: the same code chooses the places, so
offsets in the pools equal those of the native run. Page sizes have no effect: the emulator has no huge pages, and a
capture needs none.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab import paths, policy
from pagelab.trace.data import TraceError
from pagelab.trace.program import Program

POOL_BYTES = 1 << 40
"""Size of a pool in the address space (docs/policy.md)."""
APART = """name = "pools"

[[rule]]
memory = "heap"
pages = "2M"

[[rule]]
memory = "anon"
pages = "2M"

[[rule]]
memory = "arenas"
pages = "2M"
"""
"""The default policy of a capture: three pools, in which blocks of 2 MiB and more begin at multiples of 2 MiB, as in
every policy with a tile of 2 MiB there."""
MARKS_ONLY = 'name = "marks"\n'
"""A policy that governs nothing; the library only marks where the program's windows begin and end."""
_PROGRAM_HEADER = 56
_PT_INTERP = 3


@dataclass(frozen=True)
class Pool:
    """The addresses of one kind of memory; policies define the names of the kinds."""

    memory: str
    start: int
    end: int


def of_header(header: Mapping[str, Any]) -> tuple[Pool, ...]:
    """The pools with which a trace was captured; none where there were none, or the trace's parts had different ones.

    Derived traces (converted, reduced, combined) have the pools of their sources.
    """
    provenance = header.get("provenance") or {}
    told = (provenance.get("parameters") or {}).get("pools")
    if told:
        return tuple(_pool(memory, span) for memory, span in told.items())
    sources = {of_header(one.get("header") or {}) for one in provenance.get("from") or []}
    return sources.pop() if len(sources) == 1 else ()


def in_header(pools: Sequence[Pool]) -> dict[str, Any]:
    """The entry for pools in a trace's header, in the form that :func:`of_header` reads."""
    return {"pools": {pool.memory: f"{pool.start:#x}-{pool.end:#x}" for pool in pools}} if pools else {}


def _pool(memory: str, span: str) -> Pool:
    start, _, end = span.partition("-")
    return Pool(memory, int(start, 16), int(end, 16))


@dataclass(frozen=True)
class Governing:
    """The means to govern the emulated program: a plan, and a directory for the library's files."""

    directory: Path
    pools: tuple[Pool, ...]
    policy: policy.Policy

    @property
    def arguments(self) -> list[str]:
        """The emulator's arguments that set variables for the program and not for the emulator."""
        import os

        own = os.environ.get("LD_PRELOAD")
        loaded = f"{paths.library()}:{own}" if own else str(paths.library())
        variables = [f"LD_PRELOAD={loaded}", f"PAGELAB_PLAN={self.directory / 'plan'}"]
        comma = next((one for one in variables if "," in one), None)
        if comma is not None:
            raise TraceError(
                "invalid", f"{comma}: the emulator takes no variable with a comma; install pagelab elsewhere"
            )
        return [word for variable in variables for word in ("-E", variable)]

    @property
    def parameters(self) -> dict[str, Any]:
        """The entry in the trace's header."""
        told = in_header(self.pools)
        return told | {"policy": self.policy.name, "policy_toml": self.policy.toml} if told else {}

    def refusals(self) -> list[str]:
        """Why images of the program were not governed: ``process PID: REASON`` for each."""
        from pagelab._native import read_guest

        found = []
        for path in sorted((self.directory / "guests").glob("*.guest")):
            report = json.loads(read_guest(path.read_bytes()))
            if report["disabled"]:
                found.append(f"process {report['pid']}: {report['disabled']['reason']}")
        return found

    def reached(self) -> bool:
        """Whether the library was loaded into any image of the program."""
        return any((self.directory / "guests").glob("*.guest"))


def govern(directory: Path, wanted: policy.Policy | None, *, pools: bool) -> Governing:
    """Writes the plan into ``directory``; returns the means to govern the program.

    ``wanted``: the policy that places the program's memory (None: :data:`APART`). Without ``pools``, nothing is
    governed, and only windows are marked.

    Raises :class:`TraceError` for a policy that a capture cannot follow.
    """
    from pagelab._native import PolicyRefused, emulated_plan

    chosen = wanted or policy.parse(APART if pools else MARKS_ONLY, "pools")
    _check(chosen)
    (directory / "guests").mkdir()
    try:
        plan, told = emulated_plan(chosen.toml, chosen.name, str(directory))
    except PolicyRefused as refused:
        raise TraceError("invalid", f"policy {chosen.name}: {json.loads(refused.args[0])['message']}") from None
    (directory / "plan").write_bytes(plan)
    sections = json.loads(told)
    large = next((one for one in sections if one["largest_page"] > 1 << 21), None)
    if large is not None:
        raise TraceError(
            "invalid",
            f"policy {chosen.name}: pages above 2M are reserved pages, which a capture has none of; capture with "
            "2M pages: pagelab trace --pools -- CMD",
        )
    found = tuple(Pool(one["memory"], one["base"], one["base"] + POOL_BYTES) for one in sections)
    if wanted is not None and not found:
        raise TraceError(
            "invalid", f"policy {chosen.name}: it gives neither heap, anon nor arenas a page size: no pools"
        )
    return Governing(directory, found, chosen)


def _check(chosen: policy.Policy) -> None:
    if chosen.governs_frames:
        raise TraceError(
            "invalid",
            f"policy {chosen.name}: an emulated program's frames are not placed; leave `frames` to the kernel",
        )
    if any(rule.at_least_bytes for rule in chosen.rules):
        raise TraceError(
            "invalid", f"policy {chosen.name}: at_least would give a kind of memory several pools; leave it out"
        )


def check_program(program: Program, argv: Sequence[str]) -> None:
    """Raises :class:`TraceError` for a program that cannot load the library."""
    if program.target != "x86_64":
        raise TraceError("invalid", f"{argv[0]}: --pools is for x86-64 programs, this one is for {program.target}")
    if not is_dynamic(program):
        raise TraceError(
            "invalid", f"{argv[0]}: it is linked statically, and the library cannot come into it; link it dynamically"
        )


def is_dynamic(program: Program) -> bool:
    """Whether the program names a dynamic linker."""
    with Path(program.file).open("rb") as stream:
        head = stream.read(64)
        at, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
        stream.seek(at)
        table = stream.read(size * count)
    kinds: Iterable[int] = (
        struct.unpack_from("<I", table, entry * size)[0] for entry in range(count if size >= _PROGRAM_HEADER else 0)
    )
    return _PT_INTERP in kinds
