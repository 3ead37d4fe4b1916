"""Who the program runs as, what is changed on the machine for it, and what is put back."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.guests import Workshop
from harness.launching import Runner, capable, open_to_all
from harness.packages import need
from harness.processes import children_of
from pagelab import machine, paths
from pagelab.machine import container_requirements
from pagelab.record import Record, WarningKind

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root; run: sudo make test")
PYTHON = os.path.realpath(sys.executable)
NOBODY = 65534
BDI = Path("/sys/class/bdi")


def readahead() -> dict[str, str]:
    return {path.parent.name: path.read_text().strip() for path in sorted(BDI.glob("*/read_ahead_kb"))}


def launch(
    request: dict[str, object], place: Path, **how: object
) -> tuple[subprocess.CompletedProcess[str], Record | None]:
    """Calls the launcher itself, for what a test must do to *its* process."""
    record = place / "record.json"
    document = {"schema": "pagelab.request/1", "record": str(record)} | request
    done = subprocess.run(
        [str(paths.launcher())], input=json.dumps(document), capture_output=True, text=True, check=False, **how
    )
    return done, Record.model_validate_json(record.read_text()) if record.exists() else None


# --- users ----------------------------------------------------------------------------------------------------


@AS_ROOT
def test_counters_of_a_launcher_with_rights_of_its_own_are_not_handed_over(run_under: Runner, everyones: Path) -> None:
    """Its user could not have opened them for the kernel's part; without file capabilities they are his own."""
    run_under.launcher = everyones / "launcher"
    shutil.copy(paths.launcher(), run_under.launcher)
    run_under.prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    files = {name: str(everyones / name) for name in ("stdout", "stderr", "record")}

    def handed() -> bool:
        run = run_under("", ["ls", "/proc/self/fd"], events=["faults.minor"], **files).succeeded()
        return "1008" in run.stdout.split()

    if not handed():
        pytest.skip("an ordinary user can count nothing here; run: sudo sysctl kernel.perf_event_paranoid=2")
    capable(run_under.launcher, 21, 38)  # CAP_SYS_ADMIN, CAP_PERFMON
    assert not handed()


@AS_ROOT
def test_the_program_runs_as_the_user_asked_for_without_any_capability(run_under: Runner) -> None:
    run = run_under("", ["cat", "/proc/self/status"], user="nobody").succeeded()
    status = dict(line.split(":\t", 1) for line in run.stdout.splitlines() if ":\t" in line)
    assert set(status["Uid"].split()) == {str(NOBODY)}
    assert set(status["Gid"].split()) == {str(NOBODY)} == set(status["Groups"].split())
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[kind], 16) == 0, kind
    assert status["NoNewPrivs"] == "0"
    assert (run.the_record.settings.uid, run.the_record.settings.gid) == (NOBODY, NOBODY)


@AS_ROOT
@pytest.mark.parametrize("right", container_requirements.USER_CHANGE)
def test_without_a_right_that_another_user_takes_it_is_refused_at_once(run_under: Runner, right: str) -> None:
    """Regression: no place for the run directory was good enough, or a time-out ended nothing and said it had."""
    run_under.prefix = (need("setpriv"), f"--bounding-set=-{right.lower()}", f"--inh-caps=-{right.lower()}")
    run = run_under("", ["true"], user="nobody")
    assert (run.launcher_exit, run.record) == (3, None), run.story()
    assert f"cannot run the program as nobody: root needs CAP_{right} for this" in run.launcher_stderr


@AS_ROOT
def test_the_unit_that_doctor_prints_can_run_as_another_user(run_under: Runner) -> None:
    lines = container_requirements.text("systemd", machine.describe()).splitlines()
    allowed = next(line for line in lines if line.startswith("CapabilityBoundingSet=")).partition("=")[2]
    kept = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in allowed.split())
    run_under.prefix = (need("setpriv"), f"--bounding-set=-all,{kept}", "--inh-caps=-all")
    run_under("", ["true"], user="nobody").succeeded()


@AS_ROOT
def test_a_time_out_that_may_not_end_the_program_does_not_say_it_did(
    run_under: Runner, workshop: Workshop, everyones: Path
) -> None:
    source = everyones / "becomes_root.c"
    source.write_text("#include <unistd.h>\nint main(void) { return setuid(0) || usleep(700000); }\n")
    program = workshop.compile(source, str(everyones / "becomes_root"))
    program.chmod(0o4755)
    if os.statvfs(program).f_flag & os.ST_NOSUID:
        pytest.skip(f"no program changes its user on this file system; run with another TMPDIR than {everyones}")
    run_under.prefix = (need("setpriv"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    files = {name: str(everyones / name) for name in ("stdout", "stderr", "record")}
    run = run_under("", ["sh", "-c", f"exec {program}"], preload="never", timeout_s=0.2, **files)
    assert run.the_record.outcome.status == "timed-out", run.story()
    said = "the time-out of 0.2 s could not end it: kill: "
    assert (run.the_record.outcome.message or "").startswith(said), run.story()
    assert "it ended by itself (exit code 0)" in (run.the_record.outcome.message or "")


@AS_ROOT
def test_under_sudo_the_program_runs_as_the_one_who_called_it(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    environment = os.environ | {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}
    request = {"argv": ["id", "-u"], "preload": "never", "stdout": str(tmp_path / "out")}
    _, record = launch(request, tmp_path, env=environment)
    assert record is not None
    assert (tmp_path / "out").read_text() == f"{NOBODY}\n"
    assert (tmp_path / "out").stat().st_uid == NOBODY, "files are opened with the program's rights, not the launcher's"


@AS_ROOT
def test_files_the_user_may_not_write_are_not_written_for_him(tmp_path: Path) -> None:
    protected = tmp_path / "protected"
    protected.write_text("precious\n")
    protected.chmod(0o600)
    open_to_all(tmp_path)
    done, record = launch(
        {"argv": ["echo", "x"], "user": "nobody", "preload": "never", "stdout": str(protected)}, tmp_path
    )
    assert (done.returncode, record) == (2, None)
    assert "EACCES" in done.stderr
    assert protected.read_text() == "precious\n"


def test_too_few_descriptors_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))

    request = {"argv": ["true"], "preload": "never", "stdout": "null"}
    done, record = launch(request, tmp_path, preexec_fn=few)
    assert (done.returncode, record) == (3, None), done.stderr
    assert "number above 255" in done.stderr
    assert "run: ulimit -n 1024" in done.stderr


def test_an_unknown_user_is_refused(run_under: Runner) -> None:
    run = run_under("", ["true"], user="no-such-user-here")
    assert (run.launcher_exit, run.record) == (2, None)
    assert "getent passwd" in run.launcher_stderr


@AS_ROOT
def test_without_privileges_everything_that_needs_none_works(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    request = {
        "argv": ["sh", "-c", "ls / | wc -l"],
        "policy_toml": "",
        "preload": "never",
        "events": ["faults"],
        "aslr": False,
        "cpus": [min(os.sched_getaffinity(0))],
        "stdout": "null",
    }
    done, record = launch(request, tmp_path, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
    assert record is not None, done.stderr
    assert record.outcome.status == "ok"
    assert record.settings.uid == NOBODY
    minor = next(counter for counter in record.counters if counter.name == "faults.minor")
    assert minor.status in ("ok", "denied")
    assert minor.status == "denied" or (minor.count or 0) > 0
    refused, _ = launch(
        request | {"user": "root", "record": str(tmp_path / "other")},
        tmp_path,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
    )
    assert refused.returncode == 3
    assert "sudo" in refused.stderr
    assert not (tmp_path / "other").exists()


# --- settings -------------------------------------------------------------------------------------------------


@AS_ROOT
def test_readahead_is_off_for_demand_and_put_back(run_under: Runner) -> None:
    before = readahead()
    if not any(int(value) for value in before.values()):
        pytest.skip("no device here has readahead; run: echo 128 > /sys/class/bdi/*/read_ahead_kb")
    show = ["sh", "-c", "cat /sys/class/bdi/*/read_ahead_kb"]
    run = run_under('fetch = "demand"', show).succeeded()
    assert set(run.stdout.split()) == {"0"}
    fetch = run.the_record.fetch
    assert {name: str(value) for name, value in fetch.readahead_kb_before.items()} == before
    assert set(fetch.readahead_kb_during.values()) == {0}
    assert readahead() == before
    left_alone = run_under('fetch = "demand"', show, control_readahead=False).succeeded()
    assert set(left_alone.stdout.split()) != {"0"}


@AS_ROOT
@pytest.mark.parametrize("victim", ["guard", "launcher"])
def test_readahead_is_put_back_after_sigkill(tmp_path: Path, victim: str) -> None:
    before, ready = readahead(), tmp_path / "ready"
    request = tmp_path / "request.json"
    document = {
        "schema": "pagelab.request/1",
        "argv": ["sh", "-c", f"echo > {ready}; exec sleep 600"],
        "policy_toml": 'fetch = "demand"',
        "library": str(paths.library()),
        "stdout": "null",
        "record": str(tmp_path / "record.json"),
    }
    request.write_text(json.dumps(document))
    guard = subprocess.Popen([str(paths.launcher()), str(request)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(readahead().values()) == {"0"}
    (launcher,) = children_of(guard.pid)
    os.kill(guard.pid if victim == "guard" else launcher, signal.SIGKILL)
    guard.wait()
    while readahead() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert readahead() == before


@AS_ROOT
def test_without_root_readahead_is_a_warning_and_the_run_goes_on(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    library = tmp_path / "libpagelab.so"
    library.write_bytes(paths.library().read_bytes())
    library.chmod(0o755)
    request = {"argv": ["true"], "policy_toml": 'fetch = "demand"', "library": str(library), "stdout": "null"}
    done, record = launch(request, tmp_path, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
    assert record is not None, done.stderr
    assert record.outcome.status == "ok"
    assert WarningKind.READAHEAD_NOT_CONTROLLED in {warning.kind for warning in record.warnings}


def mthp_switches() -> dict[str, str]:
    files = Path("/sys/kernel/mm/transparent_hugepage").glob("hugepages-*/enabled")
    return {path.parent.name: path.read_text().strip() for path in sorted(files)}


@AS_ROOT
@pytest.mark.switches_page_sizes
def test_a_policy_with_one_mthp_size_switches_it_on_alone_and_puts_all_back(run_under: Runner) -> None:
    before = mthp_switches()
    if "hugepages-64kB" not in before:
        pytest.skip("this kernel has no 64K pages for anonymous memory; needs Linux 6.8")
    show = ["grep", "-H", "", *(str(path) for path in Path("/sys/kernel/mm/transparent_hugepage").glob("*/enabled"))]
    run = run_under('pages = "64K"', show).succeeded()
    during = {line.split("/")[-2]: line.split(":", 1)[1] for line in run.stdout.splitlines()}
    assert "[madvise]" in during.pop("hugepages-64kB")
    assert all("[never]" in value for value in during.values()), during
    assert mthp_switches() == before


# --- the page cache -------------------------------------------------------------------------------------------


def cached_pages(path: Path) -> int:
    """By mincore(2), independently of the launcher."""
    import mmap

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages = (len(mapped) + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        vector = ctypes.create_string_buffer(pages)
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        assert libc.mincore(address, len(mapped), vector) == 0, ctypes.get_errno()
        return sum(byte & 1 for byte in vector.raw[:pages])


def test_named_files_are_cold_when_the_program_starts(run_under: Runner) -> None:
    # Beside this file, since /tmp may be a tmpfs, whose files are nowhere but in the page cache.
    data = Path(__file__).with_name(f"flush-{os.getpid()}.tmp")
    try:
        data.write_bytes(os.urandom(1 << 20))
        assert cached_pages(data) == 256
        run = run_under("", ["true"], flush={"mode": "files", "files": [str(data)]}).succeeded()
        assert cached_pages(data) == 0
        assert WarningKind.CACHE_NOT_FLUSHED not in run.kinds()
        assert run.the_record.settings.flush == "files"
    finally:
        data.unlink(missing_ok=True)


def test_a_file_to_flush_that_the_program_makes_is_told(run_under: Runner, tmp_path: Path) -> None:
    """Regression: a study whose program makes the file in its first run could not begin."""
    run = run_under("", ["true"], flush={"mode": "files", "files": [str(tmp_path / "later")]}).succeeded()
    assert WarningKind.CACHE_NOT_FLUSHED in run.kinds()


@pytest.mark.parametrize("path", ["/tmp", "/dev/null"])
def test_what_is_no_file_to_flush_is_refused(path: str, run_under: Runner) -> None:
    run = run_under("", ["true"], flush={"mode": "files", "files": [path]})
    assert (run.launcher_exit, run.record) == (2, None), run.story()
    assert f"cannot drop {path} from the page cache: " in run.launcher_stderr


# --- sandboxes ------------------------------------------------------------------------------------------------


def refuse_perf_event_open() -> None:
    """A seccomp filter in this process and its children: perf_event_open fails with EPERM, as under Docker."""
    number = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
    load, jump_equal, give = 0x20, 0x15, 0x06
    program = b"".join(
        struct.pack("HBBI", *line)
        for line in [
            (load, 0, 0, 0),
            (jump_equal, 0, 1, number),
            (give, 0, 0, 0x00050000 | 1),
            (give, 0, 0, 0x7FFF0000),
        ]
    )
    code = ctypes.create_string_buffer(program, len(program))
    filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(code)), 16)
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(filter_)), 0, 0) == 0  # PR_SET_SECCOMP, filter


def test_a_seccomp_refusal_is_reported_as_one(tmp_path: Path) -> None:
    request = {"argv": ["true"], "preload": "never", "events": ["faults"], "stdout": "null"}
    done, record = launch(request, tmp_path, preexec_fn=refuse_perf_event_open)
    assert record is not None, done.stderr
    assert record.outcome.status == "ok", "counters are no reason not to run"
    assert {counter.status for counter in record.counters} == {"denied"}
    assert all(counter.count is None for counter in record.counters)
    (warning,) = [w for w in record.warnings if w.kind == WarningKind.COUNTER_UNAVAILABLE]
    assert "seccomp" in warning.message
