"""The machine description and provenance, on this machine and on invented ones."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagelab.machine import describe, provenance
from pagelab.machine.cgroup import limits
from pagelab.machine.describe import parse_list
from pagelab.machine.settings import size_name
from pagelab.machine.sysfs import Tree, normalise
from pagelab.machine.virtual import container, virtualisation


def machine(root: Path, files: dict[str, str]) -> Tree:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(root)


def cache(cpu: int, index: int, level: int, kind: str, size: str, ways: str, shared: str) -> dict[str, str]:
    directory = f"/sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
    files = {"level": str(level), "type": kind, "size": size, "shared_cpu_list": shared}
    if ways:
        files |= {"ways_of_associativity": ways, "coherency_line_size": "64", "number_of_sets": "1024"}
    return {f"{directory}/{name}": f"{text}\n" for name, text in files.items()}


def test_this_machine_is_accepted_by_the_policy_crate() -> None:
    native = pytest.importorskip("pagelab._native", reason="the native part is not built; run: make dev")
    text = json.dumps(describe())
    assert "4096" in text
    assert json.loads(native.parse_policy('pages = "4K"\n', "p.toml", text))
    with pytest.raises(native.PolicyRefused, match="8K"):
        native.parse_policy('pages = "8K"\n', "p.toml", text)


def test_description_agrees_with_the_system_and_with_itself() -> None:
    found = describe()
    assert found["base_page_bytes"] == os.sysconf("SC_PAGE_SIZE") in found["page_sizes_bytes"]
    assert found["page_sizes_bytes"] == sorted(set(found["page_sizes_bytes"]))
    assert set(found["mthp_bytes"]) < set(found["page_sizes_bytes"])
    assert set(os.sched_getaffinity(0)) <= set(found["cpus"])
    for entry in found["caches"]:
        if entry["ways"] and entry["sets"] and entry["line_bytes"]:
            assert entry["ways"] * entry["sets"] * entry["line_bytes"] == entry["size_bytes"]
        assert {cpu for shared in entry["shared_cpus"] for cpu in shared} <= set(found["cpus"])
    json.dumps(found)


@pytest.mark.parametrize(("bits", "reports"), [("0110010100", True), ("0110000100", False), ("0110", False)])
def test_a_balloon_that_reports_free_pages_is_seen(tmp_path: Path, bits: str, reports: bool) -> None:
    tree = machine(tmp_path, {"/sys/bus/virtio/drivers/virtio_balloon/virtio3/features": f"{bits}\n"})
    assert describe(tree)["free_page_reporting"] is reports


def test_switches_are_read_afresh(tmp_path: Path) -> None:
    thp = "/sys/kernel/mm/transparent_hugepage/enabled"
    tree = machine(tmp_path, {thp: "always [madvise] never\n"})
    assert describe(tree)["thp"]["enabled"] == "madvise"
    tree.path(thp).write_text("[always] madvise never\n")
    assert describe(tree)["thp"]["enabled"] == "always"


def test_pages_to_be_had_leave_out_used_and_reserved_ones(tmp_path: Path) -> None:
    pool = "/sys/kernel/mm/hugepages/hugepages-2048kB"
    numbers = {"nr": 12, "free": 7, "resv": 3, "surplus": 2, "nr_overcommit": 5}
    tree = machine(tmp_path, {f"{pool}/{name}_hugepages": f"{n}\n" for name, n in numbers.items()})
    (found,) = describe(tree)["hugetlb"]
    assert found["page_bytes"] == 2 << 20
    assert found["pages"] == (7 - 3) + (5 - 2)


def test_an_empty_machine_is_described_as_far_as_it_goes(tmp_path: Path) -> None:
    found = describe(Tree(tmp_path))
    assert found["page_sizes_bytes"] == [os.sysconf("SC_PAGE_SIZE")]
    assert (found["caches"], found["cache"], found["hugetlb"], found["nodes"]) == ([], None, [], [])
    json.dumps(provenance(Tree(tmp_path)))


def test_two_sockets_with_mixed_cores(tmp_path: Path) -> None:
    files = {"/sys/devices/system/cpu/online": "0-3\n", "/sys/devices/system/node/online": "0-1\n"}
    for node, cpus in ((0, "0-1"), (1, "2-3")):
        files[f"/sys/devices/system/node/node{node}/cpulist"] = f"{cpus}\n"
        files[f"/sys/devices/system/node/node{node}/meminfo"] = f"Node {node} MemTotal:   {1024 * (node + 1)} kB\n"
    for cpu in range(4):
        big = cpu < 2
        files |= cache(cpu, 0, 1, "Data", "48K" if big else "32K", "12" if big else "8", str(cpu))
        files |= cache(cpu, 1, 2, "Unified", "2M" if big else "4096K", "16", "0-1" if big else "2-3")
    found = describe(machine(tmp_path, files))
    shapes = [(e["level"], e["size_bytes"] >> 10, e["ways"], e["colours"], e["shared_cpus"]) for e in found["caches"]]
    assert sorted(shapes) == [
        (1, 32, 8, 1, [[2], [3]]),
        (1, 48, 12, 1, [[0], [1]]),
        (2, 2048, 16, 32, [[0, 1]]),
        (2, 4096, 16, 64, [[2, 3]]),
    ]
    assert [(n["node"], n["cpus"], n["memory_bytes"]) for n in found["nodes"]] == [
        (0, [0, 1], 1 << 20),
        (1, [2, 3], 2 << 20),
    ]


def test_caches_whose_firmware_tells_no_ways_have_no_colours(tmp_path: Path) -> None:
    files = {"/sys/devices/system/cpu/online": "0\n", **cache(0, 0, 2, "Unified", "512K", "", "0")}
    found = describe(machine(tmp_path, files))
    assert found["caches"][0]["colours"] is None
    assert found["cache"] is None


def test_both_stay_cheap_once_read() -> None:
    describe(), provenance()
    began = time.perf_counter()
    for _ in range(5):
        describe(), provenance()
    # Not a timing test: only against a change that makes each call read everything again, or start a process.
    assert time.perf_counter() - began < 2


def test_provenance_names_what_moves_results() -> None:
    found = provenance()
    assert found["kernel"]["release"] == os.uname().release
    assert found["cpu"]["count"] >= len(os.sched_getaffinity(0))
    assert found["pagelab"]["version"]
    assert found["libraries"]["numpy"]
    assert {"governor", "smt", "mitigations", "virtualisation", "container", "boot_id", "libc", "time"} <= set(found)
    json.dumps(found)


@given(st.sets(st.integers(0, 300)))
def test_lists_of_the_kernel_are_read_back(numbers: set[int]) -> None:
    ordered = sorted(numbers)
    spans: list[list[int]] = []
    for number in ordered:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
    assert parse_list(text) == ordered


@given(st.text())
def test_anything_else_is_read_as_no_list_without_trouble(text: str) -> None:
    if not any(character.isdigit() for character in text):
        assert parse_list(text) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("always [madvise] never\n", "madvise"),
        ("[none] integrity\n", "none"),
        (" 128\n", "128"),
        ("10 20\t30\n", "10 20 30"),
    ],
)
def test_normal_form_of_settings(text: str, value: str) -> None:
    assert normalise(text) == value


def test_names_of_sizes() -> None:
    assert [size_name(size) for size in (4096, 65536, 1 << 20, 2 << 20, 1 << 30, 1000)] == [
        *("4K", "64K", "1M", "2M", "1G", "1000")
    ]


# Control groups, virtual machines and containers.


def test_tightest_limit_of_all_ancestors_counts_in_version_2(tmp_path: Path) -> None:
    group = "/sys/fs/cgroup"
    tree = machine(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/outer/inner\n",
            "/proc/self/mounts": f"cgroup2 {group} cgroup2 rw 0 0\n",
            f"{group}/outer/memory.max": "1000\n",
            f"{group}/outer/inner/memory.max": "max\n",
            f"{group}/outer/inner/cpu.max": "150000 100000\n",
            f"{group}/outer/cpu.max": "50000 100000\n",
            f"{group}/outer/inner/cpuset.cpus.effective": "1\n",
            f"{group}/outer/hugetlb.2MB.max": "0\n",
            "/sys/devices/system/cpu/online": "0-3\n",
        },
    )
    found = limits(tree)
    assert (found.version, found.path) == (2, "/outer/inner")
    assert found.limits == {
        "memory.max": "1000",
        "cpu.max": "50000 100000",
        "cpuset.cpus.effective": "1",
        "hugetlb.2MB.max": "0",
    }


def test_limits_of_version_1_and_none_at_all(tmp_path: Path) -> None:
    mounts = "cgroup /cg/memory cgroup rw,memory 0 0\ncgroup /cg/cpu cgroup rw,cpu,cpuacct 0 0\n"
    tree = machine(
        tmp_path,
        {
            "/proc/self/cgroup": "4:memory:/a\n1:cpu,cpuacct:/a\n",
            "/proc/self/mounts": mounts,
            "/cg/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "/cg/memory/a/memory.limit_in_bytes": "4096\n",
            "/cg/cpu/a/cpu.cfs_quota_us": "-1\n",
            "/cg/cpu/a/cpu.cfs_period_us": "100000\n",
        },
    )
    found = limits(tree)
    assert (found.version, found.limits) == (1, {"memory.limit_in_bytes": "4096"})
    assert limits(Tree(tmp_path / "nothing")).version is None


def namespaces(root: Path, *foreign: str) -> None:
    initial = {"pid": 0xEFFFFFFC, "user": 0xEFFFFFFD, "cgroup": 0xEFFFFFFB, "uts": 0xEFFFFFFE}
    directory = root / "proc/self/ns"
    directory.mkdir(parents=True)
    for name, number in initial.items():
        (directory / name).symlink_to(f"{name}:[{4026540000 if name in foreign else number}]")


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"/.dockerenv": ""}, "docker"),
        ({"/run/.containerenv": ""}, "podman"),
        ({"/proc/1/environ": "PATH=/bin\0container=systemd-nspawn\0"}, "systemd-nspawn"),
        ({"/run/systemd/container": "lxc\n"}, "lxc"),
        ({"/proc/self/cgroup": "0::/kubepods.slice/x\n", "/.dockerenv": ""}, "kubernetes"),
        ({"/var/run/secrets/kubernetes.io/token": "", "/run/.containerenv": ""}, "kubernetes"),
        ({}, "unknown"),
    ],
)
def test_containers_are_known_by_their_marks(tmp_path: Path, files: dict[str, str], kind: str) -> None:
    tree = machine(tmp_path, files)
    namespaces(tmp_path, "pid")
    assert container(tree).kind == kind


def test_a_mark_left_in_a_virtual_machines_image_is_no_container(tmp_path: Path) -> None:
    tree = machine(tmp_path, {"/.dockerenv": ""})
    namespaces(tmp_path)
    found = container(tree)
    assert found.kind == "none"
    assert "/.dockerenv" in found.evidence


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"/proc/cpuinfo": "flags\t\t: fpu hypervisor\n"}, "unknown"),
        ({"/proc/cpuinfo": "flags\t\t: fpu\n", "/sys/class/dmi/id/sys_vendor": "Dell Inc.\n"}, "none"),
        ({"/sys/class/dmi/id/sys_vendor": "QEMU\n"}, "qemu"),
        ({"/sys/hypervisor/type": "xen\n"}, "xen"),
        ({"/sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "/proc/cpuinfo": "flags : fpu hypervisor\n"}, "unknown"),
        # A machine of a cloud's own, without a hypervisor, has the same vendor.
        ({"/sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "/proc/cpuinfo": "flags : fpu\n"}, "none"),
    ],
)
def test_virtual_machines(tmp_path: Path, files: dict[str, str], kind: str) -> None:
    assert virtualisation(machine(tmp_path, files)).kind == kind


ZONES = """\
Node 0, zone   Normal
  pages free     100
        spanned  4000
        present  3000
        managed  1000
        protection: (0, 0, 0, 0)
Node 1, zone      DMA
        present  10
Node 1, zone   Normal
        present  500
        managed  0
"""


def test_the_memory_of_a_node_is_what_is_present_not_what_is_managed_at_the_moment(tmp_path: Path) -> None:
    """Regression: 6.1 GiB were shown on a machine of 24 GiB."""
    node = "/sys/devices/system/node"
    files = {
        f"{node}/online": "0-2\n",
        f"{node}/node0/meminfo": "Node 0 MemTotal: 4000 kB\nNode 0 MemFree: 400 kB\n",
        f"{node}/node2/meminfo": "Node 2 MemTotal: 9000 kB\nNode 2 MemFree: 900 kB\n",
        "/proc/zoneinfo": ZONES,
    }
    found = {entry["node"]: entry["memory_bytes"] for entry in describe(machine(tmp_path, files))["nodes"]}
    page = os.sysconf("SC_PAGE_SIZE")
    assert found == {0: 3000 * page, 1: 510 * page, 2: 9000 * 1024}


def test_the_nodes_of_this_machine_have_its_memory() -> None:
    nodes = describe()["nodes"]
    if not nodes:
        pytest.skip("this kernel shows no nodes; nothing enables it but CONFIG_NUMA")
    total = sum(entry["memory_bytes"] for entry in nodes)
    # What is present is at least what the kernel can use, and reserved memory is a small part of it.
    assert provenance()["memory_bytes"] <= total <= provenance()["memory_bytes"] * 1.25
