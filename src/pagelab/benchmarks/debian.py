"""Which Debian package has a program that a benchmark needs."""

from __future__ import annotations

PACKAGES = {
    "bzip2": "bzip2",
    "cjpeg": "libjpeg-turbo-progs",
    "djpeg": "libjpeg-turbo-progs",
    "gcc": "gcc",
    "gzip": "gzip",
    "java": "default-jdk-headless",
    "javac": "default-jdk-headless",
    "lua5.4": "lua5.4",
    "node": "nodejs",
    "optipng": "optipng",
    "perl": "perl-base",
    "pypy3": "pypy3",
    "python3": "python3",
    "sqlite3": "sqlite3",
    "xz": "xz-utils",
    "zstd": "zstd",
}


def advice(programs: list[str]) -> str:
    """What is missing and the command that installs it, as one phrase."""
    packages = list(dict.fromkeys(PACKAGES[program] for program in programs if program in PACKAGES))
    missing = f"{', '.join(programs)} {'is' if len(programs) == 1 else 'are'} not installed"
    return f"{missing}; Debian: apt install {' '.join(packages)}" if packages else missing
