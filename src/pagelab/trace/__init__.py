"""Captures, reads, writes, converts, combines and reduces reference traces (docs/trace).

Everything streams: whatever the trace's length, only batches of about 10⁵ records are in memory. The native part
releases the GIL.

>>> import numpy as np
>>> from pagelab import trace
>>> addresses = np.arange(0, 1 << 20, 64, dtype=np.uint64)
>>> written = trace.write("/tmp/loop.trace", [addresses] * 3, force=True)  # doctest: +SKIP
>>> sum(int(runs.count.sum()) for runs in trace.Trace("/tmp/loop.trace").runs(page_bytes=4096))  # doctest: +SKIP
49152
"""

from pagelab.trace.capture import Capture, capture, capture_with_lackey
from pagelab.trace.data import KINDS, References, Runs, TraceError, page_bits
from pagelab.trace.files import Trace, info, write
from pagelab.trace.operations import FORMATS, concat, convert, interleave, reduce

__all__ = [
    "FORMATS",
    "KINDS",
    "Capture",
    "References",
    "Runs",
    "Trace",
    "TraceError",
    "capture",
    "capture_with_lackey",
    "concat",
    "convert",
    "info",
    "interleave",
    "page_bits",
    "reduce",
    "write",
]
