"""Makes the page of a diagnosis: words and a picture, then executions, tables, method, every warning."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pagelab import whole_file
from pagelab.analysis import Analysis, StudyData, analyse, load, wording
from pagelab.analysis.model import WarningGroup
from pagelab.analysis.nondeterminism.interval_warnings import OF_STATISTICS
from pagelab.analysis.nondeterminism_model import Trace
from pagelab.diagnose import answer, judge, picture, report_tables, words
from pagelab.diagnose.campaign import times_of
from pagelab.diagnose.model import Confirmation, Diagnosis
from pagelab.diagnose.specs import DEFAULT
from pagelab.record import WarningKind
from pagelab.report import charts, shell
from pagelab.report.figure import Figure
from pagelab.report.nondeterminism import tables as nd_tables
from pagelab.report.tables import Table
from pagelab.study.store import NAME, Store

if TYPE_CHECKING:
    from pagelab.report.figure import Figure

_PHASES = {"": "exploration", "confirmation": "confirmation", "pilot": "pilot", "probe": "probe"}
_TRACED = 4
"""Most conditions whose executions are drawn with their measurements."""
_SEVERITIES = ("serious", "warning", "info")


@dataclass(frozen=True)
class Phases:
    """The analysed studies of a diagnosis; the exploration is always present."""

    data: Mapping[str, StudyData]
    analyses: Mapping[str, Analysis]
    explored: Mapping[str, NDArray[np.float64]]
    confirmed: Mapping[str, NDArray[np.float64]]

    @classmethod
    def load(cls, directory: Path, found: Diagnosis) -> Phases:
        """Reads and analyses the stores in ``directory``."""
        data = {}
        for phase, name in _PHASES.items():
            if (directory / phase / NAME).exists():
                with Store.open(directory / phase, write=False) as store:
                    data[name] = load(store)
        return cls(
            data=data,
            analyses={name: analyse(each) for name, each in data.items()},
            explored=_ended(times_of(directory)),
            confirmed=_ended(times_of(directory / "confirmation")) if found.confirmation else {},
        )

    @property
    def exploration(self) -> Analysis:
        return self.analyses["exploration"]


def _ended(times: judge.Times) -> dict[str, NDArray[np.float64]]:
    """The times without missing executions; a picture does not need the blocks."""
    return {name: values[np.isfinite(values)] for name, values in times.items()}


def figures_of(found: Diagnosis, phases: Phases) -> tuple[Figure, ...]:
    """The figures in reading order: first screen, sources, executions with their measurements, schedule."""
    schedule = _schedule(phases)
    if found.confirmation is not None:
        figures = [_confirmation(found, found.confirmation, phases)]
    elif answer.machine_decides(found):
        figures = [replace(schedule, section="first")]
    else:
        figures = [_default(found, phases)]
    figures.append(_sources(found, phases))
    if found.confirmation is not None and len(found.confirmation.contrasts) > 1:
        figures.append(_control(found, found.confirmation, phases))
    figures += _traces(found, phases)
    figures += [schedule] if not answer.machine_decides(found) else []
    return tuple(replace(figure, number=number) for number, figure in enumerate(figures, start=1))


def _confirmation(found: Diagnosis, one: Confirmation, phases: Phases) -> Figure:
    cvs = words.spread(one.cv_default), words.spread(one.cv_recommended)
    return Figure(
        id="confirmation",
        number=0,
        section="first",
        title=f"Fresh executions, by default and with {one.recommended}",
        caption=f"A dot is an execution, a triangle at the edge one beyond it; {one.executions} of each, interleaved, "
        "that had no part in finding the cause. The closer together a row, the steadier the program.",
        alternative=f"Fresh executions: spread {cvs[0]} by default, {cvs[1]} with {one.recommended}.",
        draw=lambda width: picture.confirmation(found, phases.confirmed, width),
    )


def _control(found: Diagnosis, one: Confirmation, phases: Phases) -> Figure:
    comparisons = "; ".join(f"{each.against}: spread {words.spread(each.cv_against)}" for each in one.contrasts[1:])
    return Figure(
        id="control",
        number=0,
        section="sources",
        title=f"Fresh executions of the control, and with {one.recommended}",
        caption="The control has everything that comes with the pin, and not the pinned value: where the value is the "
        "cause, it is as the default is.",
        alternative=f"Fresh executions. {comparisons}.",
        draw=lambda width: picture.control(found, phases.confirmed, width),
    )


def _default(found: Diagnosis, phases: Phases) -> Figure:
    return Figure(
        id="default",
        number=0,
        section="first",
        title="Executions with everything at its default",
        caption="A dot is an execution of the exploration, a triangle at the edge one beyond it.",
        alternative=f"Executions by default: spread {words.spread(found.default_spread.estimate)}.",
        draw=lambda width: picture.default(found, phases.explored, width),
    )


def _sources(found: Diagnosis, phases: Phases) -> Figure:
    comparisons = "; ".join(
        f"{one.label}: {one.sd_ratio.estimate:.2f} times the deviation of {one.against}"
        for one in found.findings
        if one.sd_ratio is not None
    )
    return Figure(
        id="sources",
        number=0,
        section="sources",
        title="Executions with one source of variance pinned at a time",
        caption="A dot is an execution, a triangle at the edge one beyond it. The figures are ratios of standard "
        "deviations of log times, to what each source is compared with (see the table): below 1, pinning lowers the "
        "spread. In colour: so judged, at the "
        "joint level of all sources. Rows of one page size, CPU or cache state have that value’s own ratio to the "
        "default.",
        alternative=f"Executions by source. {comparisons}.",
        draw=lambda width: picture.executions(found, phases.explored, width),
    )


def _traces(found: Diagnosis, phases: Phases) -> list[Figure]:
    part = phases.exploration.nondeterminism
    if part is None or not part.traces:
        return []
    (trace,) = part.traces
    shown = _chosen(found, trace)
    thinned = f" One in {shown.step} measurements is drawn." if shown.step > 1 else ""
    return [
        Figure(
            id="measurements",
            number=0,
            section="executions",
            title="Executions with their measurements",
            caption="An execution is a bar at its mean, a thin line from its fastest to its slowest measurement, and "
            f"its measurements as points, in order.{thinned} Shown are the default and the steadiest pinned values.",
            alternative="Executions with their measurements.",
            draw=lambda width: charts.executions(phases.exploration, shown, width),
        )
    ]


def _chosen(found: Diagnosis, trace: Trace) -> Trace:
    """The trace reduced to the default and the pinned values with the least spread."""
    values = sorted((value for one in found.findings for value in one.values), key=lambda value: value.cv)
    names = [DEFAULT, *(value.name for value in values)][:_TRACED]
    return replace(trace, executions={name: trace.executions[name] for name in names if name in trace.executions})


def _schedule(phases: Phases) -> Figure:
    return Figure(
        id="schedule",
        number=0,
        section="schedule",
        title="Every execution of the exploration in the order in which it ran",
        caption="Distance from the median of its own condition. A flat cloud means a machine that stayed the same.",
        alternative=phases.exploration.drift.sentence,
        draw=lambda width: picture.schedule(phases.exploration, width),
    )


def render(found: Diagnosis, phases: Phases, directory: Path) -> str:
    """The whole page as HTML; ``directory``: as it is written in commands."""
    exploration, figures = phases.exploration, figures_of(found, phases)
    command = shlex.join(found.settings.argv)
    return shell.render(
        "diagnosis.html.j2",
        figures,
        command=command,
        confirmation=report_tables.confirmation(found),
        created_by=exploration.created_by,
        d=found,
        downloads=_downloads(found, phases),
        drift=exploration.drift.sentence,
        failures=_failures(phases),
        following=answer.following(found, directory),
        headline=_sentence(found.headline),
        imported_from=None,
        level=wording.level(found.settings.level),
        machine=exploration.machine,
        measured=nd_tables.metrics(exploration),
        notes=[_sentence(note) for note in found.notes],
        caveat=None if found.caveat is None else _sentence(found.caveat.text),
        sentences=[_sentence(text) for text in found.sentences + found.interactions],
        shares=_segments(answer.shares(found)),
        sources=report_tables.sources(found),
        spread=words.spread(found.default_spread.estimate),
        subtitle=_subtitle(found, phases),
        tests=sum(1 + (one.share is not None) for one in found.findings if one.sd_ratio is not None),
        unchanged=words.spread(found.settings.unchanged),
        values=report_tables.values(found),
        warnings=_warnings(phases),
    )


@dataclass(frozen=True)
class Segment:
    """A part of the bar of shares, in percent of its width."""

    kind: str
    start: float
    width: float
    words: str


def _segments(shares: Sequence[answer.Share]) -> list[Segment]:
    found, start = [], 0.0
    for one in shares:
        found.append(Segment(one.kind, 100 * start, 100 * one.share, answer.share_text(one)))
        start += one.share
    return found


def _sentence(text: str) -> str:
    """*text* with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


def _subtitle(found: Diagnosis, phases: Phases) -> str:
    facts = {f.key: f.value for f in phases.exploration.machine.facts if f.group == "summary"}
    minutes = wording.digits(found.spent_minutes, 2)
    total = sum(data.runs.height for data in phases.data.values())
    parts = [f"{total:,} executions in {minutes} minutes", phases.exploration.primary.label]
    parts += [facts["processor"]] if "processor" in facts else []
    parts += [f"Linux {facts['kernel']}"] if "kernel" in facts else []
    return " · ".join(parts)


def _warnings(phases: Phases) -> list[WarningGroup]:
    """Warnings of all phases.

    Those about intervals are only from phases with enough executions for one. Those about what a study could test are
    left out: a diagnosis has tests of its own.
    """
    found = []
    for phase, analysis in phases.analyses.items():
        for group in analysis.warnings:
            if group.kind == WarningKind.LEVEL_NOT_REACHABLE:
                continue
            if phase in ("exploration", "confirmation") or group.kind not in OF_STATISTICS:
                found.append(replace(group, message=f"{phase}: {group.message}"))
    return sorted(found, key=lambda group: (_SEVERITIES.index(group.severity), group.kind))


def _failures(phases: Phases) -> Table:
    """The table of executions without a time, of all phases."""
    rows = tuple(
        (phase, one.condition, one.status, one.message, str(one.position))
        for phase, analysis in phases.analyses.items()
        for one in analysis.failures
    )
    columns = ("phase", "condition", "event", "message", "place")
    return Table(columns=columns, rows=rows, words=4, caption="Executions without a time")


def _downloads(found: Diagnosis, phases: Phases) -> list[shell.Download]:
    text = found.model_dump_json(by_alias=True, indent=1).encode()
    note = "the contents of this page (pagelab.diagnosis/2)"
    files = [shell.download("diagnosis.json", text, "application/json", note)]
    for phase, data in phases.data.items():
        content = data.runs.write_csv().encode()
        files.append(shell.download(f"{phase}-runs.csv", content, "text/csv", "one row an execution"))
        if data.measurements.height:
            content = data.measurements.write_csv().encode()
            files.append(shell.download(f"{phase}-measurements.csv", content, "text/csv", "one row a measurement"))
    return files


PAGE = "diagnosis.html"
PICTURE = "diagnosis.svg"


def write(directory: Path, found: Diagnosis) -> Path:
    """Writes the page and its picture of the sources into ``directory``; returns the page's path."""
    phases = Phases.load(directory, found)
    sources = next(figure for figure in figures_of(found, phases) if figure.id == "sources")
    whole_file.put(directory / PICTURE, _svg(sources))
    page = directory / PAGE
    whole_file.put(page, render(found, phases, directory))
    return page


def _svg(figure: Figure) -> str:
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(figure.for_paper(), allowed_base_urls=[])
    return svg
