"""Files and names that another user, or the measured program, may have put in a place of pagelab's own."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pagelab import foreign_files, whole_file
from pagelab.errors import cannot_write
from pagelab.machine.colours.store import stored
from pagelab.placement import governed
from pagelab.report import write
from pagelab.simulate import tables
from pagelab.study.on_host import _end_of
from pagelab.study.pair import _last_line
from pagelab.study.prepare import OUTPUT

PUT: dict[str, Callable[[Path], None]] = {
    "a FIFO": os.mkfifo,
    "a link to an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a link to a file": lambda path: path.symlink_to("/etc/passwd"),
    "a directory": Path.mkdir,
}


@pytest.mark.parametrize("put", PUT.values(), ids=PUT.keys())
def test_nothing_but_a_regular_file_is_read(put: Callable[[Path], None], tmp_path: Path) -> None:
    put(tmp_path / "file")
    for read in (foreign_files.read, lambda path: foreign_files.read_end(path, 10)):
        with pytest.raises(OSError, match=r"not a regular file|Too many levels|is a directory|Is a directory"):
            read(tmp_path / "file")


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert foreign_files.read(tmp_path / "file") == b"0123456789"
    assert foreign_files.read(tmp_path / "file", 3) == b"012"
    assert foreign_files.read_end(tmp_path / "file", 3) == b"789"
    assert foreign_files.read_end(tmp_path / "file", 30) == b"0123456789"


@pytest.mark.parametrize("put", PUT.values(), ids=PUT.keys())
def test_error_output_that_a_program_exchanged_does_not_hold_pagelab(
    put: Callable[[Path], None], tmp_path: Path
) -> None:
    """Regression: `try` waited for ever for a writer of the FIFO in place of a failed program's error output."""
    (tmp_path / OUTPUT).mkdir()
    put(tmp_path / OUTPUT / "run-000003.stderr")
    assert _last_line(tmp_path, 3) == ""
    assert _end_of(tmp_path / OUTPUT / "run-000003.stderr") is None


@pytest.mark.parametrize("put", PUT.values(), ids=PUT.keys())
def test_a_stored_verdict_that_is_no_file_is_none(
    put: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: `pagelab run` as root, with its user's home, hung before the program began."""
    monkeypatch.setattr("pagelab.machine.colours.store.place", lambda name: tmp_path / name)
    put(tmp_path / "colours.json")
    assert stored([]) is None


def test_modules_of_the_working_directory_are_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('the wrong typer')\n")
    done = subprocess.run(
        [sys.executable, "-m", "pagelab", "--version"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("pagelab ")


@pytest.mark.parametrize("trap", ["", "trap '' TERM;"])
def test_a_program_is_ended_by_its_descriptor(trap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: signals went to the number of a process, which another one had by then."""
    monkeypatch.setattr(governed, "_PATIENCE_MS", 300)
    with subprocess.Popen(["sh", "-c", f"{trap} echo; while :; do sleep 0.01; done"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = os.pidfd_open(child.pid)
        assert governed._end(process) == 0
        assert child.wait(5) == -(signal.SIGKILL if trap else signal.SIGTERM)
        assert governed._end(process) == 0, "there is nothing to end any more"
        os.close(process)


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """Regression: a table for /dev/stdout replaced this link, as root for the whole machine."""
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        whole_file.put(tmp_path / "pipe", "text")
        assert reader.communicate(timeout=5)[0] == "text"
    assert stat.S_ISFIFO((tmp_path / "pipe").lstat().st_mode)
    code = "from pathlib import Path; from pagelab import whole_file; whole_file.put(Path('/dev/stdout'), 'text')"
    before = Path("/dev/stdout").readlink()
    for how in ("", f"> {tmp_path / 'kept'}; cat {tmp_path / 'kept'}"):
        done = subprocess.run(
            ["sh", "-c", f'"$0" -c "$1" {how}', sys.executable, code], capture_output=True, text=True, check=True
        )
        assert done.stdout == "text"
    assert Path("/dev/stdout").readlink() == before


def test_names_of_files_may_be_as_long_as_the_system_allows(tmp_path: Path) -> None:
    whole_file.put(tmp_path / ("x" * 255), "text")
    assert [len(each.name) for each in tmp_path.iterdir()] == [255]


@pytest.mark.parametrize("name", ["link", "/dev/stdout"])
def test_a_record_for_an_open_file_is_written_to_it(name: str, tmp_path: Path) -> None:
    """Regression: a link to it was replaced by a file, as root /dev/stdout for the whole machine."""
    (tmp_path / "link").symlink_to("/proc/self/fd/1")
    before = Path("/dev/stdout").readlink()
    command = f'"$0" -m pagelab run --quiet --output {name} --json -- true > kept; test -s kept'
    subprocess.run(["sh", "-c", command, sys.executable], cwd=tmp_path, check=True)
    assert (tmp_path / "link").is_symlink()
    assert Path("/dev/stdout").readlink() == before


def test_two_reports_at_once_are_told_apart_from_a_full_disk(tmp_path: Path) -> None:
    parent = foreign_files.open_directory(tmp_path)
    new = foreign_files.PrivateDirectory(parent, ".report-")
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").touch()
    with pytest.raises(OSError, match="another process changed it meanwhile"):
        write._swap(parent, new, "report", None)
    new.remove()
    assert [each.name for each in tmp_path.iterdir()] == ["report"]


@pytest.mark.parametrize("target", ["precious", "fd/precious", "/proc/self/fd/1"])
def test_links_in_a_directory_that_is_known_by_its_descriptor_are_replaced(target: str, tmp_path: Path) -> None:
    """Regression: what lies below /proc/self/fd/N was taken for an open file, and links there were followed."""
    (tmp_path / "fd").mkdir()
    for precious in (tmp_path / "precious", tmp_path / "fd" / "precious"):
        precious.write_text("root's own")
    (tmp_path / "link").symlink_to(target)
    if target.startswith("/proc"):
        if os.geteuid() != 0:
            pytest.skip("makes another user's link; run: sudo make test")
        os.chown(tmp_path / "link", 65534, 65534, follow_symlinks=False)
    place = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    whole_file.put(Path(f"/proc/self/fd/{place}/link"), "text")
    os.close(place)
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "link").read_text() == "text"
    assert (tmp_path / "precious").read_text() == (tmp_path / "fd" / "precious").read_text() == "root's own"


@pytest.mark.parametrize("name", [".", "sub/", "sub/."])
def test_a_directory_is_no_place_for_a_record(name: str, tmp_path: Path) -> None:
    """Regression: a fault of pagelab's own was told, after the run."""
    (tmp_path / "sub").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "pagelab", "run", "-q", "--output", name, "--", "true"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "it is a directory; name a file" in done.stderr


def test_map_replaces_a_link_in_the_place_of_its_output(tmp_path: Path) -> None:
    """Regression: the map was written through links that another user had put there, as root to any file."""
    precious = tmp_path / "precious"
    precious.write_text("root's own")
    for name in ("map.json", "map.svg"):
        (tmp_path / name).symlink_to(precious)
    subprocess.run(
        [sys.executable, "-m", "pagelab", "map", "-o", "map.json", "--picture", "map.svg", "--", "true"],
        cwd=tmp_path, capture_output=True, check=True,
    )  # fmt: skip
    assert precious.read_text() == "root's own"
    assert '"regions"' in (tmp_path / "map.json").read_text()
    assert "<svg" in (tmp_path / "map.svg").read_text()


def test_an_output_keeps_the_permissions_of_the_callers_own_file(tmp_path: Path) -> None:
    """A map as root has frame numbers: who prepared a private file for it does not publish them."""
    (tmp_path / "own").write_text("before")
    (tmp_path / "own").chmod(0o600)
    whole_file.put(tmp_path / "own", "text")
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o600
    with pytest.raises(IsADirectoryError):
        whole_file.put(Path("/"), "text")


@pytest.mark.skipif(os.geteuid() != 0, reason="makes another user's FIFO; run: sudo make test")
def test_nothing_is_written_to_anothers_fifo(tmp_path: Path) -> None:
    """Regression: it was replaced, and whoever read it waited for ever."""
    os.mkfifo(tmp_path / "pipe")
    os.chown(tmp_path / "pipe", 65534, 65534)
    done = subprocess.run(
        [sys.executable, "-m", "pagelab", "map", "-o", "pipe", "--", "true"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "not this user's" in done.stderr
    assert stat.S_ISFIFO((tmp_path / "pipe").lstat().st_mode)


def test_figures_replace_links(tmp_path: Path) -> None:
    """Regression: as of maps, in the directory of `simulate paging --out`."""
    precious = tmp_path / "precious"
    precious.write_text("root's own")
    for kind in ("svg", "png", "html"):
        (tmp_path / f"figure.{kind}").symlink_to(precious)
    tables.write_figure({"data": {"values": [{"x": 1}]}, "mark": "point", "encoding": {}}, tmp_path / "figure")
    assert precious.read_text() == "root's own"


IN_PLACE = """
mount --bind seen.json mounted.json || exit 77
{python} -c 'from pathlib import Path; from pagelab import whole_file; whole_file.put(Path("mounted.json"), "new")'
"""


def test_a_file_on_which_one_is_mounted_gets_the_content(tmp_path: Path) -> None:
    """Regression: the output in a container's ``-v FILE:FILE`` was refused as busy, with the advice to make room."""
    (tmp_path / "seen.json").write_text("what was there before")
    (tmp_path / "mounted.json").touch()
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", IN_PLACE.format(python=sys.executable)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seen.json").read_text() == "new"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["mounted.json", "seen.json"]


@pytest.mark.parametrize(
    ("number", "exit_code", "advice"),
    [
        (errno.ENOSPC, 3, "make room, or name another place; run: df -h '/a b'"),
        (errno.EROFS, 3, "name a place that can be written to; run: findmnt -T '/a b'"),
        (errno.EACCES, 2, "run: ls -ld '/a b'"),
        (errno.ENOENT, 2, "run: ls -ld '/a b'"),
    ],
)
def test_what_cannot_be_written_is_told_with_the_next_command(number: int, exit_code: int, advice: str) -> None:
    """Regression: a picture on a full disk named none."""
    found = cannot_write(Path("/a b/x.svg"), OSError(number, os.strerror(number)), "the picture")
    assert str(found) == f"cannot write the picture /a b/x.svg: {os.strerror(number)} (errno {number}); {advice}"
    assert found.exit_code == exit_code
