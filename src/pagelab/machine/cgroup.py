"""Reads the control group limits on this process (version 1 and 2): the lowest of all ancestors."""

from __future__ import annotations

from dataclasses import dataclass, field

from .sysfs import Tree

_UNLIMITED_V1_BYTES = 1 << 62
"""Version 1 writes "no limit" as the largest multiple of the page size below 2^63."""


@dataclass(frozen=True)
class Limits:
    """``limits``: file name → value as the kernel writes it; "no limit" is left out."""

    version: int | None
    path: str | None
    limits: dict[str, str] = field(default_factory=dict)


def limits(tree: Tree) -> Limits:
    """The limits of the groups in ``/proc/self/cgroup``, found by ``/proc/self/mounts``."""
    groups = _groups(tree)
    mounts = _mounts(tree)
    if not groups or not mounts:
        return Limits(None, None)
    found: dict[str, str] = {}
    version, path = 1, ""
    for controllers, group in groups.items():
        if controllers == "" and "cgroup2" in mounts:
            at_v2 = _v2(tree, mounts["cgroup2"], group)
            if at_v2 or len(groups) == 1:
                version, path = 2, group
            found.update(at_v2)
        for controller in controllers.split(","):
            if controller in mounts:
                at_v1 = _v1(tree, mounts[controller], controller, group)
                path = group if at_v1 else path
                found.update(at_v1)
    return Limits(version, path or "/", found)


def _groups(tree: Tree) -> dict[str, str]:
    """Controllers (comma-separated; empty for version 2) → group path."""
    groups = {}
    for line in (tree.text("/proc/self/cgroup") if tree.exists("/proc/self/cgroup") else "").splitlines():
        _number, controllers, group = line.split(":", 2)
        groups[controllers] = group
    return groups


def _mounts(tree: Tree) -> dict[str, str]:
    """``cgroup2`` or a controller's name → mount point."""
    mounts = {}
    for line in (tree.text("/proc/self/mounts") if tree.exists("/proc/self/mounts") else "").splitlines():
        _device, point, kind, options = line.split()[:4]
        if kind == "cgroup2":
            mounts["cgroup2"] = point
        elif kind == "cgroup":
            mounts.update(dict.fromkeys(options.split(","), point))
    return mounts


def _ancestors(point: str, group: str) -> list[str]:
    """Directories from the group up to the mount point. In a container the path may not exist below the mount."""
    parts = [part for part in group.split("/") if part and part != ".."]
    return [f"{point}/{'/'.join(parts[:count])}".rstrip("/") for count in range(len(parts), -1, -1)]


def _v2(tree: Tree, point: str, group: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for directory in _ancestors(point, group):
        for name in ("memory.max", "memory.high", "memory.swap.max", *_hugetlb_files(tree, directory)):
            value = tree.get(f"{directory}/{name}")
            if value and value.isdigit() and int(value) < int(found.get(name, 1 << 63)):
                found[name] = value
        quota = tree.get(f"{directory}/cpu.max")
        if quota and not quota.startswith("max"):
            found["cpu.max"] = min(quota, found.get("cpu.max", quota), key=_share)
    own = _ancestors(point, group)[0]
    cpus = tree.get(f"{own}/cpuset.cpus.effective")
    if cpus and cpus != tree.get("/sys/devices/system/cpu/online"):
        found["cpuset.cpus.effective"] = cpus
    return found


def _hugetlb_files(tree: Tree, directory: str) -> list[str]:
    return [name for name in tree.names(directory) if name.startswith("hugetlb.") and name.endswith("B.max")]


def _share(quota: str) -> float:
    """Number of CPUs that the text ``quota period`` stands for."""
    used, _, period = quota.partition(" ")
    return int(used) / int(period or 100_000)


def _v1(tree: Tree, point: str, controller: str, group: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for directory in _ancestors(point, group):
        if controller == "memory":
            value = tree.number(f"{directory}/memory.limit_in_bytes")
            name = "memory.limit_in_bytes"
            if value is not None and value < min(_UNLIMITED_V1_BYTES, int(found.get(name, 1 << 63))):
                found[name] = str(value)
        if controller == "cpu":
            quota = tree.number(f"{directory}/cpu.cfs_quota_us")
            period = tree.number(f"{directory}/cpu.cfs_period_us")
            if quota is not None and quota > 0:
                text = f"{quota} {period}"
                found["cpu.cfs_quota_us"] = min(text, found.get("cpu.cfs_quota_us", text), key=_share)
    if controller == "cpuset":
        cpus = tree.get(f"{_ancestors(point, group)[0]}/cpuset.effective_cpus") or tree.get(
            f"{_ancestors(point, group)[0]}/cpuset.cpus"
        )
        if cpus and cpus != tree.get("/sys/devices/system/cpu/online"):
            found["cpuset.cpus"] = cpus
    return found
