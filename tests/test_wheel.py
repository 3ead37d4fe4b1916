"""The wheel that ``make wheel`` leaves in ``dist``: for all Pythons, small, whole, installed without a compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOST_BYTES = 5_200_000
NATIVE = {
    "pagelab/_native.abi3.so",
    "pagelab/libpagelab.abi3.so",
    "pagelab/libpagelab_qemu.abi3.so",
    "scripts/pagelab-launch",
    "scripts/pagelab-workload",
}


@pytest.fixture(scope="module")
def wheel() -> Path:
    found = sorted((ROOT / "dist").glob("pagelab-*.whl"), key=lambda path: path.stat().st_mtime)
    if not found:
        pytest.skip("there is no wheel; run: make wheel")
    return found[-1]


def inside(name: str) -> str:
    """As it is installed: ``scripts/pagelab-launch``, ``data/share/…``, ``pagelab/…``."""
    return re.sub(r"^pagelab-[^/]+\.data/(purelib/|platlib/)?", "", name)


def glibc(tag: str) -> tuple[int, int]:
    found = re.search(r"manylinux_(\d+)_(\d+)_x86_64", tag)
    assert found is not None, tag
    return int(found[1]), int(found[2])


def test_it_is_for_every_python_and_says_which_systems_it_runs_on(wheel: Path) -> None:
    assert re.fullmatch(r"pagelab-[\w.]+-cp311-abi3-manylinux_\d+_\d+_x86_64(\.[\w.]+)?\.whl", wheel.name), wheel.name
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
        tags = [line.split(": ")[1] for line in archive.read(name).decode().splitlines() if line.startswith("Tag: ")]
    assert tags
    assert all(tag.startswith("cp311-abi3-manylinux_") for tag in tags)


def test_it_is_small_and_whole(wheel: Path) -> None:
    assert wheel.stat().st_size <= MOST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        names = {inside(name) for name in archive.namelist()}
    assert names >= NATIVE
    assert {f"pagelab/include/{name}" for name in ("pagelab.h", "pagelab_kernel.c")} <= names
    share = {str(path.relative_to(ROOT)) for path in (ROOT / "share").rglob("*") if path.is_file()}
    assert {f"data/{name}" for name in share} <= names
    assert not [name for name in names if name.endswith((".rs", ".c.o")) or "/target/" in name]


def test_its_native_parts_are_stripped_and_need_no_newer_system_than_the_tag_says(wheel: Path, tmp_path: Path) -> None:
    allowed = min(glibc(tag) for tag in re.findall(r"manylinux_\d+_\d+_x86_64", wheel.name))
    libraries = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "libpthread.so.0", "libdl.so.2"}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if inside(name) not in NATIVE:
                continue
            path = Path(archive.extract(name, tmp_path))
            dynamic = subprocess.run(["objdump", "-p", str(path)], capture_output=True, text=True, check=True).stdout
            versions = [tuple(map(int, one.split("."))) for one in re.findall(r"GLIBC_(\d+\.\d+)", dynamic)]
            assert max(versions)[:2] <= allowed, name
            assert set(re.findall(r"NEEDED\s+(\S+)", dynamic)) <= libraries, name
            sections = subprocess.run(["objdump", "-h", str(path)], capture_output=True, text=True, check=True).stdout
            assert ".debug_info" not in sections
            assert ".symtab" not in sections


def test_it_is_installed_and_runs_without_a_compiler(wheel: Path, tmp_path: Path) -> None:
    """Into a new environment, with nothing on the path but Python's own directory and the system's shell."""
    place = tmp_path / "new"
    # What the package depends on is this environment's: fetching it would test the network.
    venv.EnvBuilder(with_pip=True).create(place)
    (tmp_path / "bin").mkdir()
    env = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), "PIP_NO_INDEX": "1"}
    python = str(place / "bin" / "python")
    subprocess.run(
        [python, "-m", "pip", "install", "--no-deps", "--only-binary", ":all:", str(wheel)],
        env=env,
        check=True,
        capture_output=True,
    )
    own = subprocess.run(
        [sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (site,) = place.glob("lib/python*/site-packages")
    # Behind its own, so that the installed package is what is imported.
    (site / "others.pth").write_text(f"{own}\n")
    said = subprocess.run(
        [python, "-c", "import pagelab, pagelab._native; from pagelab import paths; print(paths.library())"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.startswith(str(place))
    ran = subprocess.run(
        [str(place / "bin" / "pagelab"), "run", "--pages", "4K", "--json", "--", "/bin/true"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert '"status": "ok"' in ran.stdout or '"status":"ok"' in ran.stdout
    for name in ("share/man/man1/pagelab.1", "share/bash-completion/completions/pagelab"):
        assert (place / name).is_file()
    assert os.access(place / "bin" / "pagelab-workload", os.X_OK)
