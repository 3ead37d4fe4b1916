"""What the installed perf prints, as layouts and advice read it.

Virtual machines without counters have no event of TLB misses; page faults have data addresses everywhere, in lines of
the same form.
"""

from __future__ import annotations

import mmap
import shutil
import subprocess
import sys

import pytest

from pagelab.errors import BadInputError
from pagelab.layouts import perf_script

PAGES = 2000
PROGRAM = f"""
import ctypes, mmap
block = mmap.mmap(-1, {PAGES * mmap.PAGESIZE}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block.madvise(mmap.MADV_NOHUGEPAGE)
print(ctypes.addressof(ctypes.c_char.from_buffer(block)))
for page in range({PAGES}):
    block[page * mmap.PAGESIZE] = 1
"""


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[str]]:
    """Where the program's block is, and a line for each of its page faults."""
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed; run: apt-get install linux-perf")
    data = tmp_path_factory.mktemp("perf") / "perf.data"
    record = ["perf", "record", "-q", "-d", "-e", "page-faults:u", "-c", "1", "-o", data, sys.executable, "-c", PROGRAM]
    done = subprocess.run(record, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"perf cannot record here: {done.stderr.strip()[:200]}; run: sysctl kernel.perf_event_paranoid=1")
    fields = "comm,tid,time,period,event,addr,ip,sym,dso"
    shown = subprocess.run(["perf", "script", "-i", data, "-F", fields], capture_output=True, text=True, check=True)
    return int(done.stdout), shown.stdout.splitlines()


def test_page_faults_are_no_misses_and_the_refusal_counts_them(sampled: tuple[int, list[str]]) -> None:
    with pytest.raises(BadInputError, match=r"no sample is a TLB miss with an address \(\d+ of page-faults"):
        list(perf_script.samples(sampled[1]))


def test_the_addresses_are_those_that_the_program_touched(sampled: tuple[int, list[str]]) -> None:
    """The event's name is replaced by one of misses; everything else is as perf printed it."""
    start, lines = sampled
    renamed = [line.replace("page-faults:u:", "dTLB-load-misses:u:") for line in lines]
    found = list(perf_script.samples(renamed))
    assert {weight for _, weight in found} == {1.0}
    pages = {(address - start) // mmap.PAGESIZE for address, _ in found if 0 <= address - start < PAGES * mmap.PAGESIZE}
    assert pages == set(range(PAGES))
