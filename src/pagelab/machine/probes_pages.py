"""Probes of page sizes, huge-page pools, caches and colours."""

from __future__ import annotations

from typing import Any

from .probe import Context, Finding, Question, Status
from .settings import size_name

NO_SYSFS = "cannot be read: no /sys here"
MOUNT_SYSFS = "mount -t sysfs sysfs /sys"


def _page_sizes(context: Context) -> Finding:
    sizes = context.machine["page_sizes_bytes"]
    return Finding("ok", ", ".join(size_name(size) for size in sizes), sizes)


def _thp(context: Context) -> Finding:
    machine = context.machine
    mode = machine["thp"]["enabled"]
    if not context.sees_sysfs:
        return Finding("unknown", NO_SYSFS, needs=MOUNT_SYSFS)
    if machine["thp_bytes"] is None or mode is None:
        return Finding(
            "unsupported", "this kernel has no transparent huge pages", needs="CONFIG_TRANSPARENT_HUGEPAGE=y"
        )
    text = f"{mode}; {size_name(machine['thp_bytes'])}; at a fault: {machine['thp']['defrag']}"
    size = size_name(machine["thp_bytes"])
    switch = machine["thp"]["switch"]
    value = {**machine["thp"], "bytes": machine["thp_bytes"]}
    if switch == "never" or (mode == "never" and switch in (None, "inherit")):
        which = "thp=madvise" if switch != "never" else f"thp-{size}=inherit"
        return Finding("degraded", f"{text}; faults give none, MADV_COLLAPSE may", value, context.fix(which))
    return Finding("ok", text, value)


def _mthp(context: Context) -> Finding:
    sizes = context.machine["mthp"]
    if not context.sees_sysfs:
        return Finding("unknown", NO_SYSFS, [], MOUNT_SYSFS)
    if not sizes:
        return Finding("unsupported", "no sizes between base and huge pages", [], "Linux 6.8 or newer")
    on = [size_name(size["bytes"]) for size in sizes if size["enabled"] != "never"]
    span = f"{size_name(sizes[0]['bytes'])} … {size_name(sizes[-1]['bytes'])}"
    text = f"{span}; switched on: {', '.join(on) or 'none'}"
    if context.machine["mthp_switchable"]:
        return Finding("ok", f"{text}; switchable", sizes)
    if on:
        return Finding("degraded", f"{text}; not switchable by this user", sizes, context.fix("thp-64K=madvise"))
    return Finding("denied", text, sizes, context.fix("thp-64K=madvise"))


def _pools(context: Context) -> list[tuple[str, Finding]]:
    pools = context.machine["hugetlb"]
    if not context.sees_sysfs:
        return [("", Finding("unknown", NO_SYSFS, needs=MOUNT_SYSFS))]
    if not pools:
        return [("", Finding("unsupported", "this kernel has no hugetlb pools", needs="CONFIG_HUGETLBFS=y"))]
    return [(f"-{size_name(pool['page_bytes'])}", _pool(context, pool)) for pool in pools]


def _pool(context: Context, pool: dict[str, Any]) -> Finding:
    size = size_name(pool["page_bytes"])
    if pool["total_pages"] is None:
        return Finding("unknown", "cannot read the pool", pool)
    text = f"{pool['total_pages']} pages, {pool['pages']} available"
    if pool["pages"]:
        return Finding("ok", text, pool)
    more = 2 if pool["page_bytes"] >= 1 << 30 else 512
    return Finding("absent", text, pool, context.fix(f"hugepages-{size}={pool['total_pages'] + more}"))


def _caches(context: Context) -> list[tuple[str, Finding]]:
    caches = context.machine["caches"]
    if not caches:
        return [("", Finding("unknown", "the kernel does not report the caches' geometry"))]
    return [(f"-L{entry['level']}{_letter(entry['kind'])}", _cache(entry)) for entry in caches]


def _letter(kind: str) -> str:
    return {"data": "d", "instruction": "i"}.get(kind, "")


def _cache(entry: dict[str, Any]) -> Finding:
    size = size_name(entry["size_bytes"])
    if entry["ways"] is None:
        return Finding("degraded", f"{size}, ways and sets not reported: colours not known", entry)
    sharing = max(len(cpus) for cpus in entry["shared_cpus"])
    text = (
        f"{size}, {entry['ways']} ways, {entry['line_bytes']} B lines, {entry['sets']} sets: "
        f"{entry['colours']} page colour{'' if entry['colours'] == 1 else 's'}; {sharing} CPU(s) share one"
    )
    return Finding("ok", text, entry)


_PROBE = "doctor --probe-colours"


def _colours(context: Context) -> Finding:
    """Whether frame numbers select cache sets: the measured verdict, else facts known without a measurement."""
    found = context.machine["colour_verdict"]
    if found is not None:
        known: dict[str, Status] = {"effective": "ok", "inconclusive": "unknown"}
        status = known.get(found["verdict"], "degraded")
        return Finding(status, f"{found['verdict']} (measured {found['measured_at'][:10]})", found)
    command = f"sudo {context.pagelab} {_PROBE}"
    kind = context.virtualisation.kind
    if kind == "unknown" and not context.virtualisation.evidence:
        return Finding("unknown", "not known whether frame numbers are physical here; not measured", None, command)
    if kind != "none":
        text = f"virtual machine ({kind}): the host may back frames with scattered pages; not measured"
        return Finding("unknown", text, {"virtual": True}, command)
    text = "frame numbers are physical, but a cache may hash them; not measured"
    return Finding("unknown", text, {"virtual": False}, command)


QUESTIONS = (
    Question("page-sizes", "pages", "sizes that a policy may request", _page_sizes),
    Question("thp", "pages", "2M tiles come from transparent huge pages", _thp),
    Question("mthp", "pages", "tiles of 16K to 1M are switched on machine-wide while they are filled", _mthp),
    Question("hugetlb", "pages", "1G tiles, and 2M tiles that must not fail, come from these pools", _pools),
    Question("cache", "pages", "pages of one colour compete for the same sets", _caches),
    Question("colours", "pages", "an effect of frames can only show where frame numbers reach the cache", _colours),
)
