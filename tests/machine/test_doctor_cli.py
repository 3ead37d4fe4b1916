"""``pagelab doctor`` as a user types it: streams, exit codes, and what ordinary users and containers are told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_machine import ASLR, POOL, THP, FakeTree, state

PROGRAM = "import sys; sys.argv[0] = '/opt/lab/bin/pagelab'; from pagelab.cli import main; main()"
# setpriv keeps its capabilities until exec and could start a Python that nobody may read: env has none left.
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user; run: sudo make test")


def doctor(*words: str, before: list[str] | None = None, python: str = sys.executable, **environment: str):
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [*(before or []), python, "-B", "-c", PROGRAM, "doctor", *words]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "COLUMNS": "200", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env, cwd="/")


def fake(tree: FakeTree, tmp_path: Path) -> dict[str, str]:
    return {"PAGELAB_SYSROOT": str(tree.root), "PAGELAB_JOURNAL": str(tmp_path / "journal.jsonl")}


def test_json_has_every_probe_and_the_machine() -> None:
    done = doctor("--json", "--no-noise")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == "pagelab.doctor/1"
    assert report["machine"]["base_page_bytes"] == os.sysconf("SC_PAGE_SIZE")
    names = {probe["name"] for probe in report["probes"]}
    assert {"page-sizes", "thp", "madv-collapse", "userfaultfd-move", "perf-paranoid", "cgroup", "settings"} <= names
    assert not [probe for probe in report["probes"] if "the probe failed" in probe["text"]]
    for probe in report["probes"]:
        assert probe["why"]
        assert probe["status"] in ("ok", "degraded", "absent", "denied", "unsupported", "unknown")


def test_text_names_each_probe_once_and_what_is_missing() -> None:
    done = doctor("--no-noise")
    assert done.returncode == 0, done.stderr
    assert "Kernel features, each tried" in done.stdout
    assert "madv-collapse" in done.stdout


def test_noise_is_measured_and_adds_up() -> None:
    report = json.loads(doctor("--json").stdout)
    (noise,) = (probe["value"] for probe in report["probes"] if probe["name"] == "noise")
    assert 0 < noise["minimum_ns"] <= noise["median_ns"] <= noise["p99_ns"] <= noise["maximum_ns"]
    assert noise["quanta"] > 100
    assert 0 <= noise["slowed_fraction"] < 1
    assert 0 <= noise["preempted_fraction"] < 1


def test_fix_says_what_it_did_and_restore_puts_it_back(tree: FakeTree, tmp_path: Path) -> None:
    # Files of the invented machine are ordinary: words in brackets would be overwritten, so numbers only.
    before = state(tree)
    env = fake(tree, tmp_path)
    done = doctor("--fix", "hugepages=8", "aslr=0", **env)
    assert done.returncode == 0, done.stderr
    assert f"{POOL}: 0 → 8" in done.stdout
    assert f"{ASLR}: 2 → 0" in done.stdout
    assert "to put back: sudo /opt/lab/bin/pagelab doctor --restore" in done.stdout
    told = doctor("--restore", "--dry-run", **env)
    assert f"would write 2 to {ASLR} (now 0)" in told.stdout
    done = doctor("--restore", **env)
    assert done.returncode == 0, done.stderr
    assert state(tree) == before
    assert doctor("--restore", **env).stdout == "nothing to restore\n"


def test_dry_run_touches_nothing(tree: FakeTree, tmp_path: Path) -> None:
    before = state(tree)
    done = doctor("--fix", "thp=always", "--dry-run", **fake(tree, tmp_path))
    assert done.stdout == f"would write always to {THP} (now madvise)\n"
    assert state(tree) == before
    assert not (tmp_path / "journal.jsonl").exists()


def test_a_dry_run_that_has_nothing_to_restore_says_so(tree: FakeTree, tmp_path: Path) -> None:
    """Regression: it printed nothing."""
    assert doctor("--restore", "--dry-run", **fake(tree, tmp_path)).stdout == "nothing to restore\n"


def test_a_dry_run_tells_what_an_ordinary_user_may_not(tree: FakeTree, tmp_path: Path) -> None:
    """Regression: ``--fix … --dry-run`` ended well where the real change was refused."""
    for path in tree.root.rglob("enabled"):
        path.chmod(0o444)
    command = [sys.executable, "-m", "pagelab", "doctor", "--fix", "thp=always", "--dry-run"]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | fake(tree, tmp_path))
    assert "would write always to" in done.stdout
    assert done.returncode == 3
    assert "cannot write /sys/kernel/mm/transparent_hugepage/enabled" in done.stderr


def test_a_dry_run_tells_that_the_journal_cannot_be_locked(tree: FakeTree, tmp_path: Path) -> None:
    """Regression: in a directory that its user may not write a journal has no lock. The dry run ended well, and the
    advice for the real one ("set PAGELAB_JOURNAL to a file you may write") was followed already."""
    place = tmp_path / "journals"
    place.mkdir()
    (place / "journal.jsonl").touch()
    place.chmod(0o555)
    env = os.environ | fake(tree, tmp_path) | {"PAGELAB_JOURNAL": str(place / "journal.jsonl")}
    command = [sys.executable, "-m", "pagelab", "doctor", "--fix", "thp=always"]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    for more in (["--dry-run"], []):
        done = subprocess.run([*command, *more], capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 3, done
        assert f"cannot write {place}/journal.jsonl.lock" in done.stderr
        assert "set PAGELAB_JOURNAL to a file in a directory" in done.stderr


def test_keys_are_listed_as_they_are_typed() -> None:
    """Regression: "hugepages\\[-SIZE]=N", with a backslash."""
    listed = doctor("--keys").stdout
    assert "hugepages[-SIZE]=N" in listed
    assert "\\" not in listed


def test_restore_that_cannot_finish_exits_3_and_says_why(tree: FakeTree, tmp_path: Path) -> None:
    env = fake(tree, tmp_path)
    doctor("--fix", "aslr=0", **env)
    tree.path(ASLR).write_text("1\n")
    done = doctor("--restore", **env)
    assert done.returncode == 3
    assert "is 1, not 0 as pagelab left it" in done.stderr
    assert doctor("--restore", "--force", **env).returncode == 0
    assert tree.get(ASLR) == "2"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fix", "thp=maybe"), "allowed: always, madvise, never"),
        (("--fix", "nonsense=1"), "unknown setting 'nonsense'; keys: "),
        (("hugepages=1",), "pagelab doctor --fix hugepages=1"),
        (("--fix", "aslr=0", "--restore"), "do not go together"),
        (("--print", "lxd"), "allowed: systemd, docker, podman, kubernetes"),
        (("--force",), "--force goes with --restore"),
        (("--dry-run",), "--dry-run goes with"),
    ],
)
def test_bad_input_is_exit_2_with_the_allowed_values(words: tuple[str, ...], said: str) -> None:
    done = doctor(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["systemd", "docker", "podman", "kubernetes"])
def test_print_explains_every_line(kind: str) -> None:
    done = doctor("--print", kind)
    assert done.returncode == 0, done.stderr
    assert "SYS_ADMIN" in done.stdout
    if kind in ("systemd",):
        lines = done.stdout.splitlines()
        settings = [number for number, line in enumerate(lines) if line and line[0] not in "#["]
        assert all(lines[number - 1].startswith("#") or number - 1 in settings for number in settings)


def test_kubernetes_part_is_yaml_and_seccomp_part_is_json() -> None:
    from pagelab.machine import container_requirements

    text = doctor("--print", "kubernetes").stdout
    assert text.startswith("apiVersion: v1\nkind: Pod\n")
    for rule in container_requirements.SECCOMP:
        assert json.dumps(rule) in text


# Other users and containers.


def reachable_python() -> str:
    """A Python of this version that user nobody can run, with everything that pagelab imports."""
    for python in (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        if shutil.which(python) and shutil.which("setpriv"):
            done = doctor("--keys", before=NOBODY, python=python)
            if done.returncode == 0:
                return python
    pytest.skip("user nobody can run no Python that has pagelab (is it below /root?); run: make test as another user")


@needs_root
def test_an_ordinary_user_is_told_what_to_type() -> None:
    python = reachable_python()
    done = doctor("--json", "--no-noise", before=NOBODY, python=python)
    assert done.returncode == 0, done.stderr
    found = {probe["name"]: probe for probe in json.loads(done.stdout)["probes"]}
    assert found["user"]["status"] == "degraded"
    assert found["frame-numbers"]["status"] == "denied"
    assert "run as root: sudo /opt/lab/bin/pagelab …" in found["frame-numbers"]["needs"]
    assert not [probe for probe in found.values() if "the probe failed" in probe["text"]]
    done = doctor("--fix", "hugepages=4", before=NOBODY, python=python)
    assert done.returncode == 3
    assert "run: sudo /opt/lab/bin/pagelab doctor --fix hugepages=4" in done.stderr


@needs_root
def test_root_of_a_user_namespace_is_not_taken_for_root() -> None:
    python = reachable_python()
    inside = [*NOBODY, "unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "--mount-proc"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unprivileged user namespaces are off; run: sysctl kernel.unprivileged_userns_clone=1")
    done = doctor("--json", "--no-noise", before=inside, python=python)
    assert done.returncode == 0, done.stderr
    found = {probe["name"]: probe for probe in json.loads(done.stdout)["probes"]}
    assert found["container"]["status"] == "degraded"
    assert found["user"]["text"] == "root of a user namespace, not of the machine"
    assert found["frame-numbers"]["status"] == "denied"
    assert found["hugetlb-2M"]["status"] == "ok" or found["hugetlb-2M"]["needs"].startswith("on the host: sudo ")
    done = doctor("--fix", "hugepages=4", before=inside, python=python)
    assert done.returncode == 3
    assert "on the host run: sudo" in done.stderr


SECCOMP = """
import ctypes, errno, os, struct, sys
# Refuse userfaultfd (323) and perf_event_open (298) with EPERM, as a container engine's default profile does.
refuse, allow = (0x06, 0, 0, 0x50000 | errno.EPERM), (0x06, 0, 0, 0x7FFF0000)
rules = [(0x20, 0, 0, 0), (0x15, 1, 0, 323), (0x15, 0, 1, 298), refuse, allow]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the test's filter has x86-64 call numbers; run it there")
def test_a_seccomp_refusal_is_told_as_such() -> None:
    done = doctor("--json", "--no-noise", before=[sys.executable, "-c", SECCOMP])
    assert done.returncode == 0, done.stderr
    found = {probe["name"]: probe for probe in json.loads(done.stdout)["probes"]}
    assert (found["seccomp"]["status"], found["seccomp"]["value"]["mode"]) == ("degraded", "2")
    assert "doctor --print docker" in found["seccomp"]["needs"]
    assert found["userfaultfd-move"]["status"] == "denied"
    assert found["perf-paranoid"]["status"] == "denied"
    assert found["madv-collapse"]["status"] in ("ok", "degraded")


@needs_root
@pytest.mark.parametrize("hidden", ["/sys", "/proc", "/proc/sys"])
def test_without_part_of_the_kernels_files(hidden: str) -> None:
    script = f'mount -t tmpfs none {hidden} && exec "$@"'
    done = doctor("--json", "--no-noise", before=["unshare", "--mount", "sh", "-c", script, "sh"])
    assert done.returncode == 0, done.stderr
    found = {probe["name"]: probe for probe in json.loads(done.stdout)["probes"]}
    assert found["madv-populate"]["status"] == "ok"
    assert not [probe for probe in found.values() if "the probe failed" in probe["text"]]
    if hidden == "/sys":
        assert found["thp"]["status"] == "unknown"
        assert "no /sys here" in found["thp"]["text"]
    else:
        assert found["aslr"]["status"] == "unknown"


@needs_root
def test_a_read_only_sys_is_told_even_to_root() -> None:
    script = 'mount -o remount,bind,ro /sys && exec "$@"'
    done = doctor("--fix", "hugepages=1", before=["unshare", "--mount", "sh", "-c", script, "sh"])
    assert done.returncode == 3
    assert "not writable, even for root" in done.stderr
