"""Results that others measured: PREPAGE-style CSV and hyperfine's JSON, into a store that says where they came from.

What the source does not tell is null: an imported run has no record, no machine, no order that can be trusted.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from .errors import Problem, SpecError, StudyError
from .lock import DirectoryLock
from .plan import Condition, Plan, digest_of
from .prepare import check_destination, reachability
from .schedule import Slot
from .store import RunResult, Store


class ImportedRun(BaseModel):
    """What the store keeps of one imported execution instead of a record. Null is "the source does not say"."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_: Literal["pagelab.imported/1"] = Field(default="pagelab.imported/1", alias="schema")
    source: str
    source_sha256: str
    place: str
    """Where in the source: ``line 12``, ``results[0].times[3]``."""
    wall_s: float
    user_s: float | None = None
    system_s: float | None = None
    peak_rss_bytes: int | None = None
    exit_code: int | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    """The row as it stood, for CSV."""


@dataclass(frozen=True)
class Sample:
    """One execution as read: the condition it belongs to, and its run."""

    workload: str
    policy: str
    argv: list[str]
    run: ImportedRun
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Columns:
    """Which columns of a CSV mean what; None: found out from the header and the values."""

    time: str | None = None
    factor: str | None = None
    """The column whose values are compared (PREPAGE's ``buffering``)."""
    workload: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    """Value in the file → label in the report, such as ``0`` → ``off``."""


def read_csv(path: Path, columns: Columns) -> list[Sample]:
    """Rows of a CSV with a header, factor columns and a time column in seconds. Raises SpecError with file and line."""
    text, digest = _read(path)
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    header = [name.strip() for name in reader.fieldnames or []]
    reader.fieldnames = header
    time, factor, others = _roles(path, header, columns)
    samples = []
    for row in reader:
        line = reader.line_num
        values = {name: (value or "").strip() for name, value in row.items() if isinstance(name, str)}
        if None in row or None in row.values():
            raise SpecError(path, [Problem("", f"{len(row)} values where the header has {len(header)}", line)])
        level = columns.labels.get(values[factor], values[factor])
        parameters = {name: values[name] for name in others}
        base = values[columns.workload] if columns.workload else path.stem
        label = " ".join([base, *(f"{name}={value}" for name, value in parameters.items())])
        run = ImportedRun(
            source=str(path),
            source_sha256=digest,
            place=f"line {line}",
            wall_s=_seconds(values[time], path, time, line),
            columns=values,
        )
        samples.append(Sample(label, level, [], run, parameters))
    if not samples:
        raise SpecError(path, [Problem("", "no rows after the header")])
    return samples


def _roles(path: Path, header: list[str], columns: Columns) -> tuple[str, str, list[str]]:
    """The time column, the factor column, and the other factors (what is repeated within stays comparable)."""

    def known(name: str, option: str) -> str:
        if name not in header:
            raise SpecError(path, [Problem(option, f'no column "{name}"; allowed: {", ".join(header)}', 1)])
        return name

    if len(header) < 2 or len(set(header)) != len(header) or "" in header:
        raise SpecError(path, [Problem("", "the first line must name each column, such as: buffering,time", 1)])
    time = known(columns.time or ("time" if "time" in header else header[-1]), "--time")
    rest = [name for name in header if name not in (time, columns.workload)]
    if columns.workload:
        known(columns.workload, "--workload")
    factor = known(columns.factor or (rest[0] if rest else ""), "--factor")
    return time, factor, [name for name in rest if name != factor]


def _seconds(text: str, path: Path, column: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise SpecError(path, [Problem(column, f'"{text}" is no time in seconds', line)])
    return value


def read_hyperfine(path: Path) -> list[Sample]:
    """Each value of ``results[].times`` of hyperfine's ``--export-json`` is one execution; parameters are kept."""
    text, digest = _read(path)
    try:
        results = json.loads(text)["results"]
        samples = []
        for number, result in enumerate(results):
            codes = result.get("exit_codes") or [None] * len(result["times"])
            memory = result.get("memory_usage_byte") or [None] * len(result["times"])
            for index, wall_s in enumerate(result["times"]):
                run = ImportedRun(
                    source=str(path),
                    source_sha256=digest,
                    place=f"results[{number}].times[{index}]",
                    wall_s=_seconds(str(wall_s), path, f"results[{number}].times[{index}]", 1),
                    exit_code=codes[index],
                    peak_rss_bytes=memory[index],
                )
                parameters = {name: str(value) for name, value in (result.get("parameters") or {}).items()}
                samples.append(Sample(path.stem, result["command"], [result["command"]], run, parameters))
    except (KeyError, TypeError, IndexError, json.JSONDecodeError) as error:
        raise SpecError(path, [Problem("", f"not the JSON of hyperfine --export-json: {error!r}")]) from None
    if not samples:
        raise SpecError(path, [Problem("results", "holds no times")])
    return samples


def _read(path: Path) -> tuple[str, str]:
    try:
        content = path.read_bytes()
        return content.decode("utf-8-sig"), hashlib.sha256(content).hexdigest()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise SpecError(path, [Problem("", f"cannot read: {reason}")]) from None


def import_into(
    directory: Path,
    samples: list[Sample],
    *,
    origin: Path,
    name: str,
    question: str = "",
    baseline: str | None = None,
    level: float = 0.95,
) -> Plan:
    """A new store in ``directory`` with the samples as runs, in the order of the file. Raises StudyError."""
    policies = list(dict.fromkeys(sample.policy for sample in samples))
    baseline = policies[0] if baseline is None else baseline
    if baseline not in policies:
        raise StudyError(f'--baseline: no level is called "{baseline}"; allowed: {", ".join(policies)}')
    conditions = _conditions(samples, baseline)
    counts = [sum(_key(sample) == key for sample in samples) for key in conditions]
    plan = Plan(
        name=name,
        question=question,
        executions=max(counts),
        seed=0,
        warmups=0,
        baseline=baseline,
        metric="wall_s",
        level=level,
        conditions=list(conditions.values()),
        step_timeout_s=1.0,
        digest=digest_of([origin.read_bytes()]),
        inputs={str(origin.resolve()): samples[0].run.source_sha256},
    )
    directory.mkdir(parents=True, exist_ok=True)
    with DirectoryLock(directory):
        check_destination(directory)
        slots = _slots(samples, conditions)
        with Store.create(directory, plan, slots, "", {"origin": str(origin)}) as store:
            store.commit_imported(slots, [(_result(s), s.run.model_dump_json(by_alias=True)) for s in samples])
            if len(set(counts)) == 1:
                for warning in reachability(plan):
                    store.put_event("warning", warning.model_dump(mode="json"))
    return plan


def _key(sample: Sample) -> tuple[str, str]:
    return sample.workload, sample.policy


def _conditions(samples: Iterable[Sample], baseline: str) -> dict[tuple[str, str], Condition]:
    conditions: dict[tuple[str, str], Condition] = {}
    for sample in samples:
        if _key(sample) not in conditions:
            conditions[_key(sample)] = Condition(
                index=len(conditions),
                name=f"{sample.workload}/{sample.policy}",
                workload=sample.workload,
                policy=sample.policy,
                workload_name=sample.workload,
                policy_name=sample.policy,
                baseline=sample.policy == baseline,
                parameters=dict(sample.parameters),
                argv=sample.argv,
                cwd="",
                policy_toml="",
                metric="wall_s",
            )
    return conditions


def _slots(samples: list[Sample], conditions: dict[tuple[str, str], Condition]) -> list[Slot]:
    """The order of the file; its n-th execution of a condition is block n, which says nothing about when it ran."""
    counts: dict[int, int] = {}
    slots = []
    for position, sample in enumerate(samples):
        condition = conditions[_key(sample)].index
        number = counts.get(condition, 0)
        counts[condition] = number + 1
        slots.append(Slot(position, number, condition, number))
    return slots


def _result(sample: Sample) -> RunResult:
    failed = sample.run.exit_code not in (None, 0)
    message = f"ended with exit code {sample.run.exit_code}" if failed else None
    return RunResult("failed" if failed else "ok", None, None, None, message)


Format = Literal["csv", "hyperfine"]


def guess_format(path: Path) -> Format:
    """By the name's ending, else by the first character. Raises SpecError."""
    if path.suffix.lower() in (".csv", ".tsv", ".txt"):
        return "csv"
    return "hyperfine" if path.suffix.lower() == ".json" or _read(path)[0].lstrip()[:1] == "{" else "csv"
