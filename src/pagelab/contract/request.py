# Generated from crates/contract and crates/abi by tools.contract; change the Rust types, then: make contract
# mypy: disable-error-code="assignment"

from __future__ import annotations

from pagelab.contract.base import Model
from pydantic import ConfigDict, Field
from typing import Annotated, Any, Literal


class EnvChanges(Model):
    """
    Changes to the environment, in this order: clear, unset, set.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    clear: bool = False
    """
    Start from an empty environment.
    """
    set: dict[str, str] = {}
    """
    Variables to set.
    """
    unset: list[str] = []
    """
    Variables to remove.
    """


class Measurements(Model):
    """
    How the program reports measurements.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    fd: int | None = None
    """
    Descriptor the program finds in `PAGELAB_MEASURE_FD`; null: none.
    """
    regex: str | None = None
    """
    Regular expression over each line of standard output with the named groups `value`, and optionally `name`, `unit`.
    """


class Flush(Model):
    """
    What to drop from the page cache before the run.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    mode: Literal["none", "files", "all"] = "none"
    """
    How.
    """
    files: list[str] = []
    """
    With mode `files`: which.
    """


class Request(Model):
    """
    A request, as the launcher reads it.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
    )
    schema_: Annotated[Literal["pagelab.request/1"], Field(alias="schema")] = (
        "pagelab.request/1"
    )
    """
    The name of this schema.
    """
    argv: list[str]
    """
    The program and its arguments; the first is looked up in PATH as a shell does.
    """
    cwd: str | None = None
    """
    Working directory; null: the launcher's.
    """
    env: Annotated[EnvChanges, Field(validate_default=True)] = {
        "clear": False,
        "set": {},
        "unset": [],
    }
    """
    Changes to the environment.
    """
    policy_toml: str = ""
    """
    The policy's text.
    """
    policy_path: str | None = None
    """
    Where the text came from, for messages and for CSV paths relative to it.
    """
    machine: Any = None
    """
    What this machine offers, as `pagelab.machine.describe()` gives it.
    """
    preload: Literal["auto", "always", "never"] = "auto"
    """
    Whether the library is loaded into the program.
    """
    library: str | None = None
    """
    Path of `libpagelab.so`; needed unless `preload` is `never`.
    """
    cpus: list[int] = []
    """
    CPUs the program may run on; empty: all it may use now.
    """
    aslr: bool | None = None
    """
    Address-space randomisation; null: as it is.
    """
    scheduler: Literal["fifo"] | None = None
    """
    Scheduling policy; null: as it is.
    """
    node: int | None = None
    """
    Memory node to bind to; null: no binding.
    """
    user: str | None = None
    """
    User to run as; null: the user who asked.
    """
    timeout_s: float | None = None
    """
    Seconds after which the whole tree is ended; null: never.
    """
    host_backed_bytes: int | None = None
    """
    Bytes of free memory that are touched and given back before the program starts, so that the host of a virtual
    machine backs them; null: none, or in a study as many as the program has needed so far, where the machine returns
    free memory to its host.
    """
    stdin: str = "null"
    """
    `inherit`, `null`, or a path.
    """
    stdout: str = "inherit"
    """
    `inherit`, `null`, or a path (created or truncated).
    """
    stderr: str = "inherit"
    """
    Like `stdout`.
    """
    events: list[str] = []
    """
    Event sets, roles, raw codes, names.
    """
    per_process_counters: bool = True
    """
    Whether counters are broken down by process.
    """
    measurements: Annotated[Measurements, Field(validate_default=True)] = {
        "fd": None,
        "regex": None,
    }
    """
    Measurements of operations inside the execution.
    """
    control_readahead: bool = True
    """
    Whether readahead is switched off (system-wide, restored) for a policy with `fetch = "demand"`.
    """
    flush: Annotated[Flush, Field(validate_default=True)] = {
        "mode": "none",
        "files": [],
    }
    """
    What to drop from the page cache before the run.
    """
    announce_fd: int | None = None
    """
    Stream socket on which the caller is told of the program's process, and lets it go; null: nobody waits.
    """
    phase_fd: int | None = None
    """
    Stream socket on which the caller is told of each phase as it begins, and lets it go on; null: nobody waits.
    """
    run_dir_root: str | None = None
    """
    Where run directories are made; null: `/dev/shm`, or `/tmp`.
    """
    tell_limits: bool = False
    """
    Whether limits that leave the program too little room are told on standard error before it starts; they are in the
    record in any case.
    """
    record: str | None = None
    """
    Where the record goes; null: standard output.
    """
