"""A map that ``pagelab map --save`` took of a real process, as the placement of a simulation: end to end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pagelab import trace

KNOWN = Path(__file__).parents[1] / "trace" / "known.c"
ARENA = 0x10000000000
PAGE, LINE = 4096, 64
REFERENCES = 100_000
SETS, WAYS = 512, 2
HIERARCHY = """
[[cache.level]]
name = "L2"
size = "64K"
ways = 2
"""

pytestmark = [
    pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs QEMU: sudo apt install qemu-user"),
    pytest.mark.skipif(os.geteuid() != 0, reason="frame numbers are root's to see; run: sudo make test"),
]


def naive_misses(frames: dict[int, int], path: Path) -> int:
    """Misses of a physically indexed cache under LRU, with the frames of the map, one reference after the other."""
    sets: dict[int, OrderedDict[int, None]] = {}
    misses = 0
    for batch in trace.Trace(path).references():
        for address in batch.address.tolist():
            line = (frames[address // PAGE] * PAGE + address % PAGE) // LINE
            held = sets.setdefault(line % SETS, OrderedDict())
            if line in held:
                held.move_to_end(line)
                continue
            misses += 1
            held[line] = None
            if len(held) > WAYS:
                held.popitem(last=False)
    return misses


def saved_frames(path: Path) -> dict[int, int]:
    document = json.loads(path.read_text())
    spans = ((int(span["start"], 16) // PAGE, span["frames"]) for span in document["spans"])
    return {first + at: frame for first, frames in spans for at, frame in enumerate(frames) if frame is not None}


@pytest.mark.parametrize("emulated", [False, True], ids=["natively", "emulated"])
def test_a_saved_map_places_the_pages_of_a_trace(tmp_path: Path, emulated: bool) -> None:
    """The program's array lies where it says, so its map can be taken natively too; that of another program only of its
    emulator, which puts memory where the trace has it."""

    def pagelab(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pagelab", *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done

    program = tmp_path / "known"
    subprocess.run(["cc", "-O1", "-pthread", "-o", program, KNOWN], check=True)
    command = [program, "loop", REFERENCES]
    trace.capture([str(word) for word in command], tmp_path / "t", full=True, ranges=[(ARENA, ARENA + 1024 * PAGE)])
    emulator = ["qemu-x86_64", "-cpu", "max"] if emulated else []
    pagelab("map", "--save", "map.json", "--stdout", "null", "--", *emulator, *command)
    frames = saved_frames(tmp_path / "map.json")
    (tmp_path / "l2.toml").write_text(HIERARCHY)
    strategy = f"exact:map={tmp_path / 'map.json'}"
    shown = pagelab(
        *("simulate", "cache", "t", "--hierarchy", "l2.toml", "-n", "2"),
        *("--frames", strategy, "--frames", strategy.replace("exact", "modulo"), "--output", "levels.csv"),
    ).stdout
    levels = pl.read_csv(tmp_path / "levels.csv")
    misses = levels.filter(placement=strategy)["misses"].to_list()
    assert misses == [naive_misses(frames, tmp_path / "t")] * 2
    pages = len({int(page) for batch in trace.Trace(tmp_path / "t").runs(page_bytes=PAGE) for page in batch.page})
    assert f"{strategy}: {pages:,} of {pages:,} pages are in the saved map" in shown
    assert f"{strategy.replace('exact', 'modulo')}: {pages:,} of {pages:,} pages are in the saved map" in shown


def test_a_map_of_other_addresses_is_warned_about(tmp_path: Path) -> None:
    span = {"start": "0x7f0000000000", "pages": 1, "frames": [7], "colours": [0]}
    document = {"schema": "pagelab.framemap/1", "pid": 1, "colours": 1, "masks": [], "spans": [span]}
    (tmp_path / "map.json").write_text(json.dumps(document))
    (tmp_path / "l2.toml").write_text(HIERARCHY)
    trace.write(tmp_path / "t", [np.array([ARENA, ARENA + PAGE], np.uint64)])
    command = [sys.executable, "-m", "pagelab", "simulate", "cache", "t", "--hierarchy", "l2.toml", "-n", "2"]
    command += ["--frames", f"exact:map={tmp_path / 'map.json'}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "none of the trace's pages is in the saved map" in done.stdout
