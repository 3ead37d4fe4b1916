"""When file pages come into memory: on demand one by one, or all at once; and every switch is put back."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from harness import smaps
from harness.guests import Workshop
from harness.launching import Runner
from harness.memory import MemoryGroup
from harness.policies import BY_NAME
from pagelab.record import WarningKind

PAGES = 2048


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """A file of 2,048 pages on a file system with a page cache that can be dropped."""
    path = tmp_path / "cold"
    with path.open("wb") as file:
        file.write(os.urandom(PAGES * 4096))
        file.flush()
        os.fsync(file.fileno())
    return path


def residency(run_under: Runner, workshop: Workshop, toml: str, cold: Path) -> tuple[int, int, int]:
    fields = {"flush": {"mode": "files", "files": [str(cold)]}}
    run = run_under(toml, [str(workshop.build("cold_file")), str(cold)], **fields).succeeded()
    if WarningKind.CACHE_NOT_FLUSHED in run.kinds():
        pytest.skip("the file system keeps its pages (tmpfs?); run: TMPDIR=/var/tmp make test")
    mapped, one, everything = map(int, run.stdout.split())
    assert everything == PAGES, run.story()
    return mapped, one, everything


def test_kernel_reads_ahead(cold: Path, workshop: Workshop, run_under: Runner) -> None:
    mapped, one, _ = residency(run_under, workshop, BY_NAME["kernel"].toml, cold)
    assert mapped == 0
    assert one > 1


def test_demand_reads_exactly_the_page_that_is_touched(cold: Path, workshop: Workshop, run_under: Runner) -> None:
    mapped, one, _ = residency(run_under, workshop, BY_NAME["demand"].toml, cold)
    assert (mapped, one) == (0, 1)


def test_prefault_has_everything_there_when_mmap_returns(cold: Path, workshop: Workshop, run_under: Runner) -> None:
    mapped, _, _ = residency(run_under, workshop, 'fetch = "prefault"\n', cold)
    assert mapped == PAGES


def test_willneed_starts_reading_at_once(cold: Path, workshop: Workshop, run_under: Runner) -> None:
    mapped, one, _ = residency(run_under, workshop, 'fetch = "willneed"\n', cold)
    assert max(mapped, one) > 64  # asynchronous: how far it got is the disk's affair


def test_demand_covers_every_file_mapping_also_those_of_dlopen(run_under: Runner) -> None:
    code = "import sqlite3, ctypes, json, zlib; print(open('/proc/self/smaps').read())"
    run = run_under(BY_NAME["demand"].toml, [sys.executable, "-c", code]).succeeded()
    mappings = [mapping for mapping in smaps.parse(run.stdout) if mapping.path.startswith("/")]
    mappings = [mapping for mapping in mappings if not mapping.path.startswith(("/dev/", "/memfd", "/SYSV"))]
    assert any("_sqlite3" in mapping.path for mapping in mappings), run.story()
    plain = [mapping.path for mapping in mappings if "rr" not in mapping.flags and "libpagelab" not in mapping.path]
    plain = [path for path in plain if not path.endswith((".guest", "plan"))]
    assert not plain, f"without MADV_RANDOM: {plain}"


def test_readahead_is_put_back_and_recorded(workshop: Workshop, run_under: Runner) -> None:
    before = {path: path.read_text() for path in Path("/sys/block").glob("*/queue/read_ahead_kb")}
    run = run_under(BY_NAME["demand"].toml, [str(workshop.build("map_hint"))]).succeeded()
    assert {path: path.read_text() for path in before} == before
    fetch = run.the_record.fetch
    if WarningKind.READAHEAD_NOT_CONTROLLED in run.kinds():
        assert fetch.readahead_kb_during == {} or fetch.readahead_kb_during == fetch.readahead_kb_before, run.story()
    else:
        assert set(fetch.readahead_kb_during.values()) == {0}, run.story()


def test_residency_at_start_is_recorded(run_under: Runner) -> None:
    run = run_under(BY_NAME["demand"].toml, ["true"]).succeeded()
    files = {Path(file.path).name: file for file in run.the_record.fetch.residency_at_start}
    assert any(name.startswith("libc.so") for name in files), run.story()
    assert all(0 <= file.resident_pages <= file.pages for file in files.values()), run.story()


def test_a_childs_program_is_recorded_beside_what_its_parent_maps(run_under: Runner, workshop: Workshop) -> None:
    child = workshop.build("map_hint")
    run = run_under(BY_NAME["kernel"].toml, ["sh", "-c", f"{child} >/dev/null; exit 0"]).succeeded()
    paths = [Path(file.path) for file in run.the_record.fetch.residency_at_start]
    assert child in paths, run.story()
    assert len([path for path in paths if path.name.startswith("libc.so")]) == 1, run.story()
    assert all(file.pages > 0 for file in run.the_record.fetch.residency_at_start), run.story()


@pytest.mark.parametrize("pages", ["4K", "2M"])
def test_prefault_leaves_what_a_control_group_needs(pages: str, run_under: Runner, workshop: Workshop) -> None:
    """Regression: the group's limit was not looked at, and the kernel killed the program."""
    toml = f'pages = "{pages}"\nfetch = "prefault"\n'
    with MemoryGroup("pagelab-test-prefault", 24, swap=False) as group:
        run_under.prefix = group.prefix()
        run = run_under(toml, [str(workshop.build("reserved_blocks"))]).succeeded()
        assert run.stdout == "ok\n", run.story()
        assert group.killed() == 0, run.story()
    assert run.root.guest is not None, run.story()
    assert run.root.guest.values["prefault.done"] > 0, run.story()
