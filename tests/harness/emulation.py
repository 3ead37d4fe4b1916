"""Counts a program's instructions (QEMU's user mode) and calls (strace), with and without the library.

QEMU runs a thread of its own, which an emulated program finds in /proc/self/task, and the library stands aside where
there are threads before it. So the emulated program is shown that directory with one thread in it: it has one.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pagelab.record import WarningKind

from .guests import Workshop
from .launching import Runner
from .packages import ROOT, need

KERNEL = 'pages = "kernel"\n'
PLUGIN = ROOT / "tests" / "data" / "count_instructions.c"


@dataclass(frozen=True)
class Emulator:
    """Runs programs in QEMU, in ``directory``."""

    directory: Path
    workshop: Workshop
    run_under: Runner

    def instructions(self, argv: list[str], *, preload: bool, stdin: str = "null") -> int:
        """All instructions of a program (by its path), from the dynamic linker's first to the end; one process."""
        plugin = self.workshop.compile(PLUGIN, "count_instructions.so", flags=("-shared", "-fPIC"))
        root, out = self.directory / "root", self.directory / "instructions"
        (root / "proc/self/task/1").mkdir(parents=True, exist_ok=True)
        out.unlink(missing_ok=True)
        command = [need("qemu-x86_64"), "-cpu", "max", "-L", str(root), "-plugin", f"{plugin},out={out}"]
        # QEMU itself runs without the library; the program gets it, and the same environment otherwise.
        script = (
            f"lib=$LD_PRELOAD plan=$PAGELAB_PLAN; unset LD_PRELOAD PAGELAB_PLAN; exec {shlex.join(command)} "
            f'${{lib:+-E "LD_PRELOAD=$lib" -E "PAGELAB_PLAN=$plan"}} {shlex.join(argv)}'
        )
        environment = {"clear": True, "set": {"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0"}, "unset": []}
        run = self.run_under(
            KERNEL, ["bash", "-c", script], preload="always" if preload else "never", env=environment, stdin=stdin,
            timeout_s=280.0,
        ).succeeded()  # fmt: skip
        assert WarningKind.GUEST_DISABLED not in run.kinds(), run.story()
        return int(out.read_text())


def system_calls(argv: list[str], directory: Path, run_under: Runner, *, preload: bool) -> list[Counter[str]]:
    """The system calls of a program in phases (see ``call_costs.c``), by phase, its children included."""
    log = directory / f"strace-{preload}"
    command = [need("strace"), "-f", "-qq", "-o", str(log), *argv]
    run_under(KERNEL, command, preload="always" if preload else "never", timeout_s=60.0).succeeded()
    phases: list[Counter[str]] = [Counter()]
    for line in log.read_text().splitlines():
        call = re.match(r"\d+ +(\w+)\(", line)
        if call is None:  # the end of an interrupted call, a signal
            continue
        if call[1] == "getpgid":
            phases.append(Counter())
        else:
            phases[-1][call[1]] += 1
    return phases
