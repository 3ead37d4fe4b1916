"""The system packages of ``tests/packages.txt``: missing ones, and their installation. Needs only Python itself.

``python3 packages.py setup`` looks for what building pagelab needs, ``python3 packages.py tests`` for what the tests
need too, ``reboots`` for what ``tests/reboots/packages.txt`` lists besides, ``kernel`` and ``kernel-deb`` for what
``kernel/packages.txt`` lists; `make` calls it before it builds anything.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LIST = ROOT / "tests" / "packages.txt"
KERNEL_LIST = ROOT / "kernel" / "packages.txt"
REBOOTS_LIST = ROOT / "tests" / "reboots" / "packages.txt"
_APT = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600"]


@dataclass(frozen=True)
class Package:
    """One row of the list. ``looked_for``: all of them must be there, each in one of its alternatives."""

    purpose: str
    name: str
    looked_for: tuple[str, ...]
    reason: str

    def is_here(self) -> bool:
        return all(any(map(_found, word.split("|"))) for word in self.looked_for)

    @property
    def programs(self) -> list[str]:
        words = [alternative for word in self.looked_for for alternative in word.split("|")]
        return [word for word in words if not word.startswith(("/", "python:"))]


@cache
def packages(path: Path = LIST) -> tuple[Package, ...]:
    """A list, in its order."""
    rows = []
    for line in path.read_text().splitlines():
        columns, _, reason = line.partition("#")
        if columns.strip():
            purpose, name, *looked_for = columns.split()
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            rows.append(Package(purpose, name.format(version=version), tuple(looked_for), reason.strip()))
    return tuple(rows)


def find(program: str) -> str | None:
    """Path of a program; those for administrators are not on everybody's PATH."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


def providing(program: str) -> str:
    """The package that has a program, by the list."""
    found = [package.name for package in packages() if program in package.programs]
    assert found, f"{program} is in no row of {LIST.relative_to(ROOT)}: add its package"
    return found[0]


def need(program: str) -> str:
    """Path of a program that the full run must have: a missing one fails, it does not skip (STYLE 21)."""
    package, found = providing(program), find(program)
    assert found, f"{program} is missing; run: apt-get install {package}"
    return found


def _found(word: str) -> bool:
    if word.startswith("/"):
        return next(Path("/").glob(word[1:]), None) is not None
    if word.startswith("python:"):
        try:
            return importlib.util.find_spec(word.removeprefix("python:")) is not None
        except ModuleNotFoundError:  # the package around the module
            return False
    return find(word) is not None


def _missing(purposes: list[str]) -> list[Package]:
    paths = [KERNEL_LIST] if purposes[0].startswith("kernel") else [LIST]
    paths += [REBOOTS_LIST] if "reboots" in purposes else []
    return [
        package for path in paths for package in packages(path) if package.purpose in purposes and not package.is_here()
    ]


def _names(missing: list[Package]) -> list[str]:
    return list(dict.fromkeys(package.name for package in missing))


def _rust() -> str | None:
    """The fault of the Rust toolchain; None without one."""
    wanted = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    least = tuple(map(int, wanted.split(".")))
    for program in ("cargo", "rustc"):
        if shutil.which(program) is None:
            return f"Rust {wanted} or newer is needed, and {program} is missing; see https://rustup.rs"
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        version = re.search(r"(\d+)\.(\d+)", answer.stdout)
        if version is None:
            return f"Rust {wanted} or newer is needed, and `{program} --version` fails: {answer.stderr.strip()}"
        if tuple(map(int, version.groups())) < least:
            found = answer.stdout.strip()
            return (
                f"Rust {wanted} or newer is needed, and here is {found}; run: rustup update, or see https://rustup.rs"
            )
    return None


def _install(missing: list[Package]) -> str | None:
    """Installs without asking anything; returns the error, None if there was none."""
    names = _names(missing)
    print(f"installing {' '.join(names)} ...", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *names]):
        done = subprocess.run(
            [*_APT, *command], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            return f"apt-get {command[0]} failed: {done.stderr.strip()}"
    return None


def main(purpose: str) -> int:
    # Neither the kernel nor its tests are written in Rust.
    trouble = None if purpose.startswith("kernel") else _rust()
    if trouble:
        print(f"pagelab: {trouble}", file=sys.stderr)
        return 1
    purposes = {
        "setup": ["setup"],
        "tests": ["setup", "tests"],
        "reboots": ["setup", "reboots"],
        "kernel": ["kernel-build", "kernel"],
        "kernel-deb": ["kernel-build", "kernel-deb"],
    }[purpose]
    missing = _missing(purposes)
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        trouble = _install(missing)
        if trouble:
            print(f"pagelab: {trouble}", file=sys.stderr)
        importlib.invalidate_caches()
        missing = _missing(purposes)
    if missing:
        print(f"pagelab: packages are missing; run: sudo apt-get install {' '.join(_names(missing))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
