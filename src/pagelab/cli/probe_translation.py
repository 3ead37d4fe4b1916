"""``pagelab doctor --probe-translation``: levels, walks and the host's pages, by timing chases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pagelab import terminal
from pagelab.errors import BadInputError, quoted

if TYPE_CHECKING:
    from rich.console import Console

    from pagelab.machine.translation import Cycles, Levels, TranslationFile
    from pagelab.simulate.calibration import Measured, Step

MOST_ROUNDS = 1000
_HOST = {
    "none": "no virtual machine: pages are what the kernel gives",
    "4K": "the host backs this machine with 4K pages: a 2M page here is translated in small pieces",
    "2M or larger": "the host backs this machine with pages of 2M or larger",
    "both": "the host backs some parts of this machine with 4K pages, others with larger ones",
    "unknown": "what pages the host has could not be told",
}


def probe_translation(*, as_json: bool, rounds: int | None, description: Path | None, processor: str | None) -> None:
    """Measures, stores what came out, shows it, and writes the description."""
    from pagelab.machine.probe_translation import ROUNDS, changes, probe, store
    from pagelab.simulate import calibration
    from pagelab.simulate.hardware import presets

    if rounds is not None and not 6 <= rounds <= MOST_ROUNDS:
        raise BadInputError(f"--rounds {rounds}: allowed: 6 to {MOST_ROUNDS}; without it, {ROUNDS} are made")
    if processor is not None and processor not in presets():
        raise BadInputError(f"no processor is called {processor}; allowed: {', '.join(presets())}")
    if description is not None and not description.parent.is_dir():
        raise BadInputError(f"cannot write {description}: there is no directory {description.parent}")
    preset = processor or calibration.preset_of(_cpuinfo())
    with terminal.console(stderr=True).status("measuring chains of pages (half a minute) …"):
        found = probe(rounds=rounds or ROUNDS)
    path, before = store(found)
    measured = _measured(found)
    if description is not None:
        where = f"pagelab doctor --probe-translation, {found.rounds} rounds on {found.host}, {found.measured_at}"
        document = calibration.description(measured, preset, name=description.stem, where=where)
        calibration.write(document, description)
        if not measured.walks:
            terminal.say(
                f"warning: no walk was seen, so the cycles in {description} are not this machine's; measure again when "
                "it is quieter: pagelab doctor --probe-translation --rounds 40\n"
            )
    if as_json:
        terminal.echo(found.model_dump_json(by_alias=True, indent=2))
        return
    console = terminal.console()

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    for levels in found.levels:
        _show(console, levels)
    say("")
    at_once = found.walks_at_once
    if at_once is not None:
        say(f"walks under way at once, at least: {_cycles(at_once)}")
    say(_HOST[found.host_pages])
    for line in calibration.verdict(measured, preset):
        say(line)
    if preset is None:
        say("there is no preset for this processor; to compare with one: --processor NAME")
    if before is not None:
        changed = changes(before, found)
        told = "; ".join(changed) if changed else "nothing beyond the intervals"
        say(f"changed since {before.measured_at}: {told}", "bold")
    again = "the same command" if description is None else "the same command without --description"
    say(f"stored in {path}; {again} after a campaign says what has changed")
    if description is not None:
        say(f"written: {description}; to use it: pagelab simulate tlb TRACE --processor {quoted(description)}")


def _cpuinfo() -> str:
    return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")


def _show(console: Console, levels: Levels) -> None:
    from rich.table import Table

    longest = f"up to {levels.longest} pages, against {levels.reference} lines"
    console.print(f"\n{levels.page} pages, {longest}", style="bold", highlight=False)
    if not levels.steps:
        console.print("no level was seen to end", highlight=False)
        return
    table = Table("", "last that fits", "first beyond", "95% of the step", "cycles beyond", box=None, pad_edge=False)
    names = ("first level", "second level")
    for number, step in enumerate(levels.steps):
        name = names[number] if number < len(names) else "walks cost more"
        table.add_row(
            name, str(step.most_that_fit), str(step.first_beyond), f"{step.low} to {step.high}", _cycles(step.after)
        )
    console.print(table)
    if levels.walks:
        walks = Table("walks over pages", "last level of the tables", "cycles", box=None, pad_edge=False)
        for walk in levels.walks:
            walks.add_row(str(walk.pages), f"{walk.table_bytes / 1024:g} KiB", _cycles(walk.cycles))
        console.print(walks)


def _cycles(one: Cycles) -> str:
    if one.low is None or one.high is None:
        return f"{one.median:.1f} (too few rounds for an interval)"
    return f"{one.median:.1f} ({one.low:.1f} to {one.high:.1f})"


def _measured(found: TranslationFile) -> Measured:
    """The measurements for a description."""
    from pagelab.simulate.calibration import Measured

    by_page = {levels.page: levels for levels in found.levels}
    small, large = by_page.get("4K"), by_page.get("2M")
    # Pages of 2M that the host splits are no large entries.
    whole = large if found.host_pages in ("none", "2M or larger") else None
    return Measured(
        first=_step(small, 0),
        second=_step(small, 1),
        first_large=_step(whole, 0),
        walks=() if small is None else tuple((walk.pages, walk.cycles.median) for walk in small.walks),
        host_page={"4K": "4K", "2M or larger": "2M", "both": "4K"}.get(found.host_pages),
    )


def _step(levels: Levels | None, number: int) -> Step | None:
    from pagelab.simulate.calibration import Step

    if levels is None or len(levels.steps) <= number:
        return None
    step = levels.steps[number]
    return Step(step.most_that_fit, step.first_beyond)
