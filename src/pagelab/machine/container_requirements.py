"""Prints rights and devices that a unit or a container needs, with reasons (``pagelab doctor --print``).

Each block is a comment that says what is lost without it, and the lines to paste.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from .settings import size_name

Kind = Literal["systemd", "docker", "podman", "kubernetes"]
KINDS: tuple[Kind, ...] = ("systemd", "docker", "podman", "kubernetes")


@dataclass(frozen=True)
class Block:
    """Lines that belong together, and their purpose."""

    why: str
    lines: tuple[str, ...]


CAPABILITIES = (
    ("SYS_ADMIN", "frame numbers in /proc/PID/pagemap and kpageflags"),
    ("PERFMON", "hardware counters, whatever perf_event_paranoid says"),
    ("SYS_PTRACE", "a userfaultfd that also serves faults inside system calls"),
    ("IPC_LOCK", "pinning placed pages (mlock beyond the limit)"),
    ("SYS_NICE", "run --node (container engines allow mbind and set_mempolicy only with it)"),
)

USER_CHANGE = ("CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID")
"""What root needs to run a program as another user, and to end it; container engines give these by default."""

_WITHOUT_DEFAULTS = "Only needed where the engine's default capabilities were dropped"

SECCOMP: tuple[dict[str, Any], ...] = (
    {"names": ["userfaultfd"], "action": "SCMP_ACT_ALLOW", "comment": "left out of the default profile"},
    {"names": ["perf_event_open"], "action": "SCMP_ACT_ALLOW", "comment": "by default only with CAP_PERFMON"},
    {
        "names": ["personality"],
        "action": "SCMP_ACT_ALLOW",
        "args": [{"index": 0, "value": 0x0040000, "op": "SCMP_CMP_EQ"}],
        "comment": "ADDR_NO_RANDOMIZE: run --aslr off",
    },
)
"""Additions to the container engine's default seccomp profile, under ``syscalls``."""


def text(kind: Kind, machine: dict[str, Any], pagelab: str = "pagelab") -> str:
    """The settings for ``kind`` as text to paste, for this machine's page sizes."""
    render = {"systemd": _systemd, "docker": _docker, "podman": _podman, "kubernetes": _kubernetes}[kind]
    return render(machine, pagelab)


def _blocks(blocks: list[Block], indent: str = "") -> str:
    out = []
    for block in blocks:
        out += [f"{indent}# {line}" for line in block.why.split("\n")]
        out += [f"{indent}{line}" for line in block.lines]
    return "\n".join(out)


def _host(machine: dict[str, Any], pagelab: str) -> str:
    """Lines for settings of the host, which no unit or container can change."""
    fixes = [f"hugepages-{size_name(pool['page_bytes'])}=N" for pool in machine["hugetlb"]]
    why = (
        "On the host itself, before starting (the pools and switches are the machine's, not the container's);\n"
        f"put back by: sudo {pagelab} doctor --restore"
    )
    lines = [f"#   sudo {pagelab} doctor --fix {fix}" for fix in (*fixes, "thp=madvise", "perf_event_paranoid=1")]
    return _blocks([Block(why, tuple(lines))])


def _systemd(machine: dict[str, Any], pagelab: str) -> str:
    names = " ".join(f"CAP_{name}" for name, _ in CAPABILITIES)
    reasons = "\n".join(f"CAP_{name}: {why}" for name, why in CAPABILITIES)
    others = " ".join(f"CAP_{name}" for name in USER_CHANGE)
    blocks = [
        Block(f"Leave out a capability and its feature is reported as denied.\n{reasons}\n{others}: run --user", (
            f"AmbientCapabilities={names}", f"CapabilityBoundingSet={names} {others}",
        )),
        Block("Pinned pages count against this limit (8 MiB by default).", ("LimitMEMLOCK=infinity",)),
        Block("The device gives a full userfaultfd by file permission, without CAP_SYS_PTRACE.", (
            "PrivateDevices=no", "DeviceAllow=/dev/userfaultfd rw",
        )),
        Block("Only if the unit filters system calls: these are outside @system-service.", (
            "SystemCallFilter=@system-service userfaultfd perf_event_open personality",
        )),
        Block("Readahead, huge-page switches and drop_caches are files below /sys and /proc/sys.", (
            "ProtectKernelTunables=no",
        )),
        Block("/proc of the measured programs must be visible.", ("ProtectProc=default", "ProcSubset=all")),
        Block("The launcher pins to CPUs itself; quotas show up as noise. Give whole CPUs instead of CPUQuota=.", (
            f"AllowedCPUs={_span(machine['cpus'])}", "CPUQuota=",
        )),
        Block("A limit here is respected and recorded; huge pages of the hugetlb pools do not count against it.", (
            "MemoryMax=infinity",
        )),
        Block("The cgroup controller hugetlb has no unit setting; with Delegate=yes write hugetlb.2MB.max yourself.", (
            "Delegate=yes",
        )),
    ]  # fmt: skip
    return f"[Service]\n{_blocks(blocks)}\n\n{_host(machine, pagelab)}\n"


def _span(numbers: list[int]) -> str:
    whole = numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else False
    return f"{numbers[0]}-{numbers[-1]}" if whole and len(numbers) > 1 else ",".join(map(str, numbers))


def _engine_blocks(machine: dict[str, Any]) -> list[Block]:
    return [
        *(Block(why[0].upper() + why[1:] + ".", (f"--cap-add={name}",)) for name, why in CAPABILITIES),
        Block(
            f"{_WITHOUT_DEFAULTS} (--cap-drop=all):\nto run the program as another user, and to end it.",
            tuple(f"--cap-add={name}" for name in USER_CHANGE),
        ),
        Block("A full userfaultfd by file permission, without SYS_PTRACE.", ("--device=/dev/userfaultfd",)),
        Block(
            "The default profile refuses these calls; add the part below to it (or, to try: seccomp=unconfined).",
            ("--security-opt seccomp=pagelab-seccomp.json",),
        ),
        Block("Pinned pages count against this limit.", ("--ulimit memlock=-1:-1",)),
        Block(
            "Whole CPUs; a quota (--cpus) shows up as noise.",
            (f"--cpuset-cpus={_span(machine['cpus'])}",),
        ),
        Block(
            "Only to change readahead, huge-page switches and drop_caches from inside: a writable /sys is the host's\n"
            "own, so whoever is root in the container can change the host. Else do it on the host.",
            ("--privileged   # optional",),
        ),
    ]


def _seccomp_part() -> str:
    rows = ",\n".join("  " + json.dumps(rule) for rule in SECCOMP)
    return (
        '# pagelab-seccomp.json: the engine\'s default profile with these entries added under "syscalls";\n'
        "# docker's is https://github.com/moby/profiles/blob/main/seccomp/default.json,\n"
        "# podman's is /usr/share/containers/seccomp.json:\n" + rows
    )


def _docker(machine: dict[str, Any], pagelab: str) -> str:
    return (
        f"# Options of docker run; each may be left out, its feature is then reported as denied.\n"
        f"{_blocks(_engine_blocks(machine))}\n\n{_seccomp_part()}\n\n"
        "# Huge pages of the hugetlb pools need no option: docker sets no hugetlb limit.\n"
        f"{_host(machine, pagelab)}\n"
    )


def _podman(machine: dict[str, Any], pagelab: str) -> str:
    return (
        "# Options of podman run, as root: in a rootless container capabilities count only inside its user namespace,\n"
        "# so frame numbers stay hidden and perf_event_paranoid applies, whatever is added.\n"
        f"{_blocks(_engine_blocks(machine))}\n\n{_seccomp_part()}\n\n{_host(machine, pagelab)}\n"
    )


def _kubernetes(machine: dict[str, Any], pagelab: str) -> str:
    pools = [pool["page_bytes"] for pool in machine["hugetlb"]]
    caps = "\n".join(f"          - {name}   # {why}" for name, why in CAPABILITIES)
    others = "\n".join(f"          # - {name}" for name in USER_CHANGE)
    huge = "\n".join(f"        hugepages-{size_name(size)}i: {'1Gi' if size >= 1 << 30 else '512Mi'}" for size in pools)
    return f"""\
apiVersion: v1
kind: Pod
metadata:
  name: pagelab
spec:
  containers:
  - name: pagelab
    image: YOUR-IMAGE
    securityContext:
      # Leave out a capability and its feature is reported as denied.
      capabilities:
        add:
{caps}
          # {_WITHOUT_DEFAULTS} (drop: [ALL]):
          # to run the program as another user, and to end it.
{others}
      # The runtime's default profile refuses userfaultfd and personality; put the file below the kubelet's seccomp
      # directory (usually /var/lib/kubelet/seccomp) on each node.
      seccompProfile:
        type: Localhost
        localhostProfile: pagelab-seccomp.json
    resources:
      # requests = limits and whole CPUs: with the static CPU manager policy the CPUs are the container's own, and
      # there is no quota that shows up as noise.
      limits:
        cpu: "2"
        memory: 4Gi
        # Pages of the node's hugetlb pools; the kubelet sets the cgroup's hugetlb limit from these. Only needed for
        # via = "hugetlb" and for 1G. A node whose pool is too small does not get the pod.
{huge or "        # (this machine's kernel has no hugetlb pools)"}
  # /dev/userfaultfd cannot be given by a volume: it needs a device plugin, or privileged: true.

{_seccomp_part()}

# On each node (a privileged DaemonSet, or the node's own configuration):
{_host(machine, pagelab)}
"""
