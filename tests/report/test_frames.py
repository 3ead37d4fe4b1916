"""Studies of frame policies: what was placed, whether colours can matter there, and the page that says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import factory
import pytest
from browser import Browser
from factory import SCATTERED, data_of

from pagelab.analysis import Analysis, analyse
from pagelab.analysis.caveats import about_colours
from pagelab.analysis.frames import FramesSummary
from pagelab.analysis.policy_summary import policy_summary
from pagelab.report import charts, tables, write_report
from pagelab.report.charts import frames as frames_chart
from pagelab.report.figures import figures_of

EFFECTIVE = {**SCATTERED, "verdict": "effective"}


def coloured(tmp_path: Path, verdict: dict[str, object] | None = SCATTERED, effect: float = 1.0) -> Analysis:
    return analyse(data_of(factory.coloured(tmp_path / "study", verdict, effect)))


def of(found: Analysis, policy: str) -> FramesSummary:
    assert found.frames is not None
    return next(one for one in found.frames.summaries if one.condition == f"gups/{policy}")


def test_what_was_placed_is_summed_up_by_condition(tmp_path: Path) -> None:
    found = coloured(tmp_path)
    assert found.frames is not None
    assert [one.condition for one in found.frames.summaries] == ["gups/page-coloring", "gups/bin-hopping"]
    page = of(found, "page-coloring")
    assert (page.colours, page.executions, page.requested_pages) == (64, 8, 6400)
    assert (page.placed_least, page.placed_median, page.fallback_pages) == (1.0, 1.0, 0)
    assert page.kept == pytest.approx(6000 / 6400)
    assert page.placed_by_colour == (100.0,) * 64
    hopping = of(found, "bin-hopping")
    assert hopping.fallback_pages == 8 * 80
    assert hopping.placed_least is not None
    assert hopping.placed_median is not None
    assert hopping.placed_least <= hopping.placed_median < 1
    assert hopping.fallback_by_colour[:9] == (10.0,) * 8 + (0.0,)
    assert dict(hopping.out_of_reach) == {"larger-page": 2 << 20, "file": 33.5 * (1 << 20)}
    assert hopping.kept is None, "nothing was measured at exit"


def test_a_study_without_frame_policies_says_nothing_of_frames(typical_analysis: Analysis) -> None:
    assert typical_analysis.frames is None
    assert charts.pages_by_colour(typical_analysis) is None
    assert tables.frames(typical_analysis).rows == ()


def test_where_caches_do_not_follow_frames_no_effect_of_colours_is_to_be_expected(tmp_path: Path) -> None:
    part = coloured(tmp_path).frames
    assert part is not None
    assert part.verdict == SCATTERED["verdict"]
    assert part.sentence.startswith("This machine's caches do not follow frame numbers")
    assert "so no effect of colours can be expected (measured 2026-01-02)." in part.sentence
    assert "difference found" not in part.sentence, "none was found"


def test_a_difference_found_all_the_same_is_not_put_down_to_colours(tmp_path: Path) -> None:
    found = coloured(tmp_path, effect=1.3)
    assert any(c.verdict == "higher" for c in found.planned())
    assert found.frames is not None
    assert "not of where they lie" in found.frames.sentence
    effective = coloured(tmp_path / "other", EFFECTIVE, effect=0.7)
    assert effective.frames is not None
    assert effective.frames.sentence.startswith("Frame numbers reach this machine's caches")
    assert "not of where they lie" not in effective.frames.sentence


def test_a_machine_that_was_not_measured_is_told_the_command(tmp_path: Path) -> None:
    part = coloured(tmp_path, None).frames
    assert part is not None
    assert part.verdict is None
    assert part.sentence.endswith("measure it with: sudo pagelab doctor --probe-colours.")


def test_the_table_says_placed_fallbacks_kept_and_out_of_reach(tmp_path: Path) -> None:
    table = tables.frames(coloured(tmp_path))
    page, hopping = table.rows
    assert page == ("page-coloring", "page-coloring", "–", "64", "6,400", "100%", "100%", "0", "93.8%")
    assert hopping[:4] == ("bin-hopping", "bin-hopping", "page cache of files 33.5 MiB, larger pages 2 MiB", "64")
    assert hopping[7:] == ("640", "–")
    assert len(table.columns) == len(page)


def test_bars_are_pages_over_the_even_share(tmp_path: Path) -> None:
    found = coloured(tmp_path)
    assert frames_chart._heights(of(found, "page-coloring")) == [(1.0, 1.0)] * 64
    hopping = frames_chart._heights(of(found, "bin-hopping"))
    assert sum(whole for _, whole in hopping) == pytest.approx(64)
    assert all(whole > placed for placed, whole in hopping[:8])
    assert all(whole == placed for placed, whole in hopping[8:])


@pytest.mark.parametrize("colours", [1, 3, 64, 65, 100, 512, 1024])
def test_many_colours_share_bars_without_looking_crowded(tmp_path: Path, colours: int) -> None:
    one = of(coloured(tmp_path), "page-coloring")
    even = FramesSummary(**{**vars_of(one), "placed_by_colour": (7.0,) * colours})
    even = FramesSummary(**{**vars_of(even), "fallback_by_colour": (0.0,) * colours})
    heights = frames_chart._heights(even)
    assert len(heights) == min(colours, frames_chart.MOST_BARS)
    assert all(placed == pytest.approx(1) for placed, _ in heights)


def vars_of(one: FramesSummary) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(one)


def test_several_strategies_of_a_policy_are_told_apart(tmp_path: Path) -> None:
    made = factory.plan(["w"], ["a", "b"], 6)
    both = factory.placed(factory.frames("page-coloring", [5, 5]), factory.frames("random", [4, 6], number=1))
    found = factory.study(
        tmp_path,
        made,
        factory.separated(6, 1.0, 1.0),
        lambda c, _s, run: factory.Run(wall_s=run.wall_s, frames=both if c.policy == "b" else None),
    )
    assert found.frames is not None
    assert [frames_chart.label(found, one) for one in found.frames.summaries] == ["b: page-coloring", "b: random"]
    assert charts.pages_by_colour(found) is not None


@pytest.mark.parametrize(
    ("toml", "wanted"),
    [
        ('fetch = "demand"\n', "pages come when they are touched, none ahead"),
        ('[[rule]]\nmemory = ["file"]\nfetch = "willneed"\n', "files are read in the background as soon as they are"),
        ('frames = "page-coloring"\n', "a page’s cache colour follows its address"),
        ("frames = { bin-hopping = { seed = 1 } }\n", "cache colours are dealt in the order of page faults"),
        ('frames = { kind = "random" }\nfetch = "demand"\n', "cache colours are drawn at random; pages come when"),
        ('pages = "2M"\n', None),
        ("not = toml = at all", None),
        ("rule = 3\nfetch = 4\nframes = [1]\n", None),
    ],
)
def test_policies_are_explained_in_a_few_words(toml: str, wanted: str | None) -> None:
    found = policy_summary(toml)
    if wanted is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(wanted)


def test_the_headline_is_a_sentence_and_explains_the_policy_it_names(tmp_path: Path) -> None:
    made = factory.plan(["scan"], ["kernel", "demand"], 8)
    texts = [c.asking(policy_toml=f'fetch = "{c.policy}"\n') for c in made.conditions]
    found = factory.study(
        tmp_path,
        made.model_copy(update={"conditions": texts}),
        {"scan/kernel": [1 + i / 100 for i in range(8)], "scan/demand": [90 + i / 100 for i in range(8)]},
    )
    assert found.headline.startswith(
        "scan takes 87.0 times as long under demand (pages come when they are touched, none ahead) as under kernel"
    )
    (alone,) = found.answers
    assert alone.startswith("demand lengthens scan"), "the answers below have the table beside them"
    several = coloured(tmp_path / "several", effect=1.3)
    assert "slower under page-coloring (a page’s cache colour follows its address) than under" in several.headline


def test_triangles_are_what_got_fewer_pages_and_hollow_means_one_thing(typical_analysis: Analysis) -> None:
    captions = " ".join(figure.caption for figure in figures_of(typical_analysis))
    assert captions.count("hollow") == 1, "no difference found, in the plot of effects"
    assert "Triangles got fewer pages of the asked size." in captions
    assert any("these executions stay in the analysis" in caveat for caveat in typical_analysis.caveats)


def test_that_colours_do_not_matter_is_the_first_caveat_and_on_the_page_beside_its_figures(
    page: Path, tmp_path: Path
) -> None:
    found = coloured(tmp_path, effect=1.3)
    told = about_colours(found.warnings)
    assert len(told) == 1
    assert "no effect of colours can be expected" in told[0]
    assert found.caveats[0] == told[0]
    shown = re.findall(r'<p class="[^"]*caveat[^"]*">(.*?)</p>', page.read_text(), re.DOTALL)
    assert not any("no effect of colours" in caveat for caveat in shown), "once, as the colours' own sentence"
    assert not about_colours(coloured(tmp_path / "effective", EFFECTIVE).warnings)
    assert "is not known" in coloured(tmp_path / "unknown", None).caveats[0]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("coloured")
    data = data_of(factory.coloured(out / "study", SCATTERED, 1.3, ("gups", "sort")))
    written = write_report(data, out / "report", ("html",))
    assert written.page is not None
    return written.page


@pytest.mark.parametrize(("width", "dark"), [(375, False), (1280, False), (1280, True)])
def test_the_page_draws_colours_and_says_on_its_first_screen_that_they_do_not_matter(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.screen(width, 900, dark=dark)
    browser.open(page)
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]
    place = "document.querySelector('.colours').getBoundingClientRect()"
    assert 0 < browser.value(f"{place}.bottom") < 900
    told = browser.value("document.querySelector('.colours').innerText").replace("\u00a0", " ")
    assert "no effect of colours can be expected" in told
    bars = browser.value(
        """[...document.querySelectorAll('[data-chart="colours"] .mark-rect path')]
             .filter(bar => bar.getBoundingClientRect().height > 0).length"""
    )
    # Two programs, two policies with 64 bars each, and eight colours of one policy with pages that fell back.
    assert bars == 2 * (64 + 64 + 8)
    labels = browser.value(
        "[...document.querySelectorAll('[data-chart=\"colours\"] svg text')].map(t => t.textContent)"
    )
    assert {"gups", "sort", "page-coloring", "bin-hopping"} <= set(labels)
    assert browser.value("document.querySelector('#frames table caption').innerText") == "Frames asked and got"
    if width == 375:
        assert browser.value("document.documentElement.scrollWidth") == 375


def test_short_placed_executions_are_drawn_as_triangles(browser: Browser, tmp_path: Path) -> None:
    written = write_report(data_of(factory.typical(tmp_path / "study", ("btree",))), tmp_path / "report", ("html",))
    assert written.page is not None
    browser.screen(1280)
    browser.open(written.page)
    shapes = browser.value(
        """[...document.querySelectorAll('[data-chart="times-btree"] .mark-symbol path')]
             .map(p => [p.getAttribute('d').includes('A'), getComputedStyle(p).fillOpacity])"""
    )
    assert sum(not round_ for round_, _ in shapes) == 2, "two executions of mosaic got fewer tiles"
    assert {float(opacity) for _, opacity in shapes} == {0.75}, "none is hollow"
