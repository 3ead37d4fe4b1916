"""What measuring placement costs is in no time of the record."""

from __future__ import annotations

import sys

from harness.launching import Runner

CHILD = r"""
import ctypes, mmap
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
pages = 50_000
base = libc.mmap(None, ctypes.c_size_t(pages * 4096), 3, 0x22, -1, 0)
for page in range(0, pages, 2):
    libc.mprotect(base + page * 4096, 4096, 1)
"""

PARENT = f"""
import resource, subprocess, sys
for _ in range(3):
    subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
used = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
print(sum(one.ru_utime + one.ru_stime for one in used), sum(one.ru_minflt for one in used))
"""


def test_measuring_is_in_no_total_of_cpu_time(run_under: Runner) -> None:
    """Children with 50,000 mappings are measured at their exit: their parent sees that time, the record does not."""
    run = run_under("", [sys.executable, "-c", PARENT]).succeeded()
    seen_s = float(run.stdout.split()[0])
    time = run.the_record.time
    assert time.measuring_ns is not None
    assert time.user_ns is not None
    assert time.system_ns is not None
    counted_s, measuring_s = (time.user_ns + time.system_ns) / 1e9, time.measuring_ns / 1e9
    # On a busy machine measuring waits as well: a tenth of its wall time is asked for.
    assert measuring_s > 0.03, run.story()
    assert counted_s < seen_s - 0.1 * measuring_s, (counted_s, seen_s, measuring_s)
