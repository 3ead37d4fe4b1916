"""Finds out whether this is a virtual machine or a container, with the evidence."""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

from .sysfs import Tree

_HYPERVISORS = {
    "KVMKVMKVM": "kvm",
    "Linux KVM Hv": "kvm",
    "Microsoft Hv": "hyper-v",
    "VMwareVMware": "vmware",
    "XenVMMXenVMM": "xen",
    "TCGTCGTCGTCG": "qemu",
    "bhyve bhyve ": "bhyve",
    "prl hyperv  ": "parallels",
    "VBoxVBoxVBox": "virtualbox",
    "ACRNACRNACRN": "acrn",
}
_CLOUDS = ("amazon ec2", "google compute engine", "openstack", "alibaba cloud", "digitalocean", "hetzner")
_INITIAL_NAMESPACES = {"pid": 0xEFFFFFFC, "user": 0xEFFFFFFD, "cgroup": 0xEFFFFFFB, "uts": 0xEFFFFFFE}
"""Inode numbers of the kernel's initial namespaces (include/linux/proc_ns.h in the kernel's sources)."""


class Virtualisation(NamedTuple):
    """``kind``: none, a hypervisor's name, or ``unknown`` (there is one that does not name itself)."""

    kind: str
    evidence: list[str]


class Container(NamedTuple):
    """``kind``: none, docker, podman, kubernetes, lxc, systemd-nspawn, or ``unknown``."""

    kind: str
    evidence: list[str]


def virtualisation(tree: Tree) -> Virtualisation:
    """The verdict from CPUID's hypervisor bit and leaf 0x40000000, /sys/hypervisor, DMI and the device tree."""
    evidence = []
    flags = _cpu_flags(tree).split()
    certain = "hypervisor" in flags
    if certain:
        evidence.append("/proc/cpuinfo: flag hypervisor")
    vendor = _cpuid_vendor() if certain and str(tree.root) == "/" else None
    if vendor:
        evidence.append(f"cpuid 0x40000000: {vendor!r}")
    kind = _HYPERVISORS.get(vendor or "", "")
    for name in ("/sys/hypervisor/type", "/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"):
        value = tree.get(name)
        if value:
            evidence.append(f"{name}: {value}")
            kind = kind or _kind_from_text(value)
    cloud = next((item for item in evidence if any(word in item.lower() for word in _CLOUDS)), None)
    if cloud and not kind:
        # Clouds also rent bare metal: on x86 the flag decides, elsewhere the product's name.
        metal = any("metal" in item for item in evidence)
        kind = "unknown" if certain or (not metal and "fpu" not in flags) else ""
    compatible = tree.get("/proc/device-tree/hypervisor/compatible")
    if compatible:
        evidence.append(f"/proc/device-tree/hypervisor/compatible: {compatible}")
        kind = kind or _kind_from_text(compatible) or "unknown"
    # The verdict "none" needs at least one source that could be read.
    found_out = flags or evidence
    return Virtualisation(kind or ("unknown" if certain or not found_out else "none"), evidence)


def container(tree: Tree) -> Container:
    """The verdict from marker files, the cgroup path and the namespaces.

    A marker file alone is no proof: an image copied to a virtual machine's disk keeps ``/.dockerenv``. If the pid
    namespace is the kernel's first, the verdict is ``none``, with the marker among the evidence.
    """
    kind, evidence = _markers(tree)
    foreign = _foreign_namespaces(tree)
    if foreign is None:
        return Container(kind or "none", evidence)
    evidence += [f"own {name} namespace" for name in foreign]
    if "pid" not in foreign:
        if kind:
            evidence.append("but the pid namespace is the machine's own: no container")
        return Container("none", evidence)
    return Container(kind or "unknown", evidence)


def in_first_user_namespace(tree: Tree) -> bool:
    """Whether capabilities here are valid on the machine: those of another user namespace count only inside it."""
    foreign = _foreign_namespaces(tree)
    return foreign is None or "user" not in foreign


def _markers(tree: Tree) -> tuple[str, list[str]]:
    evidence = []
    kinds = []
    for path, name in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if tree.exists(path):
            evidence.append(path)
            kinds.append(name)
    if tree.exists("/var/run/secrets/kubernetes.io"):
        evidence.append("/var/run/secrets/kubernetes.io")
        kinds.insert(0, "kubernetes")
    manager = tree.get("/run/systemd/container") or _environment_of_init(tree)
    if manager:
        evidence.append(f"container={manager}")
        kinds.append(manager)
    groups = tree.get("/proc/self/cgroup") or ""
    for word, name in (("kubepods", "kubernetes"), ("docker", "docker"), ("libpod", "podman"), ("/lxc", "lxc")):
        if word in groups:
            evidence.append(f"/proc/self/cgroup names {word}")
            kinds.append(name)
    # Kubernetes runs its containers with one of the other kinds, but is what the user configures.
    kind = "kubernetes" if "kubernetes" in kinds else next(iter(kinds), "")
    return kind, evidence


def _environment_of_init(tree: Tree) -> str | None:
    try:
        words = tree.text("/proc/1/environ").split("\0")
    except OSError:
        return None
    return next((word.removeprefix("container=") for word in words if word.startswith("container=")), None)


def _foreign_namespaces(tree: Tree) -> list[str] | None:
    """Namespaces that are not the kernel's first; None if that cannot be read."""
    foreign = []
    for name, initial in _INITIAL_NAMESPACES.items():
        try:
            target = str(tree.path(f"/proc/self/ns/{name}").readlink())
        except OSError:
            continue
        if target != f"{name}:[{initial}]":
            foreign.append(name)
    return foreign if tree.exists("/proc/self/ns/pid") else None


def _cpu_flags(tree: Tree) -> str:
    try:
        lines = tree.text("/proc/cpuinfo").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")


def _kind_from_text(text: str) -> str:
    words = {
        "kvm": "kvm",
        "qemu": "qemu",
        "vmware": "vmware",
        "virtualbox": "virtualbox",
        "innotek": "virtualbox",
        "xen": "xen",
        "virtual machine": "hyper-v",
        "bochs": "qemu",
        "parallels": "parallels",
    }
    return next((kind for word, kind in words.items() if word in text.lower()), "")


@cache
def _cpuid_vendor() -> str | None:
    """The hypervisor's signature, CPUID leaf 0x40000000 (EBX, ECX, EDX); None off x86-64 or if executable memory is
    refused.

    The instruction needs no privilege, and no file shows its result to ordinary users.
    """
    if os.uname().machine != "x86_64":
        return None
    import ctypes
    import mmap

    # push rbx; mov r8, rdi; mov eax, 0x40000000; xor ecx, ecx; cpuid; mov [r8], ebx; mov [r8+4], ecx;
    # mov [r8+8], edx; pop rbx; ret
    code = bytes.fromhex("53 49 89 f8 b8 00 00 00 40 31 c9 0f a2 41 89 18 41 89 48 04 41 89 50 08 5b c3")
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None
    page.write(code)
    signature = ctypes.create_string_buffer(12)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    function(ctypes.addressof(signature))
    return signature.raw.decode("latin-1").rstrip("\0") or None
