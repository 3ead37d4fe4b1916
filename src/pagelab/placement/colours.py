"""Computes cache colours of frames, and the spread of a region's pages over them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BadInputError
from . import folios
from .model import Colouring, RegionColours

Words = npt.NDArray[np.uint64]

MOST_COLOURS = 1 << 16
GRID_BINS = 128
"""Number of bins of a picture's grid along the address axis."""
GRID_ROWS = 32
"""Largest number of groups of neighbouring colours in the grid."""


@dataclass(frozen=True)
class ColourFunction:
    """From frame number to colour: modulo ``colours``, or bit i = parity of the frame number's bits in mask i."""

    colours: int
    masks: tuple[int, ...] = ()
    source: str = "given"
    """Source of the number of colours, in words."""

    def of(self, frames: Words) -> Words:
        """The colour of each frame."""
        if not self.masks:
            return frames % np.uint64(self.colours)
        found = np.zeros(len(frames), np.uint64)
        for bit, mask in enumerate(self.masks):
            parity = np.bitwise_count(frames & np.uint64(mask)).astype(np.uint64) & np.uint64(1)
            found |= parity << np.uint64(bit)
        return found

    @property
    def described(self) -> Colouring:
        """This function in the form that a map contains."""
        return Colouring(colours=self.colours, masks=[hex(mask) for mask in self.masks], source=self.source)


def from_flags(colors: int | None, cache: str | None, masks: str | None, page: int) -> ColourFunction | None:
    """The function that the flags name; ``None`` if they name none. Raises :class:`BadInputError` for bad flags."""
    given = [
        name for name, value in (("--colors", colors), ("--cache", cache), ("--masks", masks)) if value is not None
    ]
    if len(given) > 1:
        raise BadInputError(f"{' and '.join(given)} both set the number of colours; give one of them")
    if colors is not None:
        return ColourFunction(_checked(colors, f"--colors {colors}"))
    if cache is not None:
        return _from_cache(cache, page)
    return None if masks is None else _from_masks(masks)


def _from_cache(text: str, page: int) -> ColourFunction:
    match = re.fullmatch(r"(\d+)([KMG]?),(\d+)", text.strip().upper())
    if match is None or int(match[3]) == 0:
        raise BadInputError(f"--cache {text}: not of the form SIZE,WAYS; write for example 1M,8")
    size = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]
    return ColourFunction(_checked(max(1, size // int(match[3]) // page), f"--cache {text}"), (), f"cache {text}")


def _from_masks(text: str) -> ColourFunction:
    try:
        found = tuple(int(word, 0) for word in text.split(","))
    except ValueError:
        found = ()
    if not found or any(mask <= 0 or mask >= 1 << 40 for mask in found):
        raise BadInputError(f"--masks {text}: not masks over frame-number bits; write for example 0x21,0x42,0x84")
    return ColourFunction(_checked(1 << len(found), f"--masks {text}"), found, "masks")


def _checked(count: int, what: str) -> int:
    if not 1 <= count <= MOST_COLOURS:
        raise BadInputError(f"{what}: {count} colours; allowed: 1 to {MOST_COLOURS}")
    return count


def from_policy(document: Mapping[str, Any], machine: Mapping[str, Any]) -> ColourFunction | None:
    """The colour function of a policy (in JSON form): that of its default, or of the first rule with frames."""
    axes = [document["frames"], *(rule["frames"] for rule in document["rules"])]
    axis = next((one for one in axes if one is not None and one["strategy"]["kind"] != "kernel"), None)
    if axis is None:
        return None
    colours = axis["colours"]
    source = f"policy {document['name']}"
    if colours == "machine":
        shape = machine["cache"]
        count = None if shape is None else shape["line_bytes"] * shape["sets"] // machine["base_page_bytes"]
        return None if count is None else ColourFunction(max(1, count), (), source)
    if "count" in colours:
        return ColourFunction(colours["count"], (), source)
    if "cache" in colours:
        cache = colours["cache"]
        return ColourFunction(max(1, cache["bytes"] // cache["ways"] // machine["base_page_bytes"]), (), source)
    return ColourFunction(1 << len(colours["masks"]), tuple(colours["masks"]), source)


def of_machine(machine: Mapping[str, Any]) -> ColourFunction | None:
    """The colour function of the second-level cache, else of the last level; ``None`` if the kernel reports neither."""
    known = [entry for entry in machine["caches"] if entry["kind"] != "instruction" and entry["colours"]]
    chosen = next((entry for entry in known if entry["level"] == 2), known[-1] if known else None)
    if chosen is None:
        return None
    text = f"L{chosen['level']}: {chosen['size_bytes'] >> 10}K, {chosen['ways']} ways"
    return ColourFunction(chosen["colours"], (), text)


class ColourSummary:
    """Counts a region's pages by colour, and by place and colour."""

    def __init__(self, function: ColourFunction, start: int, end: int, page: int) -> None:
        self._function, self._start, self._page = function, start, page
        self._counts = np.zeros(function.colours, np.int64)
        self._turns = np.zeros(function.colours, np.int64)
        rows = min(GRID_ROWS, function.colours)
        self._bin_bytes = max(page, -(-(end - start) // GRID_BINS) + page - 1 & -page)
        self._grid = np.zeros((-(-(end - start) // self._bin_bytes), rows), np.int64)

    def add(self, pages: folios.Placed) -> None:
        """Adds pages of the region."""
        count = self._function.colours
        found = self._function.of(pages.frames).astype(np.int64)
        self._counts += np.bincount(found, minlength=count)
        virtual = (pages.addresses // np.uint64(self._page)).astype(np.int64)
        self._turns += np.bincount((found - virtual) % count, minlength=count)
        bins = ((pages.addresses - np.uint64(self._start)) // np.uint64(self._bin_bytes)).astype(np.int64)
        np.add.at(self._grid, (bins, found * self._grid.shape[1] // count), 1)

    def colours(self) -> RegionColours | None:
        """The summary; ``None`` if no page was added."""
        total = int(self._counts.sum())
        if not total:
            return None
        found = RegionColours(
            pages=total,
            least=int(self._counts.min()),
            most=int(self._counts.max()),
            crowding=crowding(self._counts),
            along_address=float(self._turns.max() / total),
            counts=self._counts.tolist(),
        )
        found.attach_grid(self._grid, self._bin_bytes)
        return found


def crowding(counts: npt.NDArray[np.int64]) -> float | None:
    """Chi-squared of equal counts over its degrees of freedom: 0 = even, about 1 = as by chance, more = crowded.

    ``None`` if there is only one colour.
    """
    if len(counts) < 2 or not counts.sum():
        return None
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2).sum() / expected / (len(counts) - 1))


def top(counts: Sequence[int], number: int = 3) -> list[tuple[int, int]]:
    """The ``number`` fullest colours, each with its number of pages."""
    order = sorted(range(len(counts)), key=lambda colour: (-counts[colour], colour))
    return [(colour, counts[colour]) for colour in order[:number] if counts[colour]]
