"""Executes jobs on a Dask cluster: its scheduler finds workers, repeats jobs of dead ones, and returns results."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ..errors import MachineError
from ..machine.provenance import pagelab_version
from .model import Job, Lost, Outcomes, Result, raised

_CONNECT_S = 10.0
_AHEAD = 2
"""Jobs submitted for each thread of a worker: one that runs and one that waits."""
_ENDED = frozenset({"finished", "error", "cancelled"})
"""Final states of a job. A future's other states are ``pending`` and ``lost``; a lost job has to be done again."""


class DaskCluster:
    """The workers of a Dask scheduler at ``address`` (``tcp://host:port``, ``tls://host:port``)."""

    def __init__(
        self,
        address: str,
        *,
        resources: Mapping[str, float] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``resources``: the part of its worker's resources (``dask worker --resources``) that a job takes. With
        ``{"measuring": 1}``, on workers that have 1, a host does nothing else meanwhile. ``say`` receives what the
        cluster waits for.
        """
        self.address = address
        self._resources = dict(resources or {})
        self._say = say

    def execute(self, work: Callable[[Job], Result], jobs: Iterable[Job]) -> Outcomes[Job, Result]:
        """See :class:`~pagelab.distribute.model.Executor`. A job is lost when the scheduler gives it up, after its
        ``allowed-failures``.

        Raises :class:`MachineError` if there is no scheduler, it ends, or a worker has another version of pagelab.
        """
        distributed = library()
        source = iter(jobs)
        with self._client(distributed) as client:
            self._check(client)
            finished = distributed.as_completed(loop=client.loop)
            running: dict[str, Job] = {}

            def fill() -> None:
                room = _AHEAD * max(1, sum(client.nthreads().values())) - len(running)
                for _ in range(room):
                    try:
                        job = next(source)
                    except StopIteration:
                        return
                    key = f"pagelab-{uuid.uuid4()}"
                    running[key] = job
                    finished.add(client.submit(work, job, key=key, pure=False, resources=self._resources or None))

            fill()
            for future in finished:
                if future.status not in _ENDED:  # its worker died with the result; the scheduler repeats the job
                    finished.add(future)
                    continue
                job = running.pop(future.key)
                yield job, self._outcome(future, distributed)
                future.release()
                fill()

    @contextmanager
    def _client(self, distributed: Any) -> Iterator[Any]:
        """A connection to the scheduler. At its end the scheduler forgets the jobs that have not begun."""
        client = self.connect()
        try:
            yield client
        except (OSError, distributed.TimeoutError) as error:
            raise self._gone(str(error)) from error
        finally:
            client.close(timeout=_CONNECT_S)

    def connect(self) -> Any:
        """A client of the scheduler; the caller closes it. Raises :class:`MachineError` if there is no scheduler."""
        distributed = library()
        try:
            return distributed.Client(self.address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError, distributed.TimeoutError) as error:
            raise MachineError(
                f"cannot reach a Dask scheduler at {self.address}: {error}; start one with: dask scheduler --host HOST"
            ) from error

    def _check(self, client: Any) -> None:
        """Raises an error unless every present worker has this pagelab; the work itself must check later workers."""
        mine = _mine()
        found: dict[str, Any] = client.run(pagelab_version, on_error="return")
        if not found:
            self._say(f"no workers yet; start one with: dask worker {self.address} --nthreads 1")
        for worker, theirs in sorted(found.items()):
            if theirs != mine:
                has = f"cannot use pagelab ({theirs})" if isinstance(theirs, BaseException) else f"has pagelab {theirs}"
                raise MachineError(
                    f"worker {worker} {has}, and this is pagelab {mine}; on its host run: "
                    f"pip install 'pagelab[cluster]=={mine}'"
                )

    def _outcome(self, future: Any, distributed: Any) -> Any:
        try:
            return future.result()  # if its worker dies now, this waits until the job is done again
        except (Exception, distributed.CancelledError) as error:
            if future.status != "error":
                raise self._gone(f"a job is {future.status}") from error
            if isinstance(error, distributed.KilledWorker):
                return Lost(
                    f"each of {error.allowed_failures + 1} workers that had it died, the last: "
                    f"{error.last_worker.address}"
                )
            return raised(error)

    def _gone(self, why: str) -> MachineError:
        return MachineError(f"lost the Dask scheduler at {self.address}: {why}")


def _mine() -> str | None:
    return pagelab_version()


def library() -> Any:
    """Imports dask.distributed, which most of pagelab does not need. Raises :class:`MachineError` if it is missing."""
    try:
        return import_module("distributed")
    except ImportError as error:
        raise MachineError(
            f"a cluster needs Dask, which is not installed ({error}); run: pip install 'pagelab[cluster]'"
        ) from error
