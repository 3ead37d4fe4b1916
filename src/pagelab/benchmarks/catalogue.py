"""The bundled benchmarks as workloads of a study. Pure data: the caller checks whether this machine has the programs.

Names are stable, since labels in stores contain them. Every benchmark has all of :data:`FACTORS`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path

Scalar = str | int | float | bool

FACTORS = ("benchmark", "granularity", "problem", "language", "jit", "cache", "size", "memory")
"""The factors of ALLOC's balanced experiments (4.3) except the platform; ``none`` if one does not apply."""
ALLOWED: dict[str, tuple[str, ...]] = {
    "cache": ("L1", "L2", "L3"),
    "size": ("half", "equal", "double"),
    "memory": ("once", "each"),
    "optimise": ("-O0", "-O1", "-O2", "-O3", "-Os"),
    "source": ("lexer", "machine", "records", "matrix", "hashes", "strings", "states", "trees", "functions"),
}
"""Allowed values of the benchmarks' own parameters."""
_DEFAULTS: dict[str, Sequence[Scalar]] = {
    "cache": ("L2",),
    "size": ALLOWED["size"],
    "memory": ALLOWED["memory"],
    "optimise": ("-O0", "-O2", "-O3", "-Os"),
    "source": ALLOWED["source"],
}
_IN = "{out}/inputs"
_MEASUREMENTS = "{measurements}"


@dataclass(frozen=True)
class Benchmark:
    """One bundled benchmark."""

    name: str
    set_name: str
    command: tuple[str, ...]
    factors: Mapping[str, str]
    metric: str = "wall_s"
    parameters: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    """Kinds of input that it needs (:mod:`pagelab.benchmarks.inputs`)."""
    scripts: tuple[str, ...] = field(default=())
    """Files of ``managed/`` that it runs unchanged."""

    def workload(self, study: Mapping[str, Sequence[Scalar]], measurements: int) -> dict[str, object]:
        """The workload in the form of study.toml; the study's own parameters replace the defaults."""
        return {
            "name": self.name,
            "command": [str(measurements) if word == _MEASUREMENTS else word for word in self.command],
            "metric": self.metric,
            "needs": list(self.needs),
            "factors": {name: self.factors.get(name, "none") for name in FACTORS},
            "parameters": {name: list(study.get(name, _DEFAULTS[name])) for name in self.parameters},
        }

    def files(self) -> list[Path]:
        """The files of this package that it runs; they count as inputs of the study."""
        return [managed(name) for name in self.scripts]


def managed(name: str) -> Path:
    """A file of ``managed/`` in the installed package."""
    return Path(str(files("pagelab.benchmarks").joinpath("managed", name)))


def _native(name: str, words: str, measure: str, *, sized: bool = True) -> Benchmark:
    how = ("--bytes", "{bytes}", "--memory", "{memory}") if sized else ()
    factors = {"benchmark": name, "granularity": "operation", "problem": "numerical", "language": "native"}
    sizes = {"cache": "{cache}", "size": "{size}", "memory": "{memory}"} if sized else {}
    return Benchmark(
        name,
        "native",
        ("pagelab-workload", *words.split(), *how, "--repetitions", _MEASUREMENTS),
        {**factors, **sizes},
        f"measure.{measure}",
        tuple(sizes),
    )


def _native_ping(protocol: str) -> Benchmark:
    return Benchmark(
        f"ping-{protocol}",
        "native",
        ("pagelab-workload", "ping", "--protocol", protocol, "--repetitions", _MEASUREMENTS),
        {"benchmark": f"ping-{protocol}", "granularity": "operation", "problem": "communication", "language": "native"},
        f"measure.ping.{protocol}",
    )


@dataclass(frozen=True)
class _Runtime:
    """The start of a managed language: the words before the program's own, and the directory of its programs."""

    prefix: str
    language: str
    jit: str
    start: tuple[str, ...]
    needs: tuple[str, ...]
    suffix: str
    inputs: tuple[str, ...] = ()
    extra_ping: tuple[str, ...] = ()

    def program(self, stem: str) -> tuple[str, ...]:
        if self.language == "java":
            return (*self.start, stem.capitalize())
        return (*self.start, str(managed(f"{stem}{self.suffix}")))

    def scripts(self, stem: str) -> tuple[str, ...]:
        names = ("Measure.java", f"{stem.capitalize()}.java") if self.language == "java" else ()
        return names or (f"measure{self.suffix}", f"{stem}{self.suffix}")


_CLASSES = ("-cp", f"{_IN}/java")
_JAVA = ("java", "-XX:+UseSerialGC")
_RUNTIMES = (
    # -S (no site) and -E (no user environment) make start-up the same everywhere; -B writes no files.
    _Runtime(
        "python",
        "python",
        "none",
        ("python3", "-E", "-S", "-B"),
        ("python3",),
        ".py",
        (),
        ("--interpreter", "-E,-S,-B"),
    ),
    _Runtime(
        "pypy-limited",
        "python",
        "limited",
        ("pypy3", "--jit", "off", "-E", "-S", "-B"),
        ("pypy3",),
        ".py",
        (),
        ("--interpreter", "--jit,off,-E,-S,-B"),
    ),
    _Runtime(
        "pypy-full", "python", "full", ("pypy3", "-E", "-S", "-B"), ("pypy3",), ".py", (), ("--interpreter", "-E,-S,-B")
    ),
    _Runtime("node-limited", "javascript", "limited", ("node", "--no-opt"), ("node",), ".js"),
    _Runtime("node-full", "javascript", "full", ("node",), ("node",), ".js"),
    # ALLOC's default set of optimisations against all of them: C1 alone against C1 and C2.
    _Runtime(
        "java-limited",
        "java",
        "limited",
        (*_JAVA, "-XX:TieredStopAtLevel=1", *_CLASSES),
        ("java", "javac"),
        ".java",
        ("java",),
    ),
    _Runtime("java-full", "java", "full", (*_JAVA, *_CLASSES), ("java", "javac"), ".java", ("java",)),
)


def _managed(runtime: _Runtime) -> list[Benchmark]:
    def one(benchmark: str, stem: str, words: tuple[str, ...], measure: str, problem: str) -> Benchmark:
        sizes = {name: f"{{{name}}}" for name in ("cache", "size", "memory")} if stem == "fft" else {}
        facts = {"granularity": "operation", "problem": problem, "language": runtime.language, "jit": runtime.jit}
        return Benchmark(
            f"{runtime.prefix}-{benchmark}",
            "managed",
            (*runtime.program(stem), *words, "--repetitions", _MEASUREMENTS),
            {"benchmark": benchmark, **facts, **sizes},
            f"measure.{measure}",
            tuple(sizes),
            runtime.needs,
            runtime.inputs,
            runtime.scripts(stem),
        )

    fft = one("fft", "fft", ("--bytes", "{bytes}", "--memory", "{memory}"), "fft", "numerical")
    pings = [
        one(f"ping-{kind}", "ping", ("--protocol", kind, *runtime.extra_ping), "ping", "communication")
        for kind in ("tcp", "http")
    ]
    return [fft, one("aes", "aes", (), "aes", "cryptography"), *pings]


def _tool(name: str, problem: str, command: str, inputs: str, needs: str | None = None) -> Benchmark:
    words = tuple(word.replace("IN/", f"{_IN}/") for word in shlex.split(command))
    factors = {"benchmark": name, "granularity": "process", "problem": problem, "language": "native"}
    return Benchmark(name, "tools", words, factors, needs=(needs or name,), inputs=tuple(inputs.split()))


_GCC = Benchmark(
    "gcc",
    "compile",
    ("gcc", "-w", "{optimise}", "-c", f"{_IN}/c/{{source}}.c", "-o", f"{_IN}/scratch/object.o"),
    {"benchmark": "gcc", "granularity": "process", "problem": "compilation", "language": "native"},
    parameters=("optimise", "source"),
    needs=("gcc",),
    inputs=("c", "scratch"),
)

BENCHMARKS: tuple[Benchmark, ...] = (
    _native("fft", "fft", "fft"),
    _native("scimark-fft", "scimark fft", "scimark.fft"),
    _native("scimark-lu", "scimark lu", "scimark.lu"),
    _native("scimark-sor", "scimark sor", "scimark.sor"),
    _native("scimark-sparse", "scimark sparse", "scimark.sparse"),
    _native("scimark-montecarlo", "scimark monte-carlo", "scimark.montecarlo", sized=False),
    _native_ping("tcp"),
    _native_ping("http"),
    *(benchmark for runtime in _RUNTIMES for benchmark in _managed(runtime)),
    _GCC,
    _tool("gzip", "lossless", "gzip -c IN/text/text.txt", "text"),
    _tool("gunzip", "lossless", "gzip -d -c IN/text/text.gz", "text", "gzip"),
    _tool("bzip2", "lossless", "bzip2 -c IN/text/text.txt", "text"),
    _tool("bunzip2", "lossless", "bzip2 -d -c IN/text/text.bz2", "text", "bzip2"),
    _tool("xz", "lossless", "xz -1 -c IN/text/text.txt", "text"),
    _tool("unxz", "lossless", "xz -d -c IN/text/text.xz", "text", "xz"),
    _tool("zstd", "lossless", "zstd -q -9 -c IN/text/text.txt", "text"),
    _tool("unzstd", "lossless", "zstd -q -d -c IN/text/text.zst", "text", "zstd"),
    _tool("cjpeg", "multimedia", "cjpeg IN/image/image.ppm", "image"),
    _tool("djpeg", "multimedia", "djpeg IN/image/image.jpg", "image"),
    _tool(
        "optipng",
        "multimedia",
        "optipng -quiet -o1 -clobber -out IN/scratch/image.png IN/image/image.png",
        "image scratch",
    ),
    _tool("sqlite3", "other", "sqlite3 -batch :memory: '.read IN/sql/shop.sql'", "sql"),
    _tool("lua", "other", "lua5.4 IN/scripts/work.lua IN/scripts/words.txt", "scripts", "lua5.4"),
    _tool("perl", "other", "perl IN/scripts/work.pl IN/scripts/words.txt", "scripts"),
)
SETS = tuple(dict.fromkeys(benchmark.set_name for benchmark in BENCHMARKS))


def chosen(names: Sequence[str]) -> list[Benchmark]:
    """The benchmarks of these names of sets, benchmarks or patterns (``java-*``); each once, in catalogue order.

    Raises KeyError with the first name that matches nothing.
    """
    for name in names:
        if not any(_named(benchmark, name) for benchmark in BENCHMARKS):
            raise KeyError(name)
    return [benchmark for benchmark in BENCHMARKS if any(_named(benchmark, name) for name in names)]


def _named(benchmark: Benchmark, name: str) -> bool:
    return name == benchmark.set_name or fnmatchcase(benchmark.name, name)


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
"""Program that a benchmark needs → the Debian package that has it."""


def advice(programs: list[str]) -> str:
    """The missing program and the command that installs it, as one phrase."""
    packages = list(dict.fromkeys(PACKAGES[program] for program in programs if program in PACKAGES))
    missing = f"{', '.join(programs)} {'is' if len(programs) == 1 else 'are'} not installed"
    return f"{missing}; Debian: apt install {' '.join(packages)}" if packages else missing
