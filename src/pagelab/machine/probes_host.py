"""Probes of the host: settings that affect run times, and limits in force."""

from __future__ import annotations

import os
import resource
from typing import Any

from .cgroup import limits
from .describe import parse_list
from .probe import Context, Finding, Question, Status

_CPU = "/sys/devices/system/cpu"
_VM = "/proc/sys/vm"


def _virtualisation(context: Context) -> Finding:
    found = context.virtualisation
    value = {"kind": found.kind, "evidence": found.evidence}
    if found.kind == "none":
        return Finding("ok", "none seen", value)
    if not found.evidence:
        return Finding("unknown", "no source of this can be read", value)
    text = f"{found.kind}: page walks are nested, neighbours may disturb, huge pages reach as far as the host's do"
    return Finding("degraded", text, value, "a machine of one's own, for absolute numbers")


def _container(context: Context) -> Finding:
    found = context.container
    value = {"kind": found.kind, "evidence": found.evidence}
    if found.kind == "none":
        return Finding("ok", "none", value)
    text = f"{found.kind} ({'; '.join(found.evidence)}): settings belong to the host"
    return Finding("degraded", text, value, f"{context.pagelab} doctor --print {context.print_kind}")


def _cpus(context: Context) -> Finding:
    allowed, online = sorted(os.sched_getaffinity(0)), context.machine["cpus"]
    value = {"allowed": allowed, "online": online, "isolated": parse_list(context.tree.get(f"{_CPU}/isolated"))}
    status: Status = "ok" if len(allowed) > 1 else "degraded"
    needs = None if len(allowed) > 1 else "a second CPU: pagelab and the program share this one"
    return Finding(status, f"{len(allowed)} of {len(online)} online", value, needs)


def _memory(context: Context) -> Finding:
    fields = {}
    for line in context.tree.text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemFree", "MemAvailable", "SwapTotal", "SwapFree"):
            fields[name] = int(rest.split()[0]) * 1024
    available = fields.get("MemAvailable", 0) / (1 << 30)
    return Finding("ok", f"{available:.1f} GiB available of {fields['MemTotal'] / (1 << 30):.1f}", fields)


def _free_page_reporting(context: Context) -> Finding:
    if not context.machine["free_page_reporting"]:
        return Finding("ok", "free memory stays with this machine", False)
    text = "free memory goes back to the host after seconds, and touching it again is a fault there"
    return Finding("degraded", text, True, f"{context.pagelab} run --host-backed SIZE; studies do it by themselves")


def _nodes(context: Context) -> Finding:
    nodes = context.machine["nodes"]
    if len(nodes) <= 1:
        return Finding("ok", "one node", nodes)
    balancing = context.tree.number("/proc/sys/kernel/numa_balancing")
    text = f"{len(nodes)} nodes"
    if balancing:
        return Finding(
            "degraded", f"{text}; the kernel moves pages between them", nodes, context.fix("numa_balancing=0")
        )
    return Finding("ok", f"{text}; bind with --node", nodes)


def _governor(context: Context) -> Finding:
    directory = f"{_CPU}/cpufreq"
    found = {context.tree.get(f"{directory}/{name}/scaling_governor") for name in context.tree.names(directory)}
    names = sorted(name for name in found if name)
    if not names:
        return Finding("unknown", "no frequency driver (usual in virtual machines): the host decides", [])
    if names == ["performance"]:
        return Finding("ok", "performance", names)
    return Finding("degraded", ", ".join(names), names, context.fix("governor=performance"))


def _boost(context: Context) -> Finding:
    boost = context.tree.number(f"{_CPU}/cpufreq/boost")
    no_turbo = context.tree.number(f"{_CPU}/intel_pstate/no_turbo")
    if boost is None and no_turbo is None:
        return Finding("unknown", "no driver reports it")
    on = bool(boost) if boost is not None else not no_turbo
    if not on:
        return Finding("ok", "off", value=False)
    how = "boost=0" if boost is not None else ""
    needs = context.fix(how) if how else f"echo 1 | sudo tee {_CPU}/intel_pstate/no_turbo"
    return Finding("degraded", "on: speed depends on heat and on the other CPUs", value=True, needs=needs)


def _smt(context: Context) -> Finding:
    control, active = context.tree.get(f"{_CPU}/smt/control"), context.tree.number(f"{_CPU}/smt/active")
    if control is None:
        return Finding("unknown", "the kernel does not report it")
    if not active:
        return Finding("ok", "none active" + (" (a host may still pair them)" if _is_guest(context) else ""), control)
    text = "on: two CPUs share one core, its caches and its TLBs"
    return Finding(
        "degraded", text, control, f"pin to one thread a core (run --cpu), or: echo off | sudo tee {_CPU}/smt/control"
    )


def _is_guest(context: Context) -> bool:
    return context.virtualisation.kind != "none"


def _swap(context: Context) -> Finding:
    areas = [line.split()[0] for line in context.tree.text("/proc/swaps").splitlines()[1:] if line.strip()]
    zswap = context.tree.get("/sys/module/zswap/parameters/enabled")
    value = {"areas": areas, "zswap": zswap, "swappiness": context.tree.number(f"{_VM}/swappiness")}
    if not areas:
        return Finding("ok", "none", value)
    text = f"{len(areas)} area(s){', zswap' if zswap in ('Y', '1') else ''}: placed pages do not survive swapping"
    return Finding("degraded", text, value, "sudo swapoff -a")


def _aslr(context: Context) -> Finding:
    value = context.tree.number("/proc/sys/kernel/randomize_va_space")
    if value is None:
        return Finding("unknown", "the kernel does not report it")
    note = {0: "off", 1: "on, heap base fixed", 2: "on"}.get(value, str(value))
    return Finding("ok", f"{note}; run --aslr off turns it off for one program", value)


def _max_map_count(context: Context) -> Finding:
    value = context.tree.number(f"{_VM}/max_map_count")
    if value is None:
        return Finding("unknown", "the kernel does not report it")
    if value < 65530:
        return Finding(
            "degraded", f"{value}: mosaics of many tiles will not fit", value, context.fix("max_map_count=262144")
        )
    return Finding("ok", str(value), value)


def _overcommit(context: Context) -> Finding:
    value = context.tree.number(f"{_VM}/overcommit_memory")
    if value == 2:
        text = "2 (strict): large reservations of programs may be refused"
        return Finding("degraded", text, value, context.fix("overcommit_memory=0"))
    return Finding("ok", {0: "heuristic", 1: "always"}.get(value or 0, str(value)), value)


_LIMITS = {
    "memlock": resource.RLIMIT_MEMLOCK,
    "as": resource.RLIMIT_AS,
    "data": resource.RLIMIT_DATA,
    "stack": resource.RLIMIT_STACK,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
}


def _rlimits(context: Context) -> Finding:
    value = {name: [_limit(bound) for bound in resource.getrlimit(number)] for name, number in _LIMITS.items()}
    bounded = [name for name in ("as", "data") if value[name][0] is not None]
    memlock = value["memlock"][0]
    text = f"memlock {'unlimited' if memlock is None else f'{memlock // 1024} KiB'}"
    if bounded:
        text += f"; {' and '.join(bounded)} limited: large programs may be refused memory"
        return Finding("degraded", text, value, "ulimit -v unlimited -d unlimited")
    if memlock is not None and os.geteuid() != 0:
        advice = f"ulimit -l unlimited (limits.conf), or see: {context.pagelab} doctor --print systemd"
        return Finding("degraded", f"{text}: pinning more than that is refused", value, advice)
    return Finding("ok", text, value)


def _limit(bound: int) -> int | None:
    return None if bound == resource.RLIM_INFINITY else bound


def _cgroup(context: Context) -> Finding:
    found = limits(context.tree)
    value: dict[str, Any] = {"version": found.version, "path": found.path, "limits": found.limits}
    if found.version is None:
        return Finding("ok", "none", value)
    if not found.limits:
        return Finding("ok", f"version {found.version}, no limits", value)
    limits_text = ", ".join(f"{name} {limit}" for name, limit in found.limits.items())
    throttles = [name for name in found.limits if name.startswith("cpu.")]
    advice = "take the CPU quota away: throttling shows up as noise" if throttles else None
    return Finding("degraded" if throttles else "ok", f"version {found.version}: {limits_text}", value, advice)


def _nmi_watchdog(context: Context) -> Finding:
    value = context.tree.number("/proc/sys/kernel/nmi_watchdog")
    if value:
        return Finding("degraded", "on: takes one counter", value, context.fix("nmi_watchdog=0"))
    return Finding("ok", "off" if value == 0 else "none", value)


QUESTIONS = (
    Question("virtualisation", "host", "page walks cost more, frame numbers may mean nothing", _virtualisation),
    Question("container", "host", "who can add missing features", _container),
    Question("cpus", "host", "the program gets a CPU, pagelab another", _cpus),
    Question("memory", "host", "huge pages need free memory in one piece", _memory),
    Question(
        "free-page-reporting", "host", "first touches take many times as long, now and then", _free_page_reporting
    ),
    Question("nodes", "host", "memory of another node is slower", _nodes),
    Question("governor", "host", "a changing clock changes run times", _governor),
    Question("boost", "host", "a changing clock changes run times", _boost),
    Question("smt", "host", "a sibling shares caches and TLBs", _smt),
    Question("swap", "host", "swapped pages come back elsewhere", _swap),
    Question("aslr", "host", "addresses differ from run to run", _aslr),
    Question("max-map-count", "host", "each tile may be a mapping of its own", _max_map_count),
    Question("overcommit", "host", "programs reserve more than they use", _overcommit),
    Question("rlimits", "host", "limits on this process and its children", _rlimits),
    Question("cgroup", "host", "limits on memory, CPU time and CPUs", _cgroup),
    Question("nmi-watchdog", "host", "occupies a hardware counter", _nmi_watchdog),
)
