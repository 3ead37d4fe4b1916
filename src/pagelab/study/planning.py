"""Makes a validated :class:`Plan` of a study.toml. Reads the files that a study names, and nothing else."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import paths
from ..contract.request import EnvChanges, Flush, Measurements, Request
from ..contract.settings import RUN_SETTINGS
from ..launcher import MEASURE_FD
from ..spelling import meant, meant_of
from . import co_run
from .bundled import BYTES, SIZED, bundle, bytes_of, unknown_size
from .errors import Problem, SpecError
from .plan import METRICS, Condition, Plan, Precision, Reboots, Scalar, Step, digest_of
from .spec import ONE, RawFlush, RawPolicy, RawReboot, RawStep, RawStudy, RawWorkload, parse, read
from .substitute import BUILT_IN, HERE, OUT, PYTHON, names_in, shown, substitute, substitute_shell
from .toml_text import LineIndex, Location, dotted, dumps


def plan_file(path: Path, out: Path) -> Plan:
    """Reads and plans ``path`` for the study directory ``out``. Raises :class:`SpecError`."""
    raw = read(path)
    return _Planner(raw, path.read_text(encoding="utf-8"), path, out).plan()


def plan_text(text: str, path: Path, out: Path) -> Plan:
    """Plans ``text``, which was read from ``path``; otherwise like :func:`plan_file`."""
    return _Planner(parse(text, path), text, path, out).plan()


class _Planner:
    def __init__(self, raw: RawStudy, text: str, path: Path, out: Path) -> None:
        self.bundle = bundle(raw)
        self.raw = raw = raw.model_copy(update={"workload": [*raw.workload, *self.bundle.workloads]})
        self.out = out.resolve()
        self.text = text
        self.path = path
        self.here = path.resolve().parent
        self.built_in = {HERE: str(self.here), OUT: str(out.resolve()), PYTHON: sys.executable}
        self.lines = LineIndex(text)
        self.problems: list[Problem] = []
        self.inputs: dict[str, str] = {}

    def plan(self) -> Plan:
        """The plan. Raises :class:`SpecError` with every problem found."""
        raw = self.raw
        for location, message in self.bundle.problems:
            self._wrong(location, message)
        self._stop_if_wrong()
        for path in self.bundle.files:
            self._content(path, ("benchmarks",))
        self._check_names()
        policies = [self._policy(index, policy) for index, policy in enumerate(raw.policy)]
        self._check_parameters(policies)
        self._check_excludes()
        self._stop_if_wrong()
        conditions = list(self._conditions(policies))
        if not conditions:
            self._wrong(("exclude", 0), "excludes every condition")
        if raw.co_run:
            conditions = co_run.arranged(conditions, lambda message: self._wrong(("co_run",), message))
        if len(conditions) % raw.together:
            self._wrong(
                ("together",),
                f"{len(conditions)} conditions are no whole groups of {raw.together}; name a number that divides them",
            )
        plan_setup = self.bundle.setup(self.out) + self._steps(raw.setup, self.built_in, ("setup",))
        plan_teardown = self._steps(raw.teardown, self.built_in, ("teardown",))
        self._stop_if_wrong()
        files = [f"{path}\0{digest}".encode() for path, digest in sorted(self.inputs.items())]
        return Plan(
            name=raw.name,
            question=raw.question,
            executions=raw.precision.looks[-1] if raw.precision else raw.executions,
            seed=raw.seed,
            warmups=raw.warmups,
            baseline=raw.baseline or raw.policy[0].name,
            metric=raw.metric,
            level=raw.level,
            test=raw.test,
            answer=raw.answer or "each",
            precision=Precision(target=raw.precision.target, looks=raw.precision.looks) if raw.precision else None,
            minutes=raw.minutes,
            co_run=raw.co_run,
            together=raw.together,
            reboots=_reboots(raw),
            conditions=conditions,
            setup=plan_setup,
            teardown=plan_teardown,
            step_timeout_s=raw.setup_timeout,
            digest=digest_of([self.text.encode(), *files]),
            inputs=self.inputs,
        )

    # -- checks ---------------------------------------------------------------------------------------------------

    def _wrong(self, location: Location, message: str) -> None:
        self.problems.append(Problem(dotted(location), message, self.lines.line(location)))

    def _stop_if_wrong(self) -> None:
        if self.problems:
            raise SpecError(self.path, self.problems)

    def _check_names(self) -> None:
        raw = self.raw
        for kind, names in (
            ("workload", [workload.name for workload in raw.workload]),
            ("policy", [policy.name for policy in raw.policy]),
        ):
            for index, name in enumerate(names):
                if name in names[:index]:
                    self._wrong((kind, index, "name"), f'a second {kind} is called "{name}"; names must differ')
        policies = [policy.name for policy in raw.policy]
        if raw.baseline is not None and raw.baseline not in policies:
            self._wrong(("baseline",), f'no policy is called "{raw.baseline}"{meant_of(raw.baseline, policies)}')
        for index, workload in enumerate(raw.workload):
            for name in workload.policies or []:
                if name not in policies:
                    suggestion = meant_of(name, policies)
                    self._wrong(("workload", index, "policies"), f'no policy is called "{name}"{suggestion}')
            self._check_metric(workload.metric, ("workload", index, "metric"))
        self._check_metric(raw.metric, ("metric",))

    def _check_metric(self, metric: str | None, location: Location) -> None:
        if metric is None or metric in METRICS:
            return
        if not re.fullmatch(r"(counter|measure)\.\S+", metric):
            suggestion = meant(metric, METRICS)
            allowed = (
                f"{' Allowed' if suggestion else '; allowed'}: {', '.join(METRICS)}, counter.<role>, measure.<name>"
            )
            self._wrong(location, f'unknown metric "{metric}"{suggestion}{allowed}')
        elif metric.startswith("counter.") and not self.raw.counters.events:
            self._wrong(location, f'"{metric}" needs [counters] events = ["…"]')

    def _check_parameters(self, policies: list[_Policy]) -> None:
        used: set[str] = set()
        for index, workload in enumerate(self.raw.workload):
            uses = self._names_of(workload)
            known = {**self.raw.parameters, **workload.parameters}
            if BYTES in _workload_names(workload) - set(known) and (problem := unknown_size(known)):
                self._wrong(("workload", index), problem)
            used |= self._check_used(uses, workload.parameters, ("workload", index))
            for name in sorted(set().union(*map(names_in, workload.factors.values())) - uses):
                self._wrong(("workload", index, "factors"), f"the command does not use {{{name}}}")
        for index, policy in enumerate(policies):
            used |= self._check_used(policy.names, {}, ("policy", index))
        for name in self.raw.parameters:
            if name not in used:
                self._wrong(("parameters", name), f"nothing uses {{{name}}}; write it into a command, or remove it")
            if name in BUILT_IN:
                self._wrong(("parameters", name), f"{{{name}}} is pagelab's own; choose another name")

        shared = [*self.raw.flush.files, *self.raw.env.values(), self.raw.cwd or ""]
        for name in sorted(set().union(*(names_in(text) for text in shared)) - set(BUILT_IN)):
            self._wrong((), f"{{{name}}} outside a workload or policy; allowed there: {', '.join(BUILT_IN)}")

    def _check_used(self, used: set[str], own: Mapping[str, list[Scalar]], where: Location) -> set[str]:
        known = {*self.raw.parameters, *own, *BUILT_IN}
        for name in sorted(used - known):
            self._wrong(
                where,
                f"{{{name}}} is no parameter{meant_of(name, known)}; for a literal {{{name}}} write {{{{{name}}}}}",
            )
        for name in own:
            if name not in used:
                self._wrong((*where, "parameters"), f"the command does not use {{{name}}}")
        return used

    def _check_excludes(self) -> None:
        allowed = {"workload", "policy", *self.raw.parameters}
        for workload in self.raw.workload:
            allowed |= {*workload.parameters, *workload.factors}
        for index, exclude in enumerate(self.raw.exclude):
            for key in exclude:
                if key not in allowed:
                    self._wrong(("exclude", index, key), f"unknown key{meant_of(key, allowed)}")

    # -- policies -------------------------------------------------------------------------------------------------

    def _policy(self, index: int, raw: RawPolicy) -> _Policy:
        location: Location = ("policy", index)
        if raw.file is None:
            toml = dumps({"name": raw.name, **raw.inline()})
            path = str(self.path.resolve())
        else:
            path = str((self.here / raw.file).resolve())
            toml = self._read(Path(path), (*location, "file"))
        try:
            content = tomllib.loads(toml)
        except tomllib.TOMLDecodeError as error:
            self._wrong((*location, "file"), f"{path} is not TOML: {error}")
            content = {}
        for name in sorted(set(_named_files(content))):
            self._content(Path(path).parent / name, location)
        return _Policy(raw, toml, path)

    def _read(self, path: Path, location: Location) -> str:
        try:
            return self._content(path, location).decode()
        except UnicodeDecodeError:
            self._wrong(location, f"cannot read {path}: not UTF-8")
            return ""

    def _content(self, path: Path, location: Location) -> bytes:
        """The content of a file, which is recorded as an input of the study."""
        try:
            content = path.read_bytes()
        except OSError as error:
            self._wrong(location, f"cannot read {path}: {error.strerror}")
            return b""
        self.inputs[str(path.resolve())] = hashlib.sha256(content).hexdigest()
        return content

    # -- conditions -----------------------------------------------------------------------------------------------

    def _conditions(self, policies: list[_Policy]) -> Iterator[Condition]:
        index = 0
        seen: set[str] = set()
        for number, workload in enumerate(self.raw.workload):
            own = {**self.raw.parameters, **workload.parameters}
            uses = self._names_of(workload)
            workload_names = [name for name in own if name in uses]
            for policy in policies:
                if workload.policies is not None and policy.raw.name not in workload.policies:
                    continue
                policy_names = [name for name in own if name in policy.names and name not in workload_names]
                if policy_names and policy.raw.name == (self.raw.baseline or self.raw.policy[0].name):
                    self._wrong(
                        ("workload", number),
                        f'the baseline "{policy.raw.name}" varies with {{{policy_names[0]}}}, which this workload does '
                        "not use: it would have several baselines; choose a baseline without parameters",
                    )
                for values in itertools.product(*(own[name] for name in workload_names + policy_names)):
                    parameters = dict(zip(workload_names + policy_names, values, strict=True))
                    condition = self._condition(index, number, policy, parameters, workload_names)
                    if self._excluded(condition):
                        continue
                    if condition.name in seen:
                        self._wrong(("workload", number, "parameters"), f"{condition.name} would be there twice")
                    seen.add(condition.name)
                    index += 1
                    yield condition

    def _condition(
        self, index: int, number: int, policy: _Policy, parameters: dict[str, Scalar], workload_names: list[str]
    ) -> Condition:
        raw, workload = self.raw, self.raw.workload[number]
        values: dict[str, object] = {**parameters, **self.built_in}
        needs = list(workload.needs)
        if BYTES in _workload_names(workload) - set(parameters):
            found = bytes_of(parameters)
            needs += [] if found else [f"cache {parameters[SIZED[0]]}"]
            values[BYTES] = found or 0
        label = _label(workload.name, {name: parameters[name] for name in workload_names})
        others = {name: value for name, value in parameters.items() if name not in workload_names}
        policy_label = _label(policy.raw.name, others)
        cwd = str((self.here / substitute(workload.cwd or raw.cwd or ".", values)).resolve())
        flush = policy.raw.flush or workload.flush or raw.flush
        env = {**raw.env, **workload.env, **policy.raw.env}
        where: Location = ("workload", number)
        return Condition(
            index=index,
            name=f"{label}/{policy_label}",
            workload=label,
            policy=policy_label,
            workload_name=workload.name,
            policy_name=policy.raw.name,
            baseline=policy.raw.name == (raw.baseline or raw.policy[0].name),
            parameters=parameters,
            factors={key: substitute(value, values) for key, value in workload.factors.items()}
            or {"workload": workload.name, **{name: shown(parameters[name]) for name in workload_names}},
            needs=needs,
            request=Request(
                argv=paths.bundled(_filled(_argv(workload), values, in_shell=workload.shell is not None)),
                cwd=cwd,
                env=EnvChanges(set={key: substitute(value, values) for key, value in env.items()}, unset=raw.unset),
                policy_toml=substitute(policy.toml, values) if policy.names else policy.toml,
                policy_path=policy.path,
                stdin=self._stream(workload.stdin, values, cwd),
                stdout=self._stream(workload.stdout, values, cwd),
                stderr=self._stream(workload.stderr or "null", values, cwd),
                events=raw.counters.events,
                per_process_counters=raw.counters.per_process,
                measurements=Measurements(fd=MEASURE_FD, regex=workload.measure.regex if workload.measure else None),
                flush=_flush(flush, values, cwd),
                **_settings(policy.raw, workload, raw),
            ),
            keeps_stderr=workload.stderr is None,
            metric=workload.metric or raw.metric,
            drop_first=raw.drop_first if workload.drop_first is None else workload.drop_first,
            # The policy changes the machine first; the workload is set up on the changed machine.
            setup=self._steps(policy.raw.setup + workload.setup, values, where, cwd),
            teardown=self._steps(workload.teardown + policy.raw.teardown, values, where, cwd),
        )

    def _names_of(self, workload: RawWorkload) -> set[str]:
        """The parameters that the workload uses; ``{bytes}`` uses the two from which it is computed."""
        names = _workload_names(workload)
        if BYTES in names and BYTES not in {**self.raw.parameters, **workload.parameters}:
            names = names - {BYTES} | set(SIZED)
        return names

    def _excluded(self, condition: Condition) -> bool:
        facts: dict[str, Scalar] = {
            **condition.factors,
            **condition.parameters,
            "workload": condition.workload_name,
            "policy": condition.policy_name,
        }
        return any(
            all(facts.get(key) == value for key, value in exclude.items()) for exclude in self.raw.exclude if exclude
        )

    def _stream(self, value: str, values: Mapping[str, object], cwd: str) -> str:
        if value in ("null", "inherit"):
            return value
        return str(Path(cwd) / substitute(value, values))

    def _steps(
        self, raw: list[RawStep], values: Mapping[str, object], where: Location, cwd: str | None = None
    ) -> list[Step]:
        steps = []
        for step in raw:
            words = ["/bin/sh", "-c", step.shell] if step.shell is not None else step.command or []
            missing = set().union(*(names_in(word) for word in words)) - set(values)
            if missing:
                self._wrong(where, f"{{{sorted(missing)[0]}}} has no value here; allowed: {', '.join(sorted(values))}")
                continue
            argv = _filled(words, values, in_shell=step.shell is not None)
            steps.append(Step(argv=argv, shown=argv[-1] if step.shell else " ".join(argv), cwd=cwd or str(self.here)))
        return steps


class _Policy:
    """A policy with its text and the parameters that it uses."""

    def __init__(self, raw: RawPolicy, toml: str, path: str) -> None:
        self.raw, self.toml, self.path = raw, toml, path
        texts = [*raw.env.values(), *_step_texts(raw.setup), *_step_texts(raw.teardown)]
        texts += raw.flush.files if raw.flush else []
        if raw.file is None:
            texts.append(toml)
        self.names = set().union(*(names_in(text) for text in texts)) if texts else set()


def _reboots(raw: RawStudy) -> Reboots | None:
    if raw.between != "reboot":
        return None
    asked = raw.reboot or RawReboot()
    return Reboots(each=asked.each, settle_s=asked.settle, keep=asked.keep)


def _settings(policy: RawPolicy, workload: RawWorkload, study: RawStudy) -> dict[str, Any]:
    """The settings of a run by field: each from the policy, else from the workload, else from the study."""
    found = {}
    for one in RUN_SETTINGS:
        said = (getattr(table, one.key, None) for table in (policy, workload, study))
        word = next((word for word in said if word is not None), None)
        if word is not None:
            found[one.field] = one.asked(_last_cpu() if word == ONE else word)
    return found


def _last_cpu() -> list[int]:
    """The last CPU that this process may use; the first has the most interrupts to serve."""
    return [max(os.sched_getaffinity(0))]


def _argv(workload: RawWorkload) -> list[str]:
    return ["/bin/sh", "-c", workload.shell] if workload.shell is not None else workload.command or []


def _filled(words: list[str], values: Mapping[str, object], *, in_shell: bool) -> list[str]:
    fill = substitute_shell if in_shell else substitute
    return [fill(word, values) for word in words]


def _step_texts(steps: list[RawStep]) -> list[str]:
    return [text for step in steps for text in (step.command or [step.shell or ""])]


def _workload_names(workload: RawWorkload) -> set[str]:
    texts = [
        *_argv(workload),
        *workload.env.values(),
        *_step_texts(workload.setup),
        *_step_texts(workload.teardown),
        *(workload.flush.files if workload.flush else []),
        workload.stdin,
        workload.stdout,
        workload.stderr or "",
        workload.cwd or "",
    ]
    return set().union(*(names_in(text) for text in texts))


def _label(name: str, parameters: Mapping[str, Scalar]) -> str:
    return " ".join([name, *(f"{key}={shown(value)}" for key, value in parameters.items())])


def _flush(raw: RawFlush, values: Mapping[str, object], cwd: str) -> Flush:
    return Flush(mode=raw.mode, files=[str(Path(cwd) / substitute(path, values)) for path in raw.files])


def _named_files(content: object) -> Iterator[str]:
    """Every file that a policy names: a layout (``csv``), a saved map or a module (the others)."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key in ("csv", "map", "modulo", "exact", "module", "path") and isinstance(value, str):
                yield value
            else:
                yield from _named_files(value)
    elif isinstance(content, list):
        for item in content:
            yield from _named_files(item)
