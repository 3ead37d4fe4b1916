"""Checks before the first run whether this machine can do a condition."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from pagelab.benchmarks.catalogue import advice

from .. import paths, policy
from ..contract.request import Request
from ..errors import BadInputError, MachineError
from ..runner import document
from .plan import Condition

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def cannot(condition: Condition, machine: dict[str, Any]) -> str | None:
    """The reason why this machine cannot do the condition, with what is missing; None where it can.

    Raises BadInputError for a policy that no machine can do, with the policy's name.
    """
    return (
        _needs(condition)
        or _policy(condition, machine)
        or _cpus(condition)
        or _scheduler(condition)
        or _flush(condition)
    )


def _needs(condition: Condition) -> str | None:
    """The programs and caches that this machine lacks, with the Debian packages of the programs; None where none."""
    caches = [need.removeprefix("cache ") for need in condition.needs if need.startswith("cache ")]
    if caches:
        return f"this machine has no cache {caches[0]}, or does not report its size"
    path = condition.request.env.set.get("PATH", os.environ.get("PATH"))
    absent = [program for program in condition.needs if shutil.which(program, path=path) is None]
    return advice(absent) if absent else None


def _policy(condition: Condition, machine: dict[str, Any]) -> str | None:
    path = condition.request.policy_path or "policy"
    try:
        parsed = policy.parse(condition.request.policy_toml, path)
    except policy.PolicyError as error:
        raise BadInputError(f"{_place(condition, error)}{_reason(error)}") from None
    if condition.request.preload == "never" and parsed.needs_library:
        forbidden = 'preload = "never" forbids the library, which the policy needs; leave out one of the two'
        raise BadInputError(f'policy "{condition.policy_name}" cannot be applied: {forbidden}')
    try:
        policy.check_runnable(parsed, machine)
    except policy.PolicyError as error:
        return _reason(error)
    if not parsed.governs_frames:
        return None
    # The launcher alone knows whether the library or the kernel would place the frames. All else is the same for all
    # conditions of a policy, which is tried once.
    asked = Request(
        argv=["true"],
        policy_toml=condition.request.policy_toml,
        policy_path=condition.request.policy_path,
        preload=condition.request.preload,
    )
    return _frames(document(asked, machine))


@cache
def _frames(request: str) -> str | None:
    return _refused("--frames", "-", text=request)


@cache
def _fifo() -> str | None:
    return _refused("--fifo")


def _scheduler(condition: Condition) -> str | None:
    return _fifo() if condition.request.scheduler == "fifo" else None


def _refused(*what: str, text: str = "") -> str | None:
    """The launcher's reason for refusing ``what`` here, as it would in each run; None where it would not."""
    done = subprocess.run([str(paths.launcher()), *what], input=text, capture_output=True, text=True, check=False)
    is_refused = done.returncode in (BadInputError.exit_code, MachineError.exit_code)
    return done.stderr.strip().removeprefix("pagelab-launch: ") if is_refused else None


def _place(condition: Condition, error: policy.PolicyError) -> str:
    """Where the policy's error is, besides study.toml. An inline policy was written out again, so its line numbers are
    not study.toml's.
    """
    named = f'policy "{condition.policy_name}": '
    if condition.request.policy_toml.startswith("name = "):
        return named
    return f"{named}{error.file}: " if error.line is None else f"{named}{error.file}:{error.line}: "


def _reason(error: policy.PolicyError) -> str:
    text = error.message
    if error.allowed:
        text += f"; allowed: {', '.join(error.allowed)}"
    return f"{text}; {error.next}" if error.next else text


def _cpus(condition: Condition) -> str | None:
    allowed = os.sched_getaffinity(0)
    absent = sorted(set(condition.request.cpus) - allowed)
    if not absent:
        return None
    shown = ", ".join(map(str, sorted(allowed)))
    return f"cpus = {absent} cannot be used by this process; allowed: {shown} (online, and in its cpuset and affinity)"


def _flush(condition: Condition) -> str | None:
    """Why caches cannot be flushed here; None where they can. A warm run cannot stand in for a cold one: it answers
    another question.
    """
    if condition.request.flush.mode != "all" or os.access(_DROP_CACHES, os.W_OK, effective_ids=True):
        return None
    return 'flush = "all" needs root; flush by file with: flush = { mode = "files", files = ["…"] }'
