"""Decides how much free memory is touched before a run, so that the host of a virtual machine backs it.

Free page reporting gives memory back to the host some seconds after it became free, and the next touch of it costs a
fault in the host. Whether an execution pays for that depends on how long the machine was idle before, and on the size
of the pages: only large free blocks are given back. So by default somewhat more memory is touched before an execution
than the workload's largest process has needed so far; the amount is the same under all policies.

Touching takes longer than a short program runs. So a short execution that begins soon after another one, without huge
pages, uses what that one has just freed, and nothing is touched. Huge pages are always touched, because they vary most.
"""

from __future__ import annotations

import math
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..policy import Mosaic, Pages, PolicyError, parse
from .plan import Condition, Plan
from .store import NAME, RunResult, Store

_MORE_OF = 4
_MORE_BYTES = 64 << 20
"""Touched in addition to the need and a quarter of it, since other programs take some of the touched memory."""
_KEPT_S = 1.0
"""What was freed so recently is still there: Linux reports memory two seconds after the first block became free."""
_SHORT_S = 0.5
"""Executions that are so short begin several times before memory is reported once."""
HUGE = 2 << 20
"""Bytes of the smallest page of which the host takes free memory back."""


class HostBacking:
    """The amount of memory to touch before the next run of each workload."""

    def __init__(self, plan: Plan, store: Store, machine: dict[str, Any], earlier: int = 0) -> None:
        """``earlier``: the bytes that the programs needed in runs before the study; 0: there were none."""
        largest = max((largest_page(condition.request.policy_toml) for condition in plan.active()), default=0)
        self._has_huge = largest >= HUGE or (machine.get("thp") or {}).get("enabled") == "always"
        self._freed, self._freed_at = 0, -math.inf
        self._needed: dict[str, int] = {}
        self._earlier = earlier
        self._on = bool(machine.get("free_page_reporting")) and not plan.co_run and not _places_frames(plan)
        workloads = {condition.index: condition.workload for condition in plan.conditions}
        for condition, peak in _peaks(store) if self._on else ():
            self._needs(workloads[condition], peak)

    def before(self, condition: Condition) -> Condition:
        """The condition with the bytes to touch before its next run; unchanged where it sets them itself."""
        if not self._on or condition.request.host_backed_bytes is not None:
            return condition
        needed = self._needed.get(condition.workload, self._earlier)
        if not self._has_huge and not condition.setup and self._still_has(needed):
            return condition
        return condition.asking(host_backed_bytes=with_room(needed) if needed else None)

    def _still_has(self, needed: int) -> bool:
        """Whether the last run was short and has just freed most of what is needed."""
        return time.monotonic() - self._freed_at < _KEPT_S and self._freed >= needed - needed // _MORE_OF

    def after(self, condition: Condition, result: RunResult) -> None:
        """Takes in the memory that a run has needed."""
        if result.record is not None and result.status == "ok":
            self._needs(condition.workload, result.record.peak_rss_bytes)
            is_short = result.record.time.wall_ns < _SHORT_S * 1e9
            self._freed = result.record.peak_rss_bytes if is_short and not condition.teardown else 0
            self._freed_at = time.monotonic()

    def _needs(self, workload: str, peak: int) -> None:
        self._needed[workload] = max(self._needed.get(workload, 0), peak)


def with_room(needed: int) -> int:
    """The bytes to touch for a program that needs ``needed`` bytes."""
    return needed + needed // _MORE_OF + _MORE_BYTES


def needed_in(trial: Path) -> int:
    """The most bytes that a run needed in the studies in a directory or directly below it; 0 without any."""
    most = 0
    for file in [trial / NAME, *trial.glob(f"*/{NAME}")]:
        if file.exists():
            with Store.open(file.parent, write=False) as store:
                most = max([most, *(peak for _, peak in _peaks(store))])
    return most


def _peaks(store: Store) -> list[tuple[int, int]]:
    """Condition and peak resident bytes of each run that ended well."""
    rows = store.rows("SELECT condition, json_extract(record_json, '$.peak_rss_bytes') FROM run WHERE status = 'ok'")
    return [(condition, peak or 0) for condition, peak in rows]


def _places_frames(plan: Plan) -> bool:
    """Whether the plan compares frames; touching memory would change which the kernel hands out (last freed, first)."""
    policies = {condition.request.policy_toml for condition in plan.active()}
    return any(tomllib.loads(text).get("frames", "kernel") != "kernel" for text in policies)


def largest_page(policy_toml: str) -> int:
    """The largest page size that a policy names, in bytes; 0: none, or the policy cannot be read."""
    with suppress(PolicyError):
        policy = parse(policy_toml, "policy")
        return max(map(_largest, (policy.pages, *(rule.pages for rule in policy.rules))))
    return 0


def _largest(pages: Pages) -> int:
    if isinstance(pages, Mosaic):
        return max([pages.otherwise_bytes or 0, *(one.page_bytes for one in pages.intervals)])
    return pages or 0
