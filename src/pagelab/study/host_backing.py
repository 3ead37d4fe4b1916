"""The free memory that is touched before a run, so that the host of a virtual machine backs it.

Free page reporting gives free memory back to the host some seconds after it became free, and its next touch costs a
fault in the host. Whether an execution pays for that depends on how long the machine was idle before, and on the size
of the pages: only large free blocks are given back. So where nothing else is said, as much is touched before each
execution as the workload has needed so far, the same for all that it is compared with.
"""

from __future__ import annotations

import tomllib
from typing import Any

from .plan import Condition, Plan
from .store import RunResult, Store


class HostBacking:
    """What is touched before the next run of each workload."""

    def __init__(self, plan: Plan, store: Store, machine: dict[str, Any]) -> None:
        self._needed: dict[str, int] = {}
        self._on = bool(machine.get("free_page_reporting")) and not plan.co_run and not _places_frames(plan)
        peaks = store.rows(
            "SELECT condition, json_extract(record_json, '$.peak_rss_bytes') FROM run WHERE status = 'ok'"
        )
        workloads = {condition.index: condition.workload for condition in plan.conditions}
        for condition, peak in peaks if self._on else ():
            self._needs(workloads[condition], peak or 0)

    def before(self, condition: Condition) -> Condition:
        """The condition with what is touched before its next run; as it is where it says so itself."""
        if not self._on or condition.request.host_backed_bytes is not None:
            return condition
        return condition.asking(host_backed_bytes=self._needed.get(condition.workload))

    def after(self, condition: Condition, result: RunResult) -> None:
        """Takes in what a run has needed."""
        if result.record is not None and result.status == "ok":
            self._needs(condition.workload, result.record.peak_rss_bytes)

    def _needs(self, workload: str, peak: int) -> None:
        self._needed[workload] = max(self._needed.get(workload, 0), peak)


def _places_frames(plan: Plan) -> bool:
    """Whether frames are compared: what was freed last is what the kernel hands out first."""
    policies = {condition.request.policy_toml for condition in plan.active()}
    return any(tomllib.loads(text).get("frames", "kernel") != "kernel" for text in policies)
