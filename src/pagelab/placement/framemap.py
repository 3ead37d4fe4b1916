"""Saves the frames and colours of a process (``pagelab.framemap/1``), for ``modulo`` and ``exact`` to replay."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from .. import whole_file
from ..errors import BadInputError, MachineError, cannot_write
from .colours import ColourFunction
from .model import AddressMap, Region

SCHEMA = "pagelab.framemap/1"
MOST_PAGES = 1 << 24
"""Most pages that a policy reads from such a file (crates/policy, ``framemap``)."""
_KINDS = ("heap", "anon", "arenas", "data", "stack")
"""Kinds of memory that a frame policy can place."""
_GAP_PAGES = 16
"""A gap of at most this many pages that are not resident is written as nulls; a longer one starts a new span."""


def check_target(path: Path) -> None:
    """Refuses an unwritable target before anything runs, so that no long run ends without its map."""
    if not path.absolute().parent.is_dir():
        raise BadInputError(f"--save {path}: there is no directory {path.absolute().parent}")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise BadInputError(f"--save {path}: not writable; name another file")


def document(found: AddressMap, function: ColourFunction) -> dict[str, Any]:
    """The saved form of a map that was collected with ``frames=True``: private anonymous memory only.

    Raises :class:`MachineError` if no frame is known, and :class:`BadInputError` if there are more pages than a policy
    reads.
    """
    spans = [span for region in found.regions if region.kind in _KINDS for span in _spans(region, function, found)]
    if not spans:
        raise MachineError(
            f"cannot save the frames of process {found.pid}: none is known; run: sudo pagelab map --save FILE …"
        )
    pages = sum(span["pages"] for span in spans)
    if pages > MOST_PAGES:
        raise BadInputError(f"cannot save the frames of process {found.pid}: {pages} pages; the most is {MOST_PAGES}")
    return {
        "schema": SCHEMA,
        "pid": found.pid,
        "command": found.command,
        "taken_at": found.taken_at,
        "colours": function.colours,
        "masks": [hex(mask) for mask in function.masks],
        "spans": sorted(spans, key=lambda span: int(span["start"], 16)),
    }


def _spans(region: Region, function: ColourFunction, found: AddressMap) -> list[dict[str, Any]]:
    runs = region.frame_runs or []
    if not runs:
        return []
    page = found.base_page_bytes
    lengths = np.array([run.pages for run in runs], np.int64)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    virtual = np.repeat(np.array([run.start // page for run in runs], np.int64), lengths) + within
    frames = np.repeat(np.array([run.frame for run in runs], np.int64), lengths) + within
    cuts = np.flatnonzero(np.diff(virtual) > _GAP_PAGES) + 1
    return [
        _span(int(own[0]) * page, own - own[0], of_span, function)
        for own, of_span in zip(np.split(virtual, cuts), np.split(frames, cuts), strict=True)
    ]


def _span(
    start: int, offsets: np.ndarray[Any, Any], frames: np.ndarray[Any, Any], function: ColourFunction
) -> dict[str, Any]:
    count = int(offsets[-1]) + 1
    frame_list: list[int | None] = [None] * count
    colour_list: list[int | None] = [None] * count
    colours = function.of(frames.astype(np.uint64))
    for offset, frame, colour in zip(offsets.tolist(), frames.tolist(), colours.tolist(), strict=True):
        frame_list[offset], colour_list[offset] = frame, colour
    return {"start": hex(start), "pages": count, "frames": frame_list, "colours": colour_list}


def save(found: AddressMap, function: ColourFunction, path: Path) -> int:
    """Writes the saved form; returns the number of pages with a frame."""
    text = json.dumps(document(found, function), separators=(",", ":"))
    try:
        whole_file.put(path, text + "\n")
    except OSError as error:
        raise cannot_write(path, error) from error
    return sum(run.pages for region in found.regions if region.kind in _KINDS for run in region.frame_runs or [])
