"""A real Dask scheduler and real worker processes, on the loopback interface only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).parent.parent
DASK = Path(sys.executable).parent / "dask"
_PATIENCE_S = 60.0


class Cluster:
    """A scheduler; workers come as they are asked for. ``allowed_failures``: see docs/simulate-sweep."""

    def __init__(self, directory: Path, allowed_failures: int) -> None:
        self._directory = directory
        self._file = directory / "scheduler.json"
        self._environment = {
            **os.environ,
            # The package as it is here: installed, or where the tests' own path has it.
            "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(allowed_failures),
            "DASK_TEMPORARY_DIRECTORY": str(directory),
        }
        self._own: list[subprocess.Popen[bytes]] = []
        options = ["--port", "0", "--no-dashboard", "--no-show", "--scheduler-file", str(self._file)]
        self.scheduler = self._start("scheduler", *options)
        deadline = time.monotonic() + _PATIENCE_S
        while not self._written():
            assert self.scheduler.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)
        self.address: str = json.loads(self._file.read_text())["address"]

    def worker(self, host: str | None = None, *, measures: bool = False) -> subprocess.Popen[bytes]:
        """A worker of one thread in a process of its own, which nobody starts again when it dies. It ``measures`` for
        studies; ``host``: the host's name that it reports, so that one machine plays several."""
        options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", str(self._directory)]
        options += ["--resources", "measuring=1"] if measures else []
        return self._start("worker", self.address, *options, more={} if host is None else {"PAGELAB_HOST": host})

    def log(self) -> str:
        return (self._directory / "log").read_text()

    def stop(self) -> None:
        for process in self._own:
            process.kill()
            process.wait()

    def _written(self) -> bool:
        try:
            return bool(json.loads(self._file.read_text()))
        except (OSError, ValueError):
            return False

    def _start(self, *words: str, more: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        with (self._directory / "log").open("ab") as log:
            command = [str(DASK), *words, "--host", "127.0.0.1"]
            process = subprocess.Popen(command, env={**self._environment, **(more or {})}, stdout=log, stderr=log)
        self._own.append(process)
        return process


@contextmanager
def cluster(directory: Path, *, allowed_failures: int = 3) -> Iterator[Cluster]:
    running = Cluster(directory, allowed_failures)
    try:
        yield running
    finally:
        running.stop()
