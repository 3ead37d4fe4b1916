"""Boots the machine until its study has ended, and may kill it at random moments: in a boot, and in an execution."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

IN_EXECUTION_S = 3.0
"""An execution takes longer here: within so many seconds after its start it is killed."""
IN_BOOT_S = 40.0
"""The other kill is within so many seconds after the start of a boot of the study."""
LIMIT_S = 5400.0


class Machine:
    """An emulated machine with the disk of ``work``, and its console in ``work/console.log``."""

    def __init__(self, work: Path) -> None:
        self._console = work / "console.log"
        self._console.write_bytes(b"")
        kernel = next((work / "kernel-bookworm/boot").glob("vmlinuz-*"))
        self._command = [
            *("qemu-system-x86_64", "-accel", "tcg", "-nographic", "-m", "1024", "-smp", "2", "-monitor", "none"),
            # NumPy and polars want a processor with cmpxchg16b; the kernel must do without (tests/harness/emulated.sh).
            *("-cpu", "max"),
            *("-kernel", str(kernel), "-initrd", str(work / "initrd.gz")),
            *("-drive", f"file={work / 'disk.img'},format=raw,if=none,id=disk", "-device", "virtio-blk-pci,drive=disk"),
            *("-nic", "user,model=virtio-net-pci,restrict=on"),
            *("-append", "console=ttyS0 quiet panic=-1 root=/dev/vda rw clearcpuid=cx16 systemd.show_status=false"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._console.open("ab") as console:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """As a power cut: nothing in the machine is asked."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        with self._console.open("ab") as console:
            console.write(b"\n=== killed\n")

    def said(self) -> str:
        return self._console.read_text(errors="replace").replace("\r", "")

    def is_off(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def wait_for(self, text: str, times: int, deadline: float) -> None:
        """Until the console has said it so often. Raises TimeoutError, or RuntimeError where the machine went off."""
        while self.said().count(text) < times:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{text!r} was not said {times} times:\n{self.said()[-4000:]}")
            if self.is_off():
                raise RuntimeError(f"the machine went off before {text!r} was said {times} times")
            time.sleep(0.05)


Kill = tuple[str, int, float, str]
"""After the console has said it so many times more, so many seconds later; where that is."""


def drawn(seed: int) -> list[Kill]:
    """One in an execution, one in a boot, in random order."""
    moments = random.Random(seed)
    kills = [("=== execution", moments.randrange(2, 9), moments.uniform(0, IN_EXECUTION_S), "in an execution")]
    kills.append(("of the study in", moments.randrange(2, 8), moments.uniform(0, IN_BOOT_S), "in a boot"))
    moments.shuffle(kills)
    print(f"seed {seed}: {kills}", flush=True)
    return kills


def main(work: Path, kills: list[Kill]) -> None:
    """Runs the study to the machine's power-off."""
    machine = Machine(work)
    began = time.monotonic()
    deadline = began + LIMIT_S
    machine.start()
    for text, more, after_s, where in kills:
        machine.wait_for(text, machine.said().count(text) + more, deadline)
        time.sleep(after_s)
        machine.kill()
        print(f"{time.monotonic() - began:.0f} s: killed {where}, {after_s:.1f} s after its start", flush=True)
        machine.start()
    while not machine.is_off():
        if time.monotonic() > deadline:
            machine.kill()
            raise TimeoutError(f"the study did not end:\n{machine.said()[-4000:]}")
        time.sleep(0.5)
    print(f"{time.monotonic() - began:.0f} s: off", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), drawn(int(sys.argv[2])) if len(sys.argv) > 2 else [])
