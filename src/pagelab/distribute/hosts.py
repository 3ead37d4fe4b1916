"""Runs jobs on named workers of a Dask cluster, one at a time each, for measurements that belong to a host.

:class:`~pagelab.distribute.cluster.DaskCluster` sends a job to any worker, and to another one if that one dies. Here
the caller chooses the worker, is told of its death, and decides what to do.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from ..errors import MachineError
from .cluster import DaskCluster, library
from .model import Lost, raised

RESOURCE = "measuring"
"""Resource of measuring workers (``dask worker --resources measuring=1``): a worker's jobs that take it run one at a
time, and workers without it get none."""
_ASKED_S = 1.0
"""Seconds between two queries for the present workers."""
_RESULT_S = 10.0
_AGAIN_S, _LONGEST_AGAIN_S = 0.05, 1.0
"""Pause before another look at a job whose worker seems to be dead, the first time; it doubles up to the longest."""
_HERE = "127.0.0.1"


@dataclass(frozen=True)
class Ended:
    """A job that has ended: the name of its submission, and its result or the reason for none."""

    name: str
    outcome: Any


class HostCluster:
    """The workers of the scheduler at ``where`` (``tcp://host:port``), or that number of local workers (``"2"``)."""

    def __init__(self, where: str, say: Callable[[str], None] = lambda _: None) -> None:
        self.where = where
        self._say = say

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Connects to the scheduler. Raises :class:`MachineError` if there is none, or it ends."""
        with _own_workers(int(self.where)) if self.where.isdigit() else nullcontext(self.where) as address:
            client = DaskCluster(address).connect()
            try:
                yield Connection(client, address, self._say)
            finally:
                with suppress(Exception):  # the scheduler may be gone
                    client.close(timeout=_RESULT_S)


@contextmanager
def _own_workers(count: int) -> Iterator[str]:
    """Starts workers in processes of their own, on the loopback interface; dead workers are restarted."""
    distributed = library()
    import dask

    # Dask would sample the stacks of its workers' threads a hundred times a second, and disturb the measured program.
    with dask.config.set({"distributed.worker.profile.enabled": False}):
        cluster = distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            host=_HERE,
            dashboard_address=None,
            resources={RESOURCE: 1},
            silence_logs=50,
        )
        try:
            yield cluster.scheduler_address
        finally:
            cluster.close(timeout=_RESULT_S)


class Connection:
    """A connection to the scheduler; jobs are known by name, workers by address."""

    def __init__(self, client: Any, address: str, say: Callable[[str], None]) -> None:
        self.address = address
        self._client = client
        self._say = say
        self._running: dict[str, Any] = {}
        self._ended: queue.Queue[Any] = queue.Queue()
        self._workers: set[str] = set()
        self._asked = float("-inf")
        self._without: set[str] = set()
        self._pauses: dict[str, float] = {}

    def workers(self) -> set[str]:
        """Addresses of the workers that may measure; at most a second old.

        Raises :class:`MachineError` if the scheduler is gone.
        """
        if time.monotonic() - self._asked >= _ASKED_S:
            found = self._told()
            self._workers = {address for address, facts in found.items() if RESOURCE in facts.get("resources", {})}
            self._asked = time.monotonic()
            for address in sorted(set(found) - self._workers - self._without):
                self._without.add(address)
                self._say(
                    f"worker {address} is left alone: it was not started for measurements; start it with: dask worker "
                    f"{self.address} --nthreads 1 --resources {RESOURCE}=1"
                )
        return set(self._workers)

    def _told(self) -> dict[str, Any]:
        with self._alive():
            if self._client.status != "running":
                raise OSError(f"the connection is {self._client.status}")
            told: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        return told

    def ask(self, function: Callable[[], Any], workers: set[str]) -> dict[str, Any]:
        """Runs a short function in each worker's process beside its job; returns the results of the workers that
        answer."""
        if not workers:
            return {}
        with self._alive():
            found = self._client.run(function, workers=sorted(workers), on_error="ignore")
        return dict(found)

    def submit(self, work: Callable[[Any], Any], job: Any, worker: str) -> str:
        """Submits a job to one worker; returns the job's name."""
        name = f"pagelab-{uuid.uuid4()}"
        with self._alive():
            future = self._client.submit(
                work,
                job,
                key=name,
                pure=False,
                workers=[worker],
                allow_other_workers=False,
                resources={RESOURCE: 1},
            )
        self._running[name] = future
        future.add_done_callback(lambda ended: self._ended.put(ended.key))
        return name

    def forget(self, name: str) -> None:
        """Gives up a job; its outcome is ignored."""
        future = self._running.pop(name, None)
        self._pauses.pop(name, None)
        if future is not None:
            with suppress(Exception):
                future.cancel()

    def next(self, timeout_s: float) -> Ended | None:
        """The next job that ends within that time; None if none does."""
        try:
            name = self._ended.get(timeout=timeout_s)
        except queue.Empty:
            return None
        future = self._running.get(name)
        if future is None:
            return None
        if future.status == "finished":
            try:
                outcome = future.result(timeout=_RESULT_S)
            except Exception as error:
                if not _is_timeout(error):
                    raise MachineError(f"lost the Dask scheduler at {self.address}: {error}") from error
                # The result died with its worker.
                self._look_again(name)
                return None
        elif future.status == "error":
            failure = future.exception()
            outcome = Lost("its worker died") if type(failure).__name__ == "KilledWorker" else raised(failure)
        elif future.status == "cancelled":
            raise MachineError(f"lost the Dask scheduler at {self.address}: a job is {future.status}")
        else:
            # As above: the worker died before the result was asked for. The scheduler may have the job done again.
            self._look_again(name)
            return None
        del self._running[name]
        self._pauses.pop(name, None)
        future.release()
        return Ended(name, outcome)

    def _look_again(self, name: str) -> None:
        """Lets the caller see, by :meth:`workers`, whether the job's worker is dead, and looks at the job once more."""
        self._asked = float("-inf")
        pause_s = self._pauses.get(name, _AGAIN_S)
        self._pauses[name] = min(2 * pause_s, _LONGEST_AGAIN_S)
        # Not a sleep: other jobs may end meanwhile.
        later = threading.Timer(pause_s, self._ended.put, (name,))
        later.daemon = True
        later.start()

    @contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except MachineError:
            raise
        except Exception as error:  # sockets, tornado, Dask and asyncio raise many kinds
            raise MachineError(f"lost the Dask scheduler at {self.address}: {error}") from error


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or type(error).__name__ == "TimeoutError"
