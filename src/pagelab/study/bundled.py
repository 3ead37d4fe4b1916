"""Turns the ``benchmarks = [...]`` of a study into workloads, with a set-up step that makes their inputs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..benchmarks import catalogue
from .plan import Scalar, Step
from .spec import RawStudy, RawWorkload
from .toml_text import Location

BYTES = "bytes"
"""``{bytes}``: a size relative to a cache of this machine, from the parameters :data:`SIZED`, unless the study defines
``bytes`` itself."""
SIZED = ("cache", "size")
_SHARES: Mapping[Scalar, tuple[int, int]] = {"half": (1, 2), "equal": (1, 1), "double": (2, 1)}
INPUTS = "inputs"
"""Folder of the inputs in the study's directory."""


@dataclass(frozen=True)
class Bundle:
    """What the ``benchmarks`` of a study add to it."""

    workloads: list[RawWorkload]
    inputs: list[str]
    """Kinds of generated input that the benchmarks read."""
    files: list[Path]
    """Programs of this package that the benchmarks run unchanged."""
    problems: list[tuple[Location, str]]

    def setup(self, out: Path) -> list[Step]:
        """The step that makes the inputs in the study's directory; it keeps existing ones."""
        if not self.inputs:
            return []
        # -P: Python must import pagelab's modules, not ones of the same name in the current directory.
        argv = [sys.executable, "-P", "-m", "pagelab.benchmarks.inputs", str(out / INPUTS), *self.inputs]
        return [Step(argv=argv, shown=f"make inputs: {', '.join(self.inputs)}", cwd=str(Path.cwd()))]


def bundle(raw: RawStudy) -> Bundle:
    """The benchmarks that ``raw`` names, with its parameters in place of theirs."""
    try:
        chosen = catalogue.chosen(raw.benchmarks)
    except KeyError as error:
        known = ", ".join([*catalogue.SETS, *(benchmark.name for benchmark in catalogue.BENCHMARKS)])
        wrong = f'nothing is called "{error.args[0]}"; allowed, also with * in it: {known}'
        return Bundle([], [], [], [(("benchmarks",), wrong)])
    workloads = [
        RawWorkload.model_validate(benchmark.workload(raw.parameters, raw.measurements)) for benchmark in chosen
    ]
    inputs = list(dict.fromkeys(kind for benchmark in chosen for kind in benchmark.inputs))
    files = list(dict.fromkeys(path for benchmark in chosen for path in benchmark.files()))
    names = {name for benchmark in chosen for name in benchmark.parameters}
    return Bundle(workloads, inputs, files, list(_wrong_values(names, raw.parameters)))


def _wrong_values(names: set[str], parameters: Mapping[str, Sequence[Scalar]]) -> Iterator[tuple[Location, str]]:
    for name in sorted(names & set(parameters)):
        allowed = catalogue.ALLOWED[name]
        for value in parameters[name]:
            if value not in allowed:
                yield ("parameters", name), f"the benchmarks know no {value!r}; allowed: {', '.join(allowed)}"


def unknown_size(parameters: Mapping[str, Sequence[Scalar]]) -> str | None:
    """The error in the parameters of ``{bytes}``; None where they are right."""
    for name in SIZED:
        if name not in parameters:
            return f"{{bytes}} needs the parameters cache and size; {name} is missing"
    for value in parameters["size"]:
        if value not in _SHARES:
            return f"size = {value!r} has no meaning for {{bytes}}; allowed: {', '.join(map(str, _SHARES))}"
    return None


def bytes_of(parameters: Mapping[str, Scalar]) -> int | None:
    """Bytes of this machine's data cache ``cache`` times the factor ``size``; None without such a cache."""
    from .. import machine

    times, parts = _SHARES[parameters["size"]]
    level = str(parameters["cache"]).removeprefix("L")
    for cache in machine.describe()["caches"]:
        if str(cache["level"]) == level and cache["kind"].lower() != "instruction":
            return int(cache["size_bytes"]) * times // parts
    return None
