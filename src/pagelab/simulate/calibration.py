"""Descriptions of translation hardware from measured chases: the output of ``pagelab doctor --probe-translation``.

A preset keeps the arrays that the measurement confirms; the others are replaced by measured ones. The one number
that no vendor states, cycles to read a table entry, is chosen so that the simulated chase costs what the real one did.
"""

from __future__ import annotations

import platform
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from .. import whole_file
from ..errors import BadInputError, MachineError, cannot_write
from ..sizes import size_bytes
from .hardware import load, presets
from .placements import History, placement_of_pages
from .tlb_runs import tlb

PASSES = 4
_BOOTED = History(turnover=0)
"""Frames of a machine without a history: the choice of frames does not matter here."""
_BASE = 0x7000_0000_0000
_INTEL = {
    "sandy-bridge": (42, 45),
    "ivy-bridge": (58, 62),
    "haswell": (60, 63, 69, 70),
    "broadwell": (61, 71, 79, 86),
    "skylake": (78, 94, 142, 158),
    "skylake-server": (85,),
    "ice-lake-server": (106, 108),
    "sapphire-rapids": (143, 207),
}
"""Models of family 6 (Linux, arch/x86/include/asm/intel-family.h)."""
_ARM = {"0xd0c": "neoverse-n1", "0xd40": "neoverse-v1", "0xd49": "neoverse-n2"}


@dataclass(frozen=True)
class Step:
    """The end of a level of 4K entries: the longest chase that fits and the first that does not (pages)."""

    fits: int
    beyond: int


@dataclass(frozen=True)
class Measured:
    """The measurements behind a description.

    ``first``, ``second``: steps of chases over 4K pages; ``first_large``: over 2M pages.

    ``walks``: number of pages of each chase that misses everything, and its cost a load beyond an untranslated one.
    ``host_page``: of the host that backs this guest's memory, ``None``: no guest, or not known.
    """

    first: Step | None
    second: Step | None
    first_large: Step | None
    walks: tuple[tuple[int, float], ...]
    host_page: str | None


def preset_of(cpuinfo: str) -> str | None:
    """The preset of a processor, by ``/proc/cpuinfo``; None: there is none."""

    def value(key: str) -> str:
        found = re.search(rf"^{key}\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
        return found[1].strip() if found else ""

    vendor, family, model = value("vendor_id"), value("cpu family"), value("model")
    if platform.machine() == "aarch64" or value("CPU part"):
        return _ARM.get(value("CPU part"))
    if not (family.isdigit() and model.isdigit()):
        return None
    number = int(model)
    if vendor == "GenuineIntel" and family == "6":
        return next((name for name, models in _INTEL.items() if number in models), None)
    if vendor == "AuthenticAMD":
        # Linux, arch/x86/kernel/cpu/amd.c (bsp_init_amd).
        if family == "25":
            newer = 0x10 <= number <= 0x1F or 0x60 <= number <= 0xAF
            return "zen-4" if newer else "zen-3"
        if family == "23":
            return "zen-2" if number >= 0x30 else None
        return "zen-5" if family == "26" else None
    return None


def entries(arrays: Sequence[Mapping[str, Any]], page: str) -> int:
    """Number of entries for data in pages of this size, in one level of a description."""
    wanted = size_bytes(page, "page")
    return sum(
        int(array["entries"])
        for array in arrays
        if wanted in [size_bytes(one, "pages") for one in array["pages"]]
        and array.get("serves", "data") in ("data", "load")
    )


def verdict(measured: Measured, preset: str | None) -> list[str]:
    """One sentence per level: whether the preset agrees with the measurement. Empty without a preset."""
    if preset is None:
        return []
    table = load(preset).needed("tlb")
    told = []
    for name, step, arrays, page in (
        ("first level, 4K pages", measured.first, table["first"], "4K"),
        ("first level, 2M pages", measured.first_large, table["first"], "2M"),
        ("second level, 4K pages", measured.second, table.get("second", []), "4K"),
    ):
        stated = entries(arrays, page)
        if step is None and page == "2M" and measured.host_page == "4K":
            told.append(f"{name}: {preset} has {stated} entries; cannot be seen, since the host splits such pages")
        elif step is None:
            told.append(f"{name}: {preset} has {stated} entries; none was seen to end")
        elif step.fits <= stated < step.beyond:
            told.append(f"{name}: {stated} entries, as {preset} has")
        else:
            told.append(f"{name}: {step.fits} pages fit and {step.beyond} do not; {preset} has {stated} entries")
    return told


def description(measured: Measured, preset: str | None, *, name: str, where: str) -> dict[str, Any]:
    """A document for ``simulate tlb --processor FILE`` (:func:`text` writes it).

    Raises :class:`BadInputError` where not even the end of the first level was seen.
    """
    if measured.first is None:
        raise BadInputError(
            "cannot describe this processor: no length of chase was seen to cost more than shorter ones; measure again "
            "when the machine is quieter: pagelab doctor --probe-translation --rounds 40"
        )
    base = _document(preset) if preset else None
    table: dict[str, Any] = (
        dict(base["tlb"]) if base else {"walkers": 1, "levels": 4, "walk_caches": [{"spans": "2M", "entries": 32}]}
    )
    table["first"] = _level(table.get("first", []), measured.first, measured.first_large)
    second = measured.second
    if second is not None:
        table["second"] = _level(table.get("second", []), second, None)
    if measured.host_page is not None:
        table["nested"] = {"page": measured.host_page, "levels": 4}
    what = "arrays that the preset has otherwise: measured by chases"
    document: dict[str, Any] = {"name": name, "source": [{"what": what, "where": where, "verified": True}]}
    if base:
        document["source"] += base.get("source", [])
        if "cache" in base:
            document["cache"] = base["cache"]
    document["tlb"] = table
    if measured.walks:
        walks = fitted_walks(measured)
        table["entry_cycles"] = _entry_cycles(document, walks)
        (fewest, low), (most, high) = walks[0], walks[-1]
        over = f"over {fewest} to {most} pages ({low:.1f} to {high:.1f} cycles)" if len(walks) > 1 else ""
        what = f"cycles to read a table entry: fitted to walks {over or f'over {most} pages ({high:.1f} cycles)'}"
        document["source"].insert(1, {"what": what, "where": where, "verified": True, "calibrated": True})
    return document


def fitted_walks(measured: Measured) -> tuple[tuple[int, float], ...]:
    """The walks that stand for those of programs: over at least twice as many pages as the first beyond the second
    level, else the ones over the most pages.

    Just beyond it, tables lie in the nearest caches, and a part of the loads may still hit: the cheapest walks cost a
    fifth of what programs with more memory see.
    """
    edge = 0 if measured.second is None else 2 * measured.second.beyond
    walks = tuple(sorted(measured.walks))
    return tuple(one for one in walks if one[0] >= edge) or walks[-1:]


def _document(preset: str) -> dict[str, Any]:
    file = resources.files(__package__) / "processors" / f"{preset}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _level(arrays: list[dict[str, Any]], small: Step, large: Step | None) -> list[dict[str, Any]]:
    """The preset's arrays; those that differ from the measurement become fully associative, of the measured size."""
    kept = [dict(array) for array in arrays]
    for page, step in (("4K", small), ("2M", large)):
        if step is None or step.fits <= entries(kept, page) < step.beyond:
            continue
        for array in kept:
            if array.get("serves", "data") != "instruction":
                array["pages"] = [one for one in array["pages"] if one != page]
                array.pop("parts", None)
        kept = [array for array in kept if array["pages"]]
        kept.append({"name": f"measured, {page}", "pages": [page], "entries": step.fits, "ways": 0})
    return kept


def predicted_cycles(document: Mapping[str, Any], pages: int) -> float:
    """Walk cycles per load of a chase over ``pages`` 4K pages under a description, without the first pass."""
    order = np.random.default_rng(7).permutation(pages).astype(np.uint64) * np.uint64(4096) + np.uint64(_BASE)
    placed = placement_of_pages("4K")
    costs = [tlb(np.tile(order, n), document, placed, history=_BOOTED).executions["c"][0] for n in (1, PASSES)]
    return float(costs[1] - costs[0]) / (pages * (PASSES - 1))


def _entry_cycles(document: Mapping[str, Any], walks: Sequence[tuple[int, float]]) -> int:
    """Cycles to read a table entry so that walks of the simulated chases cost what the measured ones did, by least
    squares over the lengths; at least 1.

    Without data caches the cost of a walk is proportional to them.
    """
    alone = {**document, "tlb": {**document["tlb"], "entry_cycles": 1}}
    one = np.array([predicted_cycles(alone, pages) for pages, _ in walks])
    squares = float(one @ one)
    return max(1, round(float(one @ np.array([cost for _, cost in walks])) / squares)) if squares > 0 else 1


def text(document: Mapping[str, Any]) -> str:
    """The document as TOML."""
    lines = [f"{key} = {_value(value)}" for key, value in document.items() if not _is_table(value)]
    for key, value in document.items():
        if _is_table(value):
            lines += _table(key, value)
    return "\n".join(lines) + "\n"


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))


def _table(path: str, value: Any) -> list[str]:
    if isinstance(value, list):
        return [line for one in value for line in _body(f"[[{path}]]", path, one)]
    return _body(f"[{path}]", path, value)


def _body(head: str, path: str, table: Mapping[str, Any]) -> list[str]:
    lines = ["", head, *(f"{key} = {_value(value)}" for key, value in table.items() if not _is_table(value))]
    for key, value in table.items():
        if _is_table(value):
            lines += _table(f"{path}.{key}", value)
    return lines


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return str(value)


def write(document: Mapping[str, Any], path: Path) -> None:
    """Writes the document. Raises :class:`PagelabError` with the file and the reason."""
    try:
        whole_file.put(path, text(document))
    except OSError as error:
        raise cannot_write(path, error) from error


def this_machine() -> str:
    """The preset of this machine's processor. Raises `MachineError` where there is none."""
    try:
        found = preset_of(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        found = None
    if found is None:
        raise MachineError(
            "no preset is known to describe this machine's processor; measure one with: pagelab doctor "
            "--probe-translation --description here.toml, and give it: --processor here.toml; or name one of "
            f"{', '.join(presets())}"
        )
    return found
