"""Functions shared by the Python benchmarks. Any Python 3 runs them as scripts, so they import nothing of pagelab."""

import json
import os
import sys
import time


def measured(name, operations, work):
    """Runs ``work`` and reports its mean time an operation, in ns, to the descriptor ``PAGELAB_MEASURE_FD``."""
    start = time.perf_counter_ns()
    result = work()
    elapsed_ns = time.perf_counter_ns() - start
    descriptor = os.environ.get("PAGELAB_MEASURE_FD")
    if descriptor:
        line = json.dumps({"name": name, "value": elapsed_ns / operations, "unit": "ns"})
        os.write(int(descriptor), (line + "\n").encode())
    return result


def conclude(right, checked):
    """Says whether the results were proved; ends the program."""
    if right != checked:
        sys.exit(f"{right} of {checked} results are right: memory or code is broken")
    print(f"{checked} results verified")


def option(name, default=None, known=None):
    """The word after ``--name``, of the type of ``default``."""
    words = sys.argv[1:]
    value = words[words.index(f"--{name}") + 1] if f"--{name}" in words else default
    if known and value not in known:
        sys.exit(f"--{name} {value}: allowed: {', '.join(known)}")
    return type(default)(value)
