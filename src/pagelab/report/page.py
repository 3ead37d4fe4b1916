"""The page: one HTML file that needs nothing else and asks nothing of any network.

Programs' names, messages and paths are data: Jinja2 escapes them, JSON is written without ``<``, and the page's
Content-Security-Policy allows only the scripts whose hashes it names, so that even a mistake here could not run theirs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pagelab.analysis import sentences, wording
from pagelab.analysis.model import Analysis
from pagelab.analysis.placement import mostly_gone
from pagelab.report import tables
from pagelab.report.charts import theme
from pagelab.report.figure import Figure
from pagelab.report.figures import figures_of, first_picture
from pagelab.report.frames_table import frames
from pagelab.report.nondeterminism import page as nondeterminism
from pagelab.report.nondeterminism.figures import is_the_answer

_MOST_PLAIN = 2 << 20
"""Data beyond this is embedded compressed."""
_MOST_EMBEDDED = 8 << 20
"""Compressed data beyond this stays outside the page, which must still open on a phone."""
_TIED = re.compile(r"(?<=p) (?==)|(?<==) (?=\d)| (?=×)|(?<=×) |(?<=\d) (?=(?:[mµn]?s|[KMGT]?i?B|billion|million)\b)")
"""Spaces at which a line must not break."""
_METHOD = "docs/method.md"
_METHOD_OF_NONDETERMINISM = "docs/method/nondeterminism.md"
_SECTIONS = (
    ("answer", "Answer"),
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


@dataclass(frozen=True)
class Download:
    """A file that travels inside the page; ``href`` is None where it is too large and lies beside it."""

    name: str
    href: str | None
    note: str


def download(name: str, content: bytes, media_type: str, note: str) -> Download:
    """*content* as a link that saves it; compressed when large."""
    if len(content) > _MOST_PLAIN:
        import gzip

        content, name, media_type = gzip.compress(content, mtime=0), f"{name}.gz", "application/gzip"
    if len(content) > _MOST_EMBEDDED:
        return Download(name.removesuffix(".gz"), None, f"{note} (too large for this page: it lies beside it)")
    encoded = base64.b64encode(content).decode("ascii")
    return Download(name, f"data:{media_type};base64,{encoded}", f"{note}, {wording.size(len(content))}")


def render(analysis: Analysis, downloads: list[Download]) -> str:
    """The whole page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    figures = figures_of(analysis)
    bundle, script = _bundle(), _asset("report.js")
    environment = Environment(
        loader=PackageLoader("pagelab.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=False
    )
    environment.filters["prose"] = _prose
    environment.filters["json_line"] = lambda value: json.dumps(value, ensure_ascii=False, sort_keys=True)
    return environment.get_template("report.html.j2").render(
        a=analysis,
        answers=_answers(analysis),
        bundle=Markup(bundle),
        chart_data=Markup(_script_json(_chart_data(figures))),
        contents=_contents(analysis),
        csp=_policy(bundle, script),
        css=Markup(_style()),
        design=_design(analysis),
        downloads=downloads,
        figures=figures,
        first=first_picture(analysis, figures),
        has={"tlb": any(f.section == "tlb" for f in figures)},
        interval_level=wording.level(analysis.design.interval_level),
        js=Markup(script),
        nd=nondeterminism.for_page(analysis),
        ndref=lambda section: f"{_METHOD_OF_NONDETERMINISM}#{section}",
        ref=lambda section: f"{_METHOD}#{section}",
        subtitle=_subtitle(analysis),
        unit_words="seconds" if analysis.primary.unit == "s" else "the metric’s own unit",
        unseen=wording.listing(_unseen(analysis)),
        tables=_tables(analysis),
    )


def _prose(text: str) -> Any:
    """*text* for reading: numbers stay with their units, names with hyphens in one piece."""
    from markupsafe import Markup, escape

    words = [
        Markup('<span class="nb">{}</span>').format(word) if "-" in word and len(word) < 24 else escape(word)
        for word in _TIED.sub("\u00a0", text).split(" ")
    ]
    return Markup(" ").join(words)


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
        tables.failures,
        frames,
    )
    return {make.__name__: make(analysis) for make in makers}


def _answers(analysis: Analysis) -> list[tuple[str, list[str]]]:
    """Sentences by workload; those that say "no difference" and nothing else share one."""
    answers = []
    for workload in analysis.design.workloads:
        mine = [c for c in analysis.planned() if c.workload == workload]
        alike = [c for c in mine if sentences.can_be_grouped(c)]
        if len(alike) < 2 or len({c.metric for c in alike}) > 1:
            alike = []
        told = [c.sentence for c in mine if c not in alike]
        told += [sentences.no_differences(alike)] if alike else []
        if told:
            answers.append((workload, told))
    return answers


def _contents(analysis: Analysis) -> list[tuple[str, str]]:
    absent = set()
    if not analysis.answers:
        absent.add("answer")
    if not analysis.placements:
        absent.add("memory")
    if analysis.frames is None:
        absent.add("frames")
    if analysis.nondeterminism is None:
        absent.add("nondeterminism")
    if not tables.secondary(analysis).rows:
        absent.add("counters")
    found = [(id_, title) for id_, title in _SECTIONS if id_ not in absent]
    return sorted(found, key=lambda one: one[0] != "nondeterminism") if is_the_answer(analysis) else found


def _subtitle(analysis: Analysis) -> str:
    design = analysis.design
    policies = wording.count(len(design.policies), "policy", "policies")
    parts = [
        f"{wording.count(len(design.workloads), 'program')} under {policies}",
        wording.count(sum(c.analysed for c in design.conditions), "execution"),
    ]
    facts = {f.key: f.value for f in analysis.machine.facts if f.group == "summary"}
    parts += [facts[key] for key in ("processor",) if key in facts]
    if "kernel" in facts:
        parts.append(f"Linux {facts['kernel']}")
    if design.imported_from:
        parts.append(f"imported from {design.imported_from}")
    return " · ".join(parts)


def _unseen(analysis: Analysis) -> list[str]:
    """Workloads, or conditions where not all of a workload's are concerned, of which placement says little."""
    gone = {p.condition for p in analysis.placements if mostly_gone(p)}
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
    family = len(analysis.planned())
    metrics = list(dict.fromkeys(analysis.primary_of(w) for w in design.workloads))
    alpha = wording.level(round(1 - design.level, 12))
    return {
        "compared": f"{wording.listing(others) or 'nothing'} with {against}, for {wording.listing(design.workloads)}",
        "metric": "; ".join(
            f"{m.label}{f', {m.description}' if m.description and not design.imported_from else ''}" for m in metrics
        ),
        "family": f"the {family} planned comparisons"
        if family != 1
        else "the one planned comparison (which it leaves as it is)",
        "alpha": alpha,
        "level": f"intervals {wording.level(design.interval_level)}, tests {alpha} after Holm over "
        f"{wording.count(family, 'planned comparison')}",
    }


def _chart_data(figures: tuple[Figure, ...]) -> dict[str, Any]:
    return {
        "charts": {f.id: f.for_page() for f in figures},
        "paper": {"colours": theme.LIGHT, "width": theme.PAPER_WIDTH},
    }


def _script_json(value: Any) -> str:
    """JSON that no HTML parser can mistake for markup."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _style() -> str:
    light, dark = theme.css_variables(theme.LIGHT), theme.css_variables(theme.DARK)
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n" + _asset("report.css")
    )


def _asset(name: str) -> str:
    return files("pagelab.report").joinpath("static", name).read_text(encoding="utf-8")


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from vl-convert: no network at any time."""
    import vl_convert

    text: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub forgets the default
    if "</script" in text.lower() or "<!--" in text:
        raise RuntimeError("the Vega bundle cannot be put into a script element: it contains markup")
    return text


def _policy(*scripts: str) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
