"""Makes the page of a study: the values for its template."""

from __future__ import annotations

from typing import Any

from pagelab.analysis import sentences, wording
from pagelab.analysis.caveats import about_colours
from pagelab.analysis.commands import COMMAND
from pagelab.analysis.following import Following
from pagelab.analysis.model import Analysis
from pagelab.analysis.nondeterminism.words import tells_nothing
from pagelab.analysis.placement import mostly_given_back
from pagelab.report import over_set, shell, tables
from pagelab.report.figures import figures_of, first_picture
from pagelab.report.nondeterminism import tables as nd_tables
from pagelab.report.nondeterminism.figures import is_the_answer
from pagelab.report.outside import outside
from pagelab.report.shell import Download

_METHOD = "docs/method.md"
_METHOD_OF_NONDETERMINISM = "docs/method/nondeterminism.md"
_SECTIONS = (
    ("answer", "Answer"),
    ("outside", "Outside pagelab"),
    ("times", "Times"),
    ("nondeterminism", "Non-determinism"),
    ("counters", "Counters"),
    ("memory", "Memory"),
    ("frames", "Frames"),
    ("schedule", "Order"),
    ("warnings", "Warnings"),
    ("design", "Design"),
    ("machine", "Machine"),
    ("method", "Method"),
    ("data", "Data"),
)


def render(analysis: Analysis, downloads: list[Download], following: Following) -> str:
    """The whole page as HTML."""
    figures = figures_of(analysis)
    return shell.render(
        "report.html.j2",
        figures,
        a=analysis,
        created_by=analysis.created_by,
        failures=tables.failures(analysis),
        imported_from=analysis.design.imported_from,
        machine=analysis.machine,
        warnings=analysis.warnings,
        answers=_answers(analysis),
        contents=_contents(analysis),
        design=_design(analysis),
        downloads=downloads,
        caveat=_caveat(analysis),
        first=first_picture(analysis, figures),
        following=following,
        has={"tlb": any(f.section == "tlb" for f in figures)},
        how_exact=tables.how_exact(analysis),
        interval_level=wording.level(analysis.design.interval_level),
        outside=outside(analysis),
        nd=_nondeterminism(analysis),
        ndref=lambda section: f"{_METHOD_OF_NONDETERMINISM}#{section}",
        ref=lambda section: f"{_METHOD}#{section}",
        subtitle=_subtitle(analysis),
        unit_words="seconds" if analysis.primary.unit == "s" else "the metric’s own unit",
        unseen=wording.listing(_placement_unknown(analysis)),
        without_ratio=over_set.without_ratio(analysis),
        tables=_tables(analysis),
    )


def _caveat(analysis: Analysis) -> str | None:
    """The most serious caveat, except those on colours, which stand with the figures on frames."""
    told = about_colours(analysis.warnings) if analysis.frames is not None else []
    return next((caveat for caveat in analysis.caveats if caveat not in told), None)


def _tables(analysis: Analysis) -> dict[str, tables.Table]:
    makers = (
        tables.contrasts,
        tables.shifts,
        tables.times,
        tables.spread,
        tables.secondary,
        tables.placement,
        tables.measurements,
        tables.conditions,
        tables.frames,
        over_set.over_set,
        over_set.program_by_program,
    )
    return {make.__name__: tables.without_empty_columns(make(analysis)) for make in makers}


def _answers(analysis: Analysis) -> list[tuple[str, list[str]]]:
    """The answers by workload; comparisons in which no difference was found share one sentence."""
    if analysis.over_set is not None:
        return [("", list(analysis.answers))] if analysis.answers else []
    answers = []
    for workload in analysis.design.workloads:
        mine = [c for c in analysis.compared() if c.workload == workload]
        alike = [c for c in mine if sentences.can_be_grouped(c)]
        if len(alike) < 2 or len({c.metric for c in alike}) > 1:
            alike = []
        shown_sentences = [c.sentence for c in mine if c not in alike]
        shown_sentences += [sentences.no_differences(alike)] if alike else []
        if shown_sentences:
            answers.append((workload, shown_sentences))
    return answers


def _contents(analysis: Analysis) -> list[tuple[str, str]]:
    absent = set()
    if not analysis.answers:
        absent.add("answer")
    if outside(analysis) is None:
        absent.add("outside")
    if not analysis.placements:
        absent.add("memory")
    if analysis.frames is None:
        absent.add("frames")
    if analysis.nondeterminism is None:
        absent.add("nondeterminism")
    if not tables.secondary(analysis).rows:
        absent.add("counters")
    found = [(id_, title) for id_, title in _SECTIONS if id_ not in absent]
    if analysis.over_set is not None:
        first = [section for name in ("answer", "nondeterminism") for section in found if section[0] == name]
        return first + [section for section in found if section not in first]
    return sorted(found, key=lambda one: one[0] != "nondeterminism") if is_the_answer(analysis) else found


def _subtitle(analysis: Analysis) -> str:
    design = analysis.design
    policies = wording.count(len(design.policies), "policy", "policies")
    programs = f"{wording.count(len(design.workloads), 'program')} under {policies}"
    parts = [
        "two commands" if design.workloads == (COMMAND,) else programs,
        wording.count(sum(c.analysed for c in design.conditions), "execution"),
    ]
    facts = {f.key: f.value for f in analysis.machine.facts if f.group == "summary"}
    parts += [facts[key] for key in ("processor",) if key in facts]
    if "kernel" in facts:
        parts.append(f"Linux {facts['kernel']}")
    if design.imported_from:
        parts.append(f"imported from {design.imported_from}")
    return " · ".join(parts)


def _placement_unknown(analysis: Analysis) -> list[str]:
    """Workloads, or single conditions of them, whose placement is mostly unknown."""
    gone = {p.condition for p in analysis.placements if mostly_given_back(p)}
    found = []
    for workload in analysis.design.workloads:
        mine = [p.condition for p in analysis.placements if analysis.condition(p.condition).workload == workload]
        concerned = [condition for condition in mine if condition in gone]
        found += [workload] if concerned and concerned == mine else concerned
    return found


def _design(analysis: Analysis) -> dict[str, str]:
    design = analysis.design
    baselines = sorted(set(design.baselines.values()))
    against = baselines[0] if len(baselines) == 1 else "the baseline of each program"
    others = [p for p in design.policies if p not in baselines]
    family = len(analysis.compared() if analysis.over_set is None else analysis.over_set.contrasts)
    metrics = list(dict.fromkeys(analysis.primary_of(w) for w in design.workloads))
    alpha = wording.level(round(1 - design.level, 12))
    return {
        "compared": f"{wording.listing(others) or 'nothing'} with {against}, for {wording.listing(design.workloads)}",
        "metric": "; ".join(
            f"{m.label}{f', {m.description}' if m.description and not design.imported_from else ''}" for m in metrics
        ),
        "family": _family(family, is_tested=design.tested),
        "alpha": alpha,
        "level": f"intervals {wording.level(design.interval_level)}, "
        + (
            f"tests {alpha} after Holm over {wording.count(family, 'planned comparison')}"
            if design.tested
            else f"no tests: no result could have reached {alpha} over {wording.count(family, 'comparison')}"
        ),
    }


def _family(comparisons: int, *, is_tested: bool) -> str:
    """The family of comparisons over which Holm corrects, in words."""
    if not is_tested:
        return wording.count(comparisons, "comparison")
    if comparisons == 1:
        return "the one planned comparison (which it leaves as it is)"
    return f"the {comparisons} planned comparisons"


def _nondeterminism(analysis: Analysis) -> dict[str, Any]:
    """Tables, sentences and omissions on non-determinism, by their names in the template."""
    part = analysis.nondeterminism
    sentences = [] if part is None else [text for text in (part.speed, part.steadiness) if text]
    if part is not None:  # what the answer has judged, and with more power, is not told again
        answered = [part.speed] if analysis.planned() else []
        answered += [part.speed, part.steadiness] if analysis.over_set is not None else []
        sentences = [text for text in sentences if text not in answered or not tells_nothing(text)]
    on_top = is_the_answer(analysis)
    return {
        "tables": {make.__name__: tables.without_empty_columns(make(analysis)) for make in nd_tables.MAKERS},
        "sentences": sentences,
        "on_top": on_top,
        "beside": on_top or analysis.over_set is not None,
        "is_repeated": part is not None and any(one.repeated for one in part.experiments),
        "is_compared": part is not None and bool(part.families),
        "misses_reason": "" if part is None else part.misses.reason.rstrip("."),
        "balance": nd_tables.balance_sentences(analysis),
        "refusals": nd_tables.refusals(analysis),
    }
