"""Runs a command under a policy through ``pagelab-launch`` and reads its record."""

from __future__ import annotations

import json
import os
import shlex
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab import machine, paths
from pagelab.record import Process, Record, Region, WarningKind


@dataclass
class Run:
    """The result of a run; ``record`` is None if the launcher refused it."""

    request: dict[str, Any]
    launcher_exit: int
    launcher_stderr: str
    stdout: str
    stderr: str
    record: Record | None

    def story(self) -> str:
        """Everything needed to understand and repeat the run (STYLE 17)."""
        warnings = (
            "\n".join(f"  {w.kind}: {w.message}" for w in self.record.warnings) if self.record else "  (no record)"
        )
        outcome = self.record.outcome if self.record else None
        request = {name: value for name, value in self.request.items() if name not in ("machine", "policy_toml")}
        return (
            f"command: {shlex.join(self.request['argv'])}\npolicy:\n{self.request['policy_toml']}\n"
            f"request: {json.dumps(request)}\nlauncher exit: {self.launcher_exit}\noutcome: {outcome}\n"
            f"--- stdout\n{_both_ends(self.stdout)}\n--- stderr\n{_both_ends(self.stderr)}\n"
            f"--- launcher stderr\n{self.launcher_stderr[-3000:]}\n--- warnings\n{warnings}"
        )

    @property
    def the_record(self) -> Record:
        assert self.record is not None, self.story()
        return self.record

    @property
    def root(self) -> Process:
        """The process that was started."""
        processes = self.the_record.processes
        own = {process.pid for process in processes}
        first = [process for process in processes if process.ppid not in own]
        assert first, self.story()
        return first[0]

    def regions(self) -> list[Region]:
        return [region for process in self.the_record.processes for region in process.placement]

    def kinds(self) -> set[WarningKind]:
        return {warning.kind for warning in self.the_record.warnings}

    def succeeded(self) -> Run:
        assert self.the_record.outcome.status == "ok", self.story()
        assert self.launcher_exit == 0, self.story()
        return self


class Runner:
    """Callable: ``run_under(policy_toml, argv, **request fields) -> Run``. ``prefix``: what starts the launcher."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0
        self.library = paths.library()
        self.launcher = paths.launcher()
        self.prefix: tuple[str, ...] = ()

    def __call__(self, policy_toml: str, argv: list[str], **fields: Any) -> Run:
        self.count += 1
        place = self.directory / f"run-{self.count}"
        place.mkdir()
        if "user" in fields:
            open_to_all(place)
        request = {
            "schema": "pagelab.request/1",
            "argv": argv,
            "policy_toml": policy_toml,
            "machine": machine.describe(),
            "library": str(self.library),
            "stdin": "null",
            "stdout": str(place / "stdout"),
            "stderr": str(place / "stderr"),
            "timeout_s": 120.0,
            "record": str(place / "record.json"),
            **fields,
        }
        done = subprocess.run(
            [*self.prefix, str(self.launcher)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        record_path = Path(request["record"])
        record = Record.model_validate_json(record_path.read_text()) if record_path.exists() else None
        return Run(
            request,
            done.returncode,
            done.stderr + done.stdout,
            _text(request["stdout"]),
            _text(request["stderr"]),
            record,
        )


def start_launcher(tmp_path: Path, argv: list[str], **fields: object) -> subprocess.Popen[bytes]:
    """Starts a run without waiting for it; what the launcher says is in ``err``, the record in ``r.json``."""
    request = tmp_path / "request.json"
    document = {"schema": "pagelab.request/1", "argv": argv, "preload": "never", "record": str(tmp_path / "r.json")}
    request.write_text(json.dumps(document | fields))
    with (tmp_path / "err").open("wb") as err:
        return subprocess.Popen([str(paths.launcher()), str(request)], stdout=subprocess.DEVNULL, stderr=err)


def _both_ends(text: str) -> str:
    return text if len(text) <= 6000 else f"{text[:3000]}\n[…]\n{text[-3000:]}"


def capable(program: Path, *capabilities: int) -> None:
    """Gives a program these capabilities, permitted and effective (VFS_CAP_REVISION_2)."""
    permitted = sum(1 << number for number in capabilities).to_bytes(8, "little")
    value = struct.pack("<I4s4x4s4x", 0x02000001, permitted[:4], permitted[4:])
    os.setxattr(program, "security.capability", value)


def open_to_all(path: Path) -> None:
    """Writable for everyone, and its parents passable: pytest's directories are for their owner only."""
    path.chmod(0o777)
    for parent in path.parents:
        if parent.owner() == path.owner() and parent.stat().st_mode & 0o055 != 0o055:
            parent.chmod(0o755)


def _text(stream: str) -> str:
    path = Path(stream)
    return path.read_text(errors="replace") if path.is_file() else ""
