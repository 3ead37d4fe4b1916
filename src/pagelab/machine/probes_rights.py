"""Probes of this process's rights, and of performance counters."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from typing import Any

from .probe import Context, Finding, Question
from .sysfs import Tree

CAPABILITIES = """
CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
""".split()  # noqa: SIM905 (one name a line would be forty)
"""Names of capabilities by bit number (capabilities(7))."""

WANTED = {
    "CAP_SYS_ADMIN": "frame numbers",
    "CAP_PERFMON": "counters of the kernel's side",
    "CAP_SYS_PTRACE": "userfaultfd for faults inside system calls",
    "CAP_IPC_LOCK": "pinning placed pages",
    "CAP_SYS_NICE": "--node in containers",
}
_COUNTERS_TIMEOUT_S = 20.0


def decode(mask: int) -> list[str]:
    """Capability names of a mask; bits beyond this table as ``CAP_<bit>``."""
    bits = [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    return [f"CAP_{CAPABILITIES[bit] if bit < len(CAPABILITIES) else bit}" for bit in bits]


def capability_sets(tree: Tree) -> dict[str, int]:
    """The masks CapEff, CapBnd … of this process."""
    lines = tree.text("/proc/self/status").splitlines()
    return {line[:6]: int(line.split()[1], 16) for line in lines if line.startswith("Cap")}


def _user(context: Context) -> Finding:
    uid, real = os.geteuid(), os.environ.get("SUDO_UID")
    value = {"uid": uid, "sudo_uid": int(real) if real and real.isdigit() else None}
    if uid == 0 and not context.is_real_root:
        text = "root of a user namespace, not of the machine"
        return Finding("degraded", text, value, f"on the host: sudo {context.pagelab} …")
    if uid == 0:
        return Finding("ok", "root" + (f", for uid {real}" if real else ""), value)
    return Finding("degraded", f"uid {uid}, not root", value, f"sudo {context.pagelab} …")


def _capabilities(context: Context) -> Finding:
    sets = capability_sets(context.tree)
    effective, bounding = decode(sets["CapEff"]), decode(sets["CapBnd"])
    missing = {name: what for name, what in WANTED.items() if name not in effective}
    value = {"effective": effective, "bounding": bounding, "missing": list(missing)}
    if not context.own_capabilities:
        text = f"{len(effective)} effective, but of a user namespace: they count only inside it"
        return Finding("degraded", text, value, "root of the machine itself (rootful container, no user namespace)")
    if not missing:
        return Finding("ok", f"{len(effective)} of {len(CAPABILITIES)} effective, all that are wanted", value)
    lacking = ", ".join(f"{name} ({what})" for name, what in missing.items())
    never = [name for name in missing if name not in bounding]
    note = f"; not even root may have {', '.join(never)} here" if never else ""
    return Finding("degraded", f"missing: {lacking}{note}", value, context.as_root(" ".join(missing)))


def _paranoid(context: Context) -> Finding:
    from . import syscalls

    level = context.tree.number("/proc/sys/kernel/perf_event_paranoid")
    shown = "perf_event_paranoid unknown" if level is None else f"perf_event_paranoid {level}"
    needs = context.fix("perf_event_paranoid=1")
    try:
        syscalls.count_task_clock(with_kernel=True)
        return Finding("ok", f"{shown}; tried: user and kernel side", level)
    except OSError:
        pass
    try:
        syscalls.count_task_clock(with_kernel=False)
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "?")
        if error.errno == errno.ENOSYS:
            return Finding("unsupported", f"tried: {error.strerror} ({name})", level, "CONFIG_PERF_EVENTS=y")
        return Finding("denied", f"{shown}; tried: {error.strerror} ({name})", level, needs)
    return Finding("degraded", f"{shown}; tried: user side only (page walks in the kernel are missed)", level, needs)


def _lockdown(context: Context) -> Finding:
    mode = context.tree.get("/sys/kernel/security/lockdown")
    if mode is None:
        return Finding("ok", "not in force (or not reported)", None)
    if mode == "none":
        return Finding("ok", mode, mode)
    return Finding("degraded", f"{mode}: debugfs is closed, also to root", mode, "boot without lockdown=")


def _unprivileged_userfaultfd(context: Context) -> Finding:
    value = context.tree.number("/proc/sys/vm/unprivileged_userfaultfd")
    if value is None:
        return Finding("unsupported", "no such setting")
    if value or context.is_real_root:
        return Finding("ok", str(value) if value else "0, but root is exempt", value)
    return Finding("degraded", "0: user-mode faults only", value, context.fix("unprivileged_userfaultfd=1"))


def _ptrace_scope(context: Context) -> Finding:
    value = context.tree.number("/proc/sys/kernel/yama/ptrace_scope")
    if value is None:
        return Finding("ok", "no Yama: own processes can be looked at")
    if value == 0 or (context.is_real_root and value < 3):
        return Finding("ok", str(value), value)
    text = f"{value}: pagelab map sees only programs it started"
    return Finding("degraded", text, value, "sudo sysctl kernel.yama.ptrace_scope=0")


def _counters(context: Context) -> Finding:
    """Runs the launcher's self-test, which opens copies of one event and finds counters that do not count."""
    from pagelab.paths import MissingPartError, launcher

    try:
        command = [str(launcher()), "--counters"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COUNTERS_TIMEOUT_S, check=False)
        report: Any = json.loads(done.stdout)
    except MissingPartError as error:
        return Finding("unknown", str(error))
    except (OSError, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        return Finding("unknown", f"the launcher's self-test gave no answer: {type(error).__name__}")
    return counters_finding(context, report)


def counters_finding(context: Context, report: Any) -> Finding:
    """The finding from the launcher's ``microarchitecture``, ``hardware`` (advertised, usable, problem), ``events``."""
    try:
        hardware, known = report["hardware"], report["microarchitecture"]
        advertised, usable, problem = hardware["advertised"], hardware["usable"], hardware["problem"]
    except (KeyError, TypeError):
        return Finding("unknown", "the launcher's self-test answered in a form this version does not read", report)
    if problem:
        return _no_counter(context, problem, report)
    if not usable:
        return Finding("unsupported", f"{advertised} can be opened, none counts", report, "a machine with counters")
    text = f"{usable} count" if usable == advertised else f"{usable} of {advertised} count; the others are not used"
    if known is None:
        return Finding("degraded", f"{text}; no events known for this processor", report, "raw codes: run -e rXXXX")
    verified = [row["role"] for row in report["events"] if row["verified"]]
    return Finding("ok", f"{text}; {known}: {len(report['events'])} events, {len(verified)} verified", report)


def _no_counter(context: Context, problem: str, report: Any) -> Finding:
    """The finding if no counter opens; the errno distinguishes refusal from absence."""
    if any(name in problem for name in ("EACCES", "EPERM")):
        return Finding("denied", f"none opens: {problem}", report, context.fix("perf_event_paranoid=1"))
    return Finding("unsupported", f"none opens: {problem}", report, "a machine, or a virtual machine, with counters")


QUESTIONS = (
    Question("user", "rights", "root may see frames, flush caches and change settings", _user),
    Question("capabilities", "rights", "the parts of root's rights, one by one", _capabilities),
    Question("perf-paranoid", "rights", "who may count hardware events", _paranoid),
    Question("counters", "rights", "TLB misses, walks and cycles; some advertised counters never count", _counters),
    Question("lockdown", "rights", "closes debugfs and raw devices", _lockdown),
    Question("unprivileged-userfaultfd", "rights", "frame policies without root", _unprivileged_userfaultfd),
    Question("ptrace-scope", "rights", "pagelab map of a running program", _ptrace_scope),
)
