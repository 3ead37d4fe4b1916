"""The page in a real browser: it draws everything, says nothing on the console and asks nothing of any network."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import factory
import polars as pl
import pytest
from browser import Browser
from factory import Run, data_of

from pagelab.analysis import Analysis, StudyData
from pagelab.report import write_report
from pagelab.report.figures import figures_of
from pagelab.study.plan import Condition
from pagelab.study.schedule import Slot

HOSTILE = "<script>document.title='owned'</script>"
NAMES = (HOSTILE, "' onmouseover='x", "${datum}", "{{ a }}", "ünï·cödé 漢字", "a/../../b", "=1+1", "</title>")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="session")
def page(typical_data: StudyData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The typical study's page, alone in a directory: nothing lies beside it that it could load."""
    out = tmp_path_factory.mktemp("page") / "report"
    written = write_report(typical_data, out, ("html",))
    assert written.page is not None
    return written.page


def drawn(browser: Browser) -> dict[str, list[float]]:
    """Chart → [width, height, marks, nodes with text] of what is really on the screen."""
    found = browser.value(
        """Object.fromEntries([...document.querySelectorAll('[data-chart]')].map(place => {
             const svg = place.querySelector('svg');
             const box = svg ? svg.getBoundingClientRect() : {width: 0, height: 0};
             const marks = svg ? [...svg.querySelectorAll('.role-mark path, .role-mark line, .role-mark text')]
               .filter(mark => { const b = mark.getBoundingClientRect(); return b.width + b.height > 0; }).length : 0;
             const texts = svg ? [...svg.querySelectorAll('text')].filter(t => t.textContent.trim()).length : 0;
             return [place.dataset.chart, [box.width, box.height, marks, texts]]; }))"""
    )
    return dict(found)


@pytest.mark.parametrize(("width", "dark"), [(375, False), (1280, False), (1280, True)])
def test_every_plot_is_drawn_and_the_page_is_silent(
    browser: Browser, page: Path, typical_analysis: Analysis, width: int, dark: bool
) -> None:
    browser.screen(width, dark=dark)
    browser.open(page)
    charts = drawn(browser)
    assert set(charts) == {f.id for f in figures_of(typical_analysis)}
    for name, (wide, high, marks, texts) in charts.items():
        assert wide > 250, name
        assert high > 80, name
        assert marks >= 4, name
        assert texts >= 4, name
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]


def test_nothing_is_wider_than_a_phone(browser: Browser, page: Path) -> None:
    browser.screen(375)
    browser.open(page)
    browser.value("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert browser.value("document.documentElement.scrollWidth") == 375
    wider = browser.value(
        """[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 375.5
             && !e.closest('.table')).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert wider == []


def test_every_execution_is_a_point(browser: Browser, page: Path, typical_analysis: Analysis) -> None:
    browser.screen(1280)
    browser.open(page)
    for workload in typical_analysis.design.workloads:
        analysed = sum(e.analysed for e in typical_analysis.executions if e.workload == workload)
        points = browser.value(
            f"document.querySelectorAll('[data-chart=\"times-{workload}\"] .mark-symbol path').length"
        )
        assert points == analysed


def test_colours_follow_the_reader_and_differ_from_the_background(browser: Browser, page: Path) -> None:
    seen = []
    for dark in (False, True):
        browser.screen(1280, dark=dark)
        browser.open(page)
        background = browser.value("getComputedStyle(document.body).backgroundColor")
        text = browser.value("getComputedStyle(document.querySelector('.answer')).color")
        marks = browser.value(
            """[...new Set([...document.querySelectorAll('[data-chart="effects"] .mark-symbol path')]
                 .map(p => getComputedStyle(p).stroke).filter(c => c !== 'none'))]"""
        )
        assert contrast(text, background) >= 7
        assert len(marks) == 3
        assert all(contrast(mark, background) >= 3 for mark in marks), (marks, background)
        seen.append(background)
    assert len(set(seen)) == 2


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio of two CSS rgb() colours."""

    def luminance(colour: str) -> float:
        parts = [int(x) / 255 for x in re.findall(r"\d+", colour)[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_plots_have_words_for_those_who_cannot_see_them(browser: Browser, page: Path) -> None:
    browser.screen(1280)
    browser.open(page)
    labels = browser.value("[...document.querySelectorAll('.plot')].map(p => [p.getAttribute('role'), p.ariaLabel])")
    assert all(role == "img" for role, _ in labels)
    assert all(label and len(label) > 40 for _, label in labels)
    assert browser.value("document.documentElement.lang") == "en"
    assert browser.value("[...document.querySelectorAll('table')].every(t => t.caption && t.tHead)")


def test_the_first_screen_has_question_answer_and_picture(browser: Browser, page: Path) -> None:
    browser.screen(1280, 900)
    browser.open(page)
    for selector in ("h1", ".answer", "figure svg"):
        bottom = browser.value(f"document.querySelector('{selector}').getBoundingClientRect().bottom")
        assert 0 < bottom < 900, selector


def test_what_found_nothing_is_told_in_one_paragraph(browser: Browser, page: Path) -> None:
    browser.screen(1280)
    browser.open(page)
    told = browser.value("document.querySelector('#answer').innerText").replace("\u00a0", " ")
    assert "No difference from kernel found under all-4K, all-2M and mosaic (p = 1, Holm)." in told
    assert "−0.96% to +1.6% under all-2M" in told


@pytest.mark.by_turns(4)
def test_a_crowded_study_still_fits(browser: Browser, tmp_path: Path) -> None:
    """Nine programs, six policies, effects from a few percent to a hundredfold."""
    data = data_of(factory.crowded(tmp_path / "study"))
    written = write_report(data, tmp_path / "report", ("html",))
    assert written.page is not None
    browser.screen(1280, 900)
    browser.open(written.page)
    assert browser.value("document.querySelector('figure svg').getBoundingClientRect().bottom") < 900
    texts = "[...document.querySelectorAll('[data-chart=\"effects\"] svg text')].map(t => t.textContent)"
    assert browser.value(texts).count("scan · demand") == 1
    browser.screen(375)
    browser.open(written.page)
    assert browser.value("document.documentElement.scrollWidth") == 375
    assert browser.complaints() == []


def test_the_method_text_names_sections_that_exist(page: Path) -> None:
    method = (Path(__file__).parents[2] / "docs" / "method.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", method, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    named = set(re.findall(r"docs/method\.md#([\w-]+)", page.read_text(encoding="utf-8")))
    assert len(named) >= 5
    assert named <= anchors


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.external: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("download"):
            self.found[str(values["download"])] = str(values["href"])
        for key in ("src", "href", "srcset", "action"):
            value = values.get(key)
            if value and not value.startswith(("#", "data:")):
                self.external.append(f"{tag} {key}={value}")


def test_the_data_travel_inside_the_page(page: Path, typical_data: StudyData, typical_analysis: Analysis) -> None:
    links = _Links()
    links.feed(page.read_text(encoding="utf-8"))
    assert links.external == []
    content = {name: base64.b64decode(href.partition(",")[2]) for name, href in links.found.items()}
    runs = pl.read_csv(io.BytesIO(content["runs.csv"]))
    assert runs["wall_s"].to_list() == typical_data.runs["wall_s"].to_list()
    assert pl.read_csv(io.BytesIO(content["measurements.csv"])).height == typical_data.measurements.height
    assert pl.read_csv(io.BytesIO(content["contrasts.csv"])).height == len(typical_analysis.contrasts)
    assert json.loads(content["analysis.json"])["headline"] == typical_analysis.headline
    records = content["records.jsonl"].decode().splitlines()
    assert records == list(typical_data.record_lines)


def test_large_data_travel_compressed() -> None:
    from pagelab.report.shell import download

    content = b"0123456789" * 300_000
    found = download("runs.csv", content, "text/csv", "rows")
    assert found.name == "runs.csv.gz"
    assert found.href is not None
    assert gzip.decompress(base64.b64decode(found.href.partition(",")[2])) == content


@pytest.mark.parametrize(("form", "begins"), [("svg", b"<svg"), ("png", b"\x89PNG\r\n")])
def test_a_plot_can_be_saved_as_a_file(browser: Browser, page: Path, tmp_path: Path, form: str, begins: bytes) -> None:
    browser.screen(1280, dark=True)
    browser.open(page)
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path), eventsEnabled=False)
    browser.value(f'document.querySelector(\'[data-for="effects"][data-save="{form}"]\').click()')
    saved = tmp_path / f"effects.{form}"
    browser.wait_for(saved)
    content = saved.read_bytes()
    assert content.startswith(begins)
    if form == "svg":
        assert b"var(--" not in content
        assert b"#0069a8" in content, "paper colours, whatever the screen's"
    assert browser.complaints() == []


def test_it_prints(browser: Browser, page: Path) -> None:
    browser.screen(1280, dark=True)
    browser.open(page)
    pdf = base64.b64decode(browser.call("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 25
    browser.call(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.by_turns(4)
def test_names_are_data_never_markup_or_code(browser: Browser, tmp_path: Path) -> None:
    """Imported names can be anything: scripts, quotes, template and Vega syntax, paths."""
    plan = factory.plan(NAMES, ["base", *NAMES], 6, question=HOSTILE)
    directory = factory.store(
        tmp_path / "study",
        plan,
        lambda c, s: Run(wall_s=1 + len(c.policy) / 100 + s.execution / 1000, measurements=[1.0]),
    )
    written = write_report(data_of(directory), tmp_path / "report")
    assert written.page is not None
    browser.screen(375)
    browser.open(written.page)
    assert browser.complaints() == []
    assert browser.requests() == [written.page.resolve().as_uri()]
    assert browser.value("document.title") == f"example: {HOSTILE}"
    assert browser.value("document.querySelector('h1').textContent") == HOSTILE
    assert browser.value("document.documentElement.scrollWidth") == 375
    headings = browser.value("[...document.querySelectorAll('#answer h3')].map(h => h.textContent)")
    assert headings == list(NAMES)
    shown = browser.value(
        "[...document.querySelectorAll('[data-chart=\"effects\"] .role-axis-label text')].map(t => t.textContent)"
    )
    assert HOSTILE[:12] in " ".join(shown)
    assert len(list((tmp_path / "report" / "plots").iterdir())) == 2 * len(figures_of(written.analysis))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report", "study"], "no name became a path"


def test_a_study_of_one_execution_without_counters_or_machine(browser: Browser, tmp_path: Path) -> None:
    plan = factory.plan(["w"], ["a", "b"], 1)
    directory = factory.store(tmp_path / "study", plan, lambda *_: Run(machine=None, provenance=None))
    written = write_report(data_of(directory), tmp_path / "report")
    assert written.page is not None
    browser.screen(375)
    browser.open(written.page)
    assert browser.complaints() == []
    charts = drawn(browser)
    assert {"times-w", "effects"} <= set(charts)
    assert all(marks > 0 for _, _, marks, _ in charts.values())


def test_memory_given_back_before_the_end_is_not_passed_off_as_all(browser: Browser, tmp_path: Path) -> None:
    plan = factory.plan(["w"], ["a", "b"], 6)

    def run_of(condition: Condition, _: Slot) -> Run:
        return Run(peak_bytes=(256 << 20) if condition.policy == "a" else (2 << 30))

    written = write_report(data_of(factory.store(tmp_path / "study", plan, run_of)), tmp_path / "report", ("html",))
    assert written.page is not None
    browser.screen(1280)
    browser.open(written.page)
    memory = browser.value("document.querySelector('#memory').innerText")
    assert "Of w/b the placement of less than half of the peak is known" in memory
    assert "256 MiB of 2 GiB" in memory


def test_only_failures(browser: Browser, tmp_path: Path) -> None:
    """Every execution failed: the page says so instead of breaking."""
    plan = factory.plan(["w"], ["a", "b"], 3)
    directory = factory.store(tmp_path / "study", plan, lambda *_: Run(status="failed"))
    written = write_report(data_of(directory), tmp_path / "report")
    assert written.page is not None
    browser.screen(1280)
    browser.open(written.page)
    assert browser.complaints() == []
    assert drawn(browser) == {}
    assert "6 executions ended without a time to analyse" in browser.value("document.body.innerText")
    assert "no result for b; no wall time from b and a" in browser.value("document.body.innerText")
