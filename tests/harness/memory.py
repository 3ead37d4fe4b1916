"""Short memory: a swap file for a test, and control groups with a limit."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from .packages import need

CGROUP = Path("/sys/fs/cgroup")


@contextmanager
def swap_file(path: Path, mebibytes: int) -> Iterator[None]:
    """Swap at ``path``, switched off and deleted at the end whatever happens; skips where that is not permitted."""
    if os.geteuid() != 0:
        pytest.skip("switching swap on is for root; run: sudo make test")
    path.touch(mode=0o600)
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, mebibytes << 20)
        for command in (["mkswap", str(path)], ["swapon", str(path)]):
            done = subprocess.run([need(command[0]), *command[1:]], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"no swap can be had here ({done.stderr.strip()}); look: cat /proc/swaps")
        try:
            yield
        finally:
            subprocess.run([need("swapoff"), str(path)], check=True)
    finally:
        path.unlink()


class MemoryGroup:
    """A control group, of version 1 or 2, whose processes have ``size`` units of memory (MiB), and swap or none."""

    def __init__(self, name: str, size: int, *, swap: bool, unit: int = 1 << 20) -> None:
        first = CGROUP / "memory"
        self.is_first_version = first.is_dir()
        self.path = (first if self.is_first_version else CGROUP) / name
        bytes_ = str(size * unit)
        self.limit = self.path / ("memory.limit_in_bytes" if self.is_first_version else "memory.max")
        if self.is_first_version:
            self.settings = {"memory.limit_in_bytes": bytes_}
            self.settings |= {"memory.swappiness": "100"} if swap else {"memory.swappiness": "0"}
        else:
            self.settings = {"memory.max": bytes_, "memory.swap.max": "max" if swap else "0"}

    def __enter__(self) -> MemoryGroup:
        try:
            self.path.mkdir()
            for name, value in self.settings.items():
                (self.path / name).write_text(value)
        except OSError as error:
            with suppress(OSError):
                self.path.rmdir()
            pytest.skip(f"no control group with a memory limit can be made here ({error}); run: sudo make test")
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                return self.path.rmdir()
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def prefix(self) -> tuple[str, ...]:
        """Before a command: it runs in the group."""
        return ("sh", "-c", f'echo $$ >{self.path}/cgroup.procs && exec "$0" "$@"')

    def killed(self) -> int:
        """Number of processes killed by the group's limit."""
        files = ("memory.oom_control",) if self.is_first_version else ("memory.events",)
        lines = (self.path / files[0]).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
