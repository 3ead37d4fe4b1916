"""The page of a diagnosis: ``diagnosis.html`` and ``diagnosis.svg``, which need nothing else."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

from pagelab.analysis import wording
from pagelab.diagnose import words
from pagelab.diagnose.model import Diagnosis, Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

PAGE = "diagnosis.html"
PICTURE = "diagnosis.svg"
_HEADS = (
    "pinned",
    "SD ratio",
    "deviation ratio",
    "variance removed",
    "mean shift",
    "share of the choice",
    "p (Holm)",
    "verdict",
)
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1c2127; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #dde1e5; white-space: nowrap; }
svg { max-width: 100%; height: auto; } .soft { color: #5a636d; }
"""


def write(directory: Path, found: Diagnosis) -> Path:
    """Writes both files into ``directory``; returns the page's path."""
    from pagelab.diagnose import judge
    from pagelab.diagnose.campaign import times_of

    drawn = _svg(found, judge.whole_blocks(times_of(directory)))
    (directory / PICTURE).write_text(drawn, encoding="utf-8")
    page = directory / PAGE
    temporary = page.with_name(f".{PAGE}.tmp")
    temporary.write_text(_page(found, drawn), encoding="utf-8")
    temporary.replace(page)
    return page


def _svg(found: Diagnosis, times: Mapping[str, NDArray[np.float64]]) -> str:
    import vl_convert

    from pagelab.diagnose.picture import executions
    from pagelab.report.charts import theme

    spec = theme.on_paper(executions(found, times, theme.PAPER_WIDTH))
    svg: str = vl_convert.vegalite_to_svg(spec)
    return svg


def _page(found: Diagnosis, svg: str) -> str:
    command = html.escape(" ".join(found.settings.argv))
    told = "".join(f"<p>{html.escape(text)}</p>" for text in found.sentences + found.interactions)
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in found.notes)
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cells(one))}</tr>" for one in found.findings)
    heads = "".join(f"<th>{head}</th>" for head in _HEADS)
    level = wording.level(found.settings.level)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Diagnosis of {command}</title><style>{_STYLE}</style></head><body>
<p class="soft"><code>{command}</code></p>
<h1>{html.escape(found.headline)}</h1>{told}
<h2>Executions</h2><div class="wide">{svg}</div>
<p class="soft">A dot is an execution; in each row, one source of variance is pinned. The numbers are ratios of
standard deviations to the default's, with {level} intervals: below 1, pinning lowers the spread.
In colour: surely so. Rows of one page size, CPU or cache state have that value's own ratio.</p>
<h2>Sources</h2><div class="wide"><table><tr>{heads}</tr>{rows}</table></div>
<p class="soft">{found.blocks} executions of each pinned value, in random order; the default's spread is
{words.spread(found.default_spread.estimate)} ({words.spread(found.default_spread.low)} to
{words.spread(found.default_spread.high)}). These figures chose the recommendation and are not to be quoted.</p>
{_confirmation(found)}<h2>Notes</h2><ul>{notes}</ul>
<p class="soft">Method: docs/diagnose.md. All figures: diagnosis.json. All executions: pagelab report.</p>
</body></html>
"""


def _cells(one: Finding) -> list[str]:
    verdict = html.escape(words.VERDICTS[one.verdict])
    if one.sd_ratio is None or one.removed is None or one.deviation_ratio is None:
        return [html.escape(one.label), *[""] * (len(_HEADS) - 2), verdict]
    ratio, typical, share, p = one.sd_ratio, one.deviation_ratio, one.share, one.p_holm
    return [
        html.escape(one.label),
        f"{ratio.estimate:.2f} ({ratio.low:.2f}–{ratio.high:.2f})",
        f"{typical.estimate:.2f} ({typical.low:.2f}–{typical.high:.2f})",
        f"{one.removed.estimate:.0%}".replace("-", wording.MINUS),
        "not known" if one.mean_shift is None else words.plus_minus(one.mean_shift),
        "" if share is None else f"{share.estimate:.0%} ({share.low:.0%}–{share.high:.0%})",
        "" if p is None else wording.digits(p, 2),
        verdict,
    ]


def _confirmation(found: Diagnosis) -> str:
    one = found.confirmation
    if one is None:
        return ""
    text = (
        f"{one.executions} fresh executions of each, interleaved: spread {words.spread(one.cv_default)} by default, "
        f"{words.spread(one.cv_recommended)} with {one.recommended} (SD ratio {one.sd_ratio.estimate:.2f}, "
        f"{one.sd_ratio.low:.2f}–{one.sd_ratio.high:.2f}); mean {words.plus_minus(one.mean_shift)}"
    )
    return f"<h2>Confirmation</h2><p>{html.escape(text)}</p>"
