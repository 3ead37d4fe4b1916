"""The units of a study that restarts the machine, and the machines on which it is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from machines import PROGRAM_AND_POLICIES

from harness.packages import need
from pagelab.errors import MachineError
from pagelab.machine.sysfs import Tree
from pagelab.study import systemd_units as units
from pagelab.study.plan import Plan
from pagelab.study.planning import plan_text
from pagelab.study.reboots import permission
from pagelab.study.schedule import schedule
from pagelab.study.systemd import Systemd

AWKWARD = Path('/srv/100% "new" $HOME \\ dir')
TEXT = f"""\
name = "fresh"
executions = 5
between = "reboot"

{PROGRAM_AND_POLICIES}"""
MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:25 / /tmp rw - tmpfs tmpfs rw
31 22 8:2 / /data rw - xfs /dev/sdb1 rw
32 22 0:40 / /home rw - nfs4 server:/home rw
33 22 254:0 / /secret rw - ext4 /dev/mapper/secret rw
34 31 0:50 / /data/with\\040space rw - fuse.sshfs host: rw
35 22 0:51 / /private rw - ecryptfs /x rw
"""


def made(directory: Path) -> dict[str, str]:
    return units.texts(directory, "/usr/bin/python3", [directory, Path("/usr")], ["ssh.service"], {"PATH": "/bin:%h"})


@pytest.mark.parametrize("directory", [AWKWARD, Path("/srv/ends with \\")])
def test_systemd_reads_the_units_as_they_are_meant(tmp_path: Path, directory: Path) -> None:
    """By its own parser, with a directory that has every character that is special to it."""
    for name, text in made(directory).items():
        (tmp_path / name).write_text(text)
    command = [need("systemd-analyze"), "verify", "--man=no", *(str(tmp_path / name) for name in units.NAMES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = [line for line in done.stderr.splitlines() if "pagelab-study" in line and "ssh.service" not in line]
    assert told == [], done.stderr


def test_no_line_ends_with_the_directory() -> None:
    """A backslash there would join the next line: the unit would have lost its DefaultDependencies."""
    for text in made(Path("/srv/ends with \\")).values():
        joined = [line for line in text.splitlines() if line.endswith("\\")]
        assert joined in ([], [text.splitlines()[-1]]), text


def test_the_directory_is_found_again() -> None:
    assert units.directory_in(made(AWKWARD)[units.BEGIN]) == AWKWARD
    assert units.directory_in("[Unit]\n") is None


def test_special_characters_are_escaped() -> None:
    texts = made(AWKWARD)
    quoted = r'"/srv/100%% \"new\" $HOME \\ dir"'
    assert f"RequiresMountsFor={quoted} " in texts[units.RUNS]
    assert r'begin "/srv/100%% \"new\" $$HOME \\ dir"' in texts[units.BEGIN]
    assert 'Environment="PATH=/bin:%%h"' in texts[units.RUNS]
    for mark in "\n\r":  # systemd ends lines at both
        with pytest.raises(ValueError, match="line break"):
            made(Path(f"/srv/a{mark}ExecStart=/bin/evil"))


def test_the_way_out_is_in_the_unit_that_begins_a_boot() -> None:
    begin = made(Path("/srv/s"))[units.BEGIN]
    assert "ConditionKernelCommandLine=!pagelab.study=stop\n" in begin
    assert "ConditionPathExists=/srv/s/study.db\n" in begin
    assert "Before=basic.target" in begin


@pytest.mark.parametrize(
    ("path", "point", "kind"),
    [
        ("/", "/", "ext4"),
        ("/datum", "/", "ext4"),
        ("/data", "/data", "xfs"),
        ("/data/x/y", "/data", "xfs"),
        ("/data/with space/x", "/data/with space", "fuse.sshfs"),
    ],
)
def test_the_mount_of_a_path(path: str, point: str, kind: str) -> None:
    found = permission.mount_of(Path(path), MOUNTS)
    assert (found.point, found.kind) == (Path(point), kind)


def machine(root: Path, mounts: str = MOUNTS) -> Tree:
    """A machine run by systemd, no container."""
    for name in ("run/systemd/system", "proc/self", "sys/dev/block/254:0/dm"):
        (root / name).mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(mounts)
    (root / "sys/dev/block/254:0/dm/uuid").write_text("CRYPT-LUKS2-abc-secret\n")
    return Tree(root)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(permission, "needed_paths", lambda _plan, directory: [directory])
    return plan_text(TEXT, tmp_path / "s.toml", tmp_path / "out")


def systemd(root: Path, known: str = "/data") -> Systemd:
    (root / "units").mkdir(exist_ok=True)

    def call(words: list[str]) -> str:
        if words[0] == "list-units":
            return "".join(f"service-{number}.service loaded active running x\n" for number in range(8))
        if "--property=FinishTimestampMonotonic" in words:
            return "FinishTimestampMonotonic=20000000\nFirmwareTimestampMonotonic=40000000\n"
        return "/run/systemd/generator/x.mount\n" if words[-1] == known else "\n"

    return Systemd(root / "units", call)


AGAIN = "study run fresh.toml --quick --reboot"


@pytest.mark.parametrize(
    ("directory", "message"),
    [
        ("/tmp/s", r"/tmp/s is on tmpfs \(/tmp\), which a restart empties; put it on a disk"),
        ("/home/u/s", r"is on nfs4 \(/home\), and the network is off"),
        ("/data/with space/s", r"is on fuse.sshfs"),
        ("/private/s", r"only a login makes readable"),
        ("/secret/s", r"is on /secret, which no boot mounts; add it to /etc/fstab"),
    ],
)
def test_file_systems_that_do_not_outlive_a_restart(plan: Plan, tmp_path: Path, directory: str, message: str) -> None:
    with pytest.raises(MachineError, match=message):
        permission.refuse(plan, Path(directory), systemd(tmp_path), AGAIN, machine(tmp_path / "root"))


def test_disks_that_each_boot_mounts_will_do(plan: Plan, tmp_path: Path) -> None:
    tree = machine(tmp_path / "root")
    permission.refuse(plan, Path("/srv/s"), systemd(tmp_path), AGAIN, tree)
    permission.refuse(plan, Path("/data/s"), systemd(tmp_path), AGAIN, tree)
    permission.refuse(plan, Path("/secret/s"), systemd(tmp_path, known="/secret"), AGAIN, tree)
    assert permission.encrypted([Path("/srv"), Path("/secret/s")], tree) == (
        "/secret is encrypted: each boot may wait for its passphrase"
    )
    assert permission.encrypted([Path("/srv")], tree) is None


def test_machines_that_cannot_be_restarted(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = machine(tmp_path / "root")
    manager = systemd(tmp_path)
    (tmp_path / "other").mkdir()
    manager.install(units.texts(tmp_path / "other", "/usr/bin/python3", [], [], {}))
    with pytest.raises(MachineError, match=r"the study in .*/other restarts this machine already"):
        permission.refuse(plan, Path("/srv/s"), manager, AGAIN, tree)
    manager.remove()
    permission.refuse(plan, Path("/srv/s"), manager, AGAIN, tree)

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MachineError, match=r"only root may .* sudo pagelab study run fresh.toml --quick --reboot"):
        permission.refuse(plan, Path("/srv/s"), manager, AGAIN, tree)
    (tree.root / "run/.containerenv").write_text("")
    with pytest.raises(MachineError, match=r"a container \(podman\) cannot restart the machine"):
        permission.refuse(plan, Path("/srv/s"), manager, AGAIN, tree)
    shutil.rmtree(tree.root / "run/systemd")
    with pytest.raises(MachineError, match="needs systemd"):
        permission.refuse(plan, Path("/srv/s"), manager, AGAIN, tree)


def test_what_would_happen_is_told_in_figures(plan: Plan, tmp_path: Path) -> None:
    slots = schedule(2, 5, 1, 1, boot="execution")
    assert permission.restarts(slots, set(), plan) == 10
    assert permission.restarts(slots, {0, 1, 2}, plan) == 9, "a warm-up alone is no execution"
    assert permission.restarts(slots, set(range(20)), plan) == 0
    told = permission.told(plan, 10, systemd(tmp_path))
    assert "restarts this machine 11 times: 10 boots, each for one execution and its warm-up, and one more" in told
    assert "the latest boot took 1 min 00 s: the boots take about 11 min 40 s" in told
    assert "8 services that run now (service-0.service, " in told
    assert "and 2 more)" in told
    assert "only the console is left" in told


def test_a_program_without_a_limit_is_told(plan: Plan, tmp_path: Path) -> None:
    told = permission.told(plan, 3, systemd(tmp_path))
    assert "may take any time" in told
    limited = [condition.asking(timeout_s=60.0) for condition in plan.conditions]
    assert "may take any time" not in permission.told(
        plan.model_copy(update={"conditions": limited}), 3, systemd(tmp_path)
    )


def test_a_program_that_the_kernel_ends_for_its_memory_is_a_result() -> None:
    """By default systemd would end the whole service with it (systemd.service(5): OOMPolicy)."""
    texts = units.texts(Path("/srv/s"), "/usr/bin/python3", [], [], {})
    assert "\nOOMPolicy=continue\n" in texts[units.RUNS]


def test_interfaces_but_the_loopback_are_taken_down(tmp_path: Path) -> None:
    for name, flags in (("lo", "0x9"), ("eth0", "0x1003"), ("eth1", "0x1002")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "flags").write_text(f"{flags}\n")
    assert Systemd(tmp_path, lambda _: "", tmp_path).take_network_down() == ["eth0"]
    assert [(tmp_path / name / "flags").read_text() for name in ("lo", "eth0", "eth1")] == [
        "0x9\n",
        "0x1002\n",
        "0x1002\n",
    ]
