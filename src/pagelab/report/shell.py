"""Makes every page as one HTML file that needs no other files and no network.

Names of programs, messages and paths are untrusted data: Jinja2 escapes them, JSON is written without ``<``, and the
page's Content-Security-Policy allows only scripts with the listed hashes, so that even after a mistake here no script
in these data could run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pagelab.analysis import wording
from pagelab.charts import theme
from pagelab.report.figure import Figure
from pagelab.terminal import plain, plain_lines

_MOST_PLAIN = 2 << 20
"""Data above this many bytes are compressed before they are embedded."""
_MOST_EMBEDDED = 1 << 20
"""Compressed data above this many bytes stay outside the page, which must open on a phone."""
_TIED = re.compile(r"(?<=p) (?==)|(?<==) (?=\d)| (?=×)|(?<=×) |(?<=\d) (?=(?:[mµn]?s|[KMGT]?i?B|billion|million)\b)")
"""Spaces at which a line must not break."""


@dataclass(frozen=True)
class Download:
    """A file that the page offers; ``href`` is None where the file is too large and lies beside the page."""

    name: str
    href: str | None
    note: str


def download(name: str, content: bytes, media_type: str, note: str) -> Download:
    """*content* as a link that saves it; large content is compressed."""
    if len(content) > _MOST_PLAIN:
        import gzip

        content, name, media_type = gzip.compress(content, mtime=0), f"{name}.gz", "application/gzip"
    if len(content) > _MOST_EMBEDDED:
        return beside(name.removesuffix(".gz"), note)
    encoded = base64.b64encode(content).decode("ascii")
    return Download(name, f"data:{media_type};base64,{encoded}", f"{note}, {wording.size(len(content))}")


def beside(name: str, note: str, *, is_there: bool = True) -> Download:
    """A file that lies beside the page, which only names it."""
    where = "it lies beside it" if is_there else "--format data writes it"
    return Download(name, None, f"{note} (too large for this page: {where})")


def render(template: str, figures: Sequence[Figure], **values: Any) -> str:
    """The page that ``template`` makes from ``values``, with styles, drawing scripts and the figures' data."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    bundle, script = _bundle(), _asset("report.js")
    environment = Environment(
        loader=PackageLoader("pagelab.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=False,
        finalize=_shown,
    )
    environment.filters["prose"] = _prose
    environment.filters["json_line"] = lambda value: json.dumps(value, ensure_ascii=False, sort_keys=True)
    return environment.get_template(template).render(
        bundle=Markup(bundle),
        chart_data=Markup(_script_json(_chart_data(figures))),
        csp=_policy(bundle, script),
        css=Markup(_style()),
        figures=figures,
        js=Markup(script),
        **values,
    )


def _shown(value: Any) -> Any:
    """Escapes text from outside; only this package's own markup is kept."""
    from markupsafe import Markup

    return plain_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _prose(text: str) -> Any:
    """*text* without line breaks between numbers and units, or within names with hyphens."""
    from markupsafe import Markup, escape

    words = [
        Markup('<span class="nb">{}</span>').format(word) if "-" in word and len(word) < 24 else escape(word)
        for word in _TIED.sub("\u00a0", plain(text)).split(" ")
    ]
    return Markup(" ").join(words)


def _chart_data(figures: Sequence[Figure]) -> dict[str, Any]:
    return {
        "charts": {f.id: f.for_page() for f in figures},
        "paper": {"colours": theme.LIGHT, "width": theme.PAPER_WIDTH},
    }


def _script_json(value: Any) -> str:
    """*value* as JSON that no HTML parser can mistake for markup."""
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
