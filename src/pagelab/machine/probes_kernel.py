"""Probes of kernel features, each tried on scratch memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from .probe import Context, Finding, Question, Status
from .settings import size_name


def _tried(error: OSError, needs: str | None = None) -> Finding:
    """The finding for an errno: denied, absent, or a temporary failure."""
    number = error.errno or 0
    status: Status = "unknown"
    if number in (errno.EPERM, errno.EACCES):
        status = "denied"
    elif number in (errno.ENOSYS, errno.EINVAL, errno.ENOTTY, errno.ENOENT, errno.EOPNOTSUPP):
        status = "unsupported"
    elif number in (errno.ENOMEM, errno.EAGAIN, errno.EBUSY):
        status = "degraded"
    if number == errno.ENOENT:
        needs = None
    return Finding(status, f"tried: {error.strerror} ({errno.errorcode.get(number, number)})", needs=needs)


def _userfaultfd(context: Context) -> Finding:
    from . import syscalls

    grant = f"{context.as_root('CAP_SYS_PTRACE')}; or {context.fix('unprivileged_userfaultfd=1')}"
    ways: tuple[tuple[str, Callable[[], int]], ...] = (
        ("system call", lambda: syscalls.userfaultfd(user_mode_only=False)),
        ("/dev/userfaultfd", syscalls.userfaultfd_from_device),
        ("system call, faults in user mode only", lambda: syscalls.userfaultfd(user_mode_only=True)),
    )
    first: OSError | None = None
    for name, way in ways:
        try:
            os.close(way())
        except OSError as error:
            first = first or error
            continue
        full = "user mode only" not in name
        return Finding("ok" if full else "degraded", f"by {name}", {"by": name, "full": full}, None if full else grant)
    assert first is not None
    return _tried(first, grant)


def _userfaultfd_move(context: Context) -> Finding:
    from . import syscalls

    try:
        descriptor = syscalls.userfaultfd(user_mode_only=True)
    except OSError as error:
        return _tried(error, context.as_root("userfaultfd allowed by its seccomp profile"))
    try:
        features = syscalls.userfaultfd_features(descriptor)
        if not features & syscalls.UFFD_FEATURE_MOVE:
            text = f"features {features:#x} without MOVE"
            return Finding("unsupported", text, {"features": features}, "Linux 6.8 or newer")
        if not syscalls.move_one_page(descriptor):
            return Finding("unsupported", "UFFDIO_MOVE moved nothing", {"features": features})
        return Finding("ok", "moved a page", {"features": features})
    except OSError as error:
        return _tried(error)
    finally:
        os.close(descriptor)


def _huge_at_fault(context: Context) -> Finding:
    from . import syscalls

    size = context.machine["thp_bytes"]
    if size is None:
        return Finding("unsupported", "no transparent huge pages")
    with syscalls.scratch(size, size) as memory:
        try:
            memory.advise(syscalls.MADV_HUGEPAGE)
            memory.advise(syscalls.MADV_POPULATE_WRITE)
        except OSError as error:
            return _tried(error)
        got = memory.huge_bytes()
    if got >= size:
        return Finding("ok", f"got a {size_name(size)} page")
    return Finding("degraded", f"asked for {size_name(size)}, got base pages", needs=context.fix("thp=madvise"))


def _collapse(context: Context) -> Finding:
    from . import syscalls

    size = context.machine["thp_bytes"]
    if size is None:
        return Finding("unsupported", "no transparent huge pages")
    with syscalls.scratch(size, size) as memory:
        memory.touch()
        try:
            memory.advise(syscalls.MADV_COLLAPSE)
        except OSError as error:
            advice = "Linux 6.1 or newer" if error.errno == errno.EINVAL else None
            if error.errno in (errno.ENOMEM, errno.EAGAIN):
                advice = "free memory is fragmented; run: echo 1 | sudo tee /proc/sys/vm/compact_memory"
            return _tried(error, advice)
        got = memory.huge_bytes()
    if got < size:
        return Finding("degraded", "reported success, but smaps shows no huge page")
    return Finding("ok", f"made a {size_name(size)} page of touched ones")


def _populate(_context: Context) -> Finding:
    from . import syscalls

    with syscalls.scratch(4 * syscalls.PAGE) as memory:
        try:
            memory.advise(syscalls.MADV_POPULATE_READ)
            memory.advise(syscalls.MADV_POPULATE_WRITE)
        except OSError as error:
            return _tried(error, "Linux 5.14 or newer" if error.errno == errno.EINVAL else None)
    return Finding("ok", "populated for reading and writing")


def _pagemap_scan(_context: Context) -> Finding:
    from . import syscalls

    try:
        seen = syscalls.pagemap_scan()
    except OSError as error:
        return _tried(error, "Linux 6.7 or newer" if error.errno == errno.ENOTTY else None)
    return Finding("ok", "works") if seen == 2 else Finding("unknown", f"saw {seen} of 2 touched pages")


def _frames(context: Context) -> Finding:
    from . import syscalls

    needs = context.as_root("CAP_SYS_ADMIN")
    try:
        number = syscalls.own_frame_number()
    except OSError as error:
        return _tried(error, needs)
    return Finding("ok", "visible") if number else Finding("denied", "the kernel shows 0", needs=needs)


def _kernel_frames(context: Context) -> Finding:
    from . import page_color

    without = "a kernel with page placement (kernel/README.md); until then: --backend library"
    if not context.tree.path(page_color.HINTS).exists():
        return Finding("unsupported", "not in this kernel", needs=without)
    strategies = sorted(page_color.placing(page_color.read(context.tree) or {}))
    if not strategies:
        return Finding("degraded", "hints, but no strategy", needs=context.as_root("modprobe placement_page_coloring"))
    return Finding("ok", ", ".join(strategies), strategies)


def _kpageflags(context: Context) -> Finding:
    try:
        with context.tree.path("/proc/kpageflags").open("rb") as file:
            file.read(8)
    except OSError as error:
        return _tried(error, context.as_root("CAP_SYS_ADMIN"))
    return Finding("ok", "readable")


def _drop_caches(context: Context) -> Finding:
    path = context.tree.path("/proc/sys/vm/drop_caches")
    if os.access(path, os.W_OK, effective_ids=True):
        return Finding("ok", "whole page cache and by file")
    text = "by file only (posix_fadvise): pages in use stay"
    return Finding("degraded", text, needs=context.as_root("a writable /proc/sys"))


def _readahead(context: Context) -> Finding:
    directory = "/sys/class/bdi"
    devices = {name: context.tree.number(f"{directory}/{name}/read_ahead_kb") for name in context.tree.names(directory)}
    shown = {name: kib for name, kib in devices.items() if kib is not None}
    if not shown:
        return Finding("unknown", "the kernel shows no device's readahead")
    writable = [
        name
        for name in shown
        if os.access(context.tree.path(f"{directory}/{name}/read_ahead_kb"), os.W_OK, effective_ids=True)
    ]
    text = f"{len(shown)} device(s), {min(shown.values())} … {max(shown.values())} KiB"
    if len(writable) == len(shown):
        return Finding("ok", f"{text}; can be set to 0 for a run", shown)
    return Finding("denied", f"{text}; cannot be changed", shown, context.as_root("a writable /sys"))


def _fault_around(context: Context) -> Finding:
    name = "/sys/kernel/debug/fault_around_bytes"
    value = context.tree.number(name)
    if value is None:
        text = "cannot be read: cached file pages near a fault are mapped along (usually 64K)"
        return Finding("unknown", text, needs=context.on_host("sudo mount -t debugfs none /sys/kernel/debug"))
    return Finding("ok", size_name(value), value)


def _seccomp(context: Context) -> Finding:
    fields = dict(line.split(":", 1) for line in context.tree.text("/proc/self/status").splitlines() if ":" in line)
    mode = fields.get("Seccomp", "").strip()
    value = {"mode": mode, "no_new_privs": fields.get("NoNewPrivs", "").strip() == "1"}
    names = {"0": "off", "1": "strict", "2": "filtering"}
    if mode == "2":
        text = "filtering: system calls it refuses show up as denied above"
        return Finding("degraded", text, value, f"{context.pagelab} doctor --print {context.print_kind}")
    return Finding("ok" if mode == "0" else "unknown", names.get(mode, "not told"), value)


QUESTIONS = (
    Question("thp-at-fault", "kernel", "tiles of 2M that are filled ahead", _huge_at_fault),
    Question("madv-collapse", "kernel", "tiles of 2M in memory that fills slowly: heap and arenas", _collapse),
    Question("madv-populate", "kernel", "fetch = prefault", _populate),
    Question("userfaultfd", "kernel", "frame policies answer page faults", _userfaultfd),
    Question("userfaultfd-move", "kernel", "frame policies place pages by moving them", _userfaultfd_move),
    Question("pagemap-scan", "kernel", "quick look at large address spaces", _pagemap_scan),
    Question("frame-numbers", "kernel", "pagelab map --frames; frame policies", _frames),
    Question("kernel-frames", "kernel", "frames placed by the kernel: --backend kernel", _kernel_frames),
    Question("kpageflags", "kernel", "the only place where tiles of 16K to 1M can be seen", _kpageflags),
    Question("page-cache-flush", "kernel", "runs with a cold page cache", _drop_caches),
    Question("readahead", "kernel", "fetch = demand, for the program's own text and libraries", _readahead),
    Question("fault-around", "kernel", "fetch = demand, on cached files", _fault_around),
    Question("seccomp", "kernel", "containers and sandboxes refuse system calls with it", _seccomp),
)
