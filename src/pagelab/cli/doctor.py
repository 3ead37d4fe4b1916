"""``pagelab doctor``: capabilities of this machine, missing features, and settings that can be restored."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.errors import BadInputError, MachineError

if TYPE_CHECKING:
    from rich.console import Console

    from pagelab.machine.change import Changer, Undone
    from pagelab.machine.probe import Context, Probe
    from pagelab.machine.settings import Change

_MARKS = {
    "ok": ("✓", "green"),
    "degraded": ("~", "yellow"),
    "absent": ("○", "yellow"),
    "denied": ("✗", "red"),
    "unsupported": ("–", "dim"),
    "unknown": ("?", "cyan"),
}


def doctor_command(
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="More settings, after --fix.")
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option("--fix", metavar="KEY=VALUE", help="Change a setting (journalled). --keys lists them."),
    ] = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="Restore all settings that pagelab changed on this machine.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="With --restore: also settings that others have changed since."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --fix or --restore: print the values that would be written.")
    ] = False,
    print_: Annotated[
        str | None,
        typer.Option("--print", metavar="KIND", help="Settings for systemd, docker, podman or kubernetes."),
    ] = None,
    keys: Annotated[bool, typer.Option("--keys", help="List the settings that --fix knows.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all answers as JSON.")] = False,
    noise: Annotated[bool, typer.Option(help="Measure noise (half a second of one CPU).")] = True,
    why: Annotated[bool, typer.Option("--why", help="Show the use of each line.")] = False,
    probe_colours: Annotated[
        bool,
        typer.Option(
            "--probe-colours", help="Measure whether frame numbers reach the caches, and keep the verdict (root)."
        ),
    ] = False,
    probe_translation: Annotated[
        bool,
        typer.Option(
            "--probe-translation",
            help="Measure this processor's translation hardware by timing: entries, and the cost of a walk.",
        ),
    ] = False,
    description: Annotated[
        Path | None,
        typer.Option(
            "--description",
            metavar="FILE",
            help="With --probe-translation: write a description for simulate tlb --processor FILE.",
        ),
    ] = None,
    processor: Annotated[
        str | None,
        typer.Option(
            "--processor", metavar="NAME", help="With --probe-translation: the preset to compare with [by CPUID]."
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", metavar="N", help="With --probe-…: rounds of measurement.")
    ] = None,
) -> None:
    """Show the capabilities of this machine and the needs of missing ones; change settings, and restore them.

    **Examples**

        pagelab doctor

        pagelab doctor --json > machine.json

        sudo pagelab doctor --fix hugepages=512 thp=always

        sudo pagelab doctor --restore

        sudo pagelab doctor --probe-colours

        pagelab doctor --probe-translation --description here.toml

        pagelab doctor --print docker
    """
    ways = {
        "--fix": fix,
        "--restore": restore,
        "--print": print_,
        "--keys": keys,
        "--probe-colours": probe_colours,
        "--probe-translation": probe_translation,
    }
    asked = [name for name, on in ways.items() if on]
    if len(asked) > 1:
        raise BadInputError(f"{' and '.join(asked)} do not go together; give one of them")
    if settings and not fix:
        raise BadInputError(f"{settings[0]!r} stands alone; to change a setting: pagelab doctor --fix {settings[0]}")
    if force and not restore:
        raise BadInputError("--force goes with --restore only")
    if dry_run and not (fix or restore):
        raise BadInputError("--dry-run goes with --fix or --restore only")
    if rounds is not None and not (probe_colours or probe_translation):
        raise BadInputError("--rounds goes with --probe-colours or --probe-translation only")
    for name, given in (("--description", description), ("--processor", processor)):
        if given is not None and not probe_translation:
            raise BadInputError(f"{name} goes with --probe-translation only")
    if fix:
        _fix([*fix, *(settings or [])], dry_run)
    elif restore:
        _restore(force, dry_run)
    elif print_:
        _print(print_)
    elif keys:
        _keys()
    elif probe_colours:
        from pagelab.cli.probe_colours import probe_colours as measure

        measure(as_json=as_json, rounds=rounds)
    elif probe_translation:
        from pagelab.cli.probe_translation import probe_translation as measure_translation

        measure_translation(as_json=as_json, rounds=rounds, description=description, processor=processor)
    else:
        _examine(as_json, noise, why)


def _examine(as_json: bool, noise: bool, why: bool) -> None:

    from pagelab.machine.doctor import examine, report
    from pagelab.machine.probe import Context

    context = Context()
    status = terminal.console(stderr=True)
    with status.status("looking at this machine …") as spinner:
        probes = examine(context, with_noise=noise, asking=lambda name: spinner.update(f"looking at {name} …"))
    if as_json:
        terminal.echo(json.dumps(report(context, probes), indent=2, ensure_ascii=False))
        return
    _show(terminal.console(), context, probes, why)


def _show(console: Console, context: Context, probes: list[Probe], why: bool) -> None:
    from rich.text import Text

    from pagelab.machine.doctor import GROUPS

    for group, title in GROUPS.items():
        members = [probe for probe in probes if probe.group == group]
        if members:
            console.print(f"\n{title}", style="bold")
            console.print(_table(members, why))
    _show_needs(console, context, probes)
    counts = {mark: sum(probe.status == mark for probe in probes) for mark in _MARKS}
    totals = [Text(f"{_MARKS[m][0]} {m} {n}", style=_MARKS[m][1]) for m, n in counts.items() if n]
    console.print(Text("\n") + Text("  ").join(totals), highlight=False)
    if context.container.kind != "none":
        hint = f"{context.pagelab} doctor --print {context.print_kind}"
        console.print(f"In a container: settings belong to the host. What it must give: {hint}")


def _table(probes: list[Probe], why: bool) -> object:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 1), expand=False)
    table.add_column(width=1)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for probe in probes:
        mark, style = _MARKS[probe.status]
        text = Text(probe.text)
        if why:
            text.append(f"\n{probe.why}", style="dim italic")
        table.add_row(Text(mark, style=style), probe.name, text)
    return table


def _show_needs(console: Console, context: Context, probes: list[Probe]) -> None:
    from rich.text import Text

    wanting: dict[str, list[str]] = {}
    for probe in probes:
        if probe.needs and probe.status != "ok":
            wanting.setdefault(probe.needs, []).append(probe.name)
    if not wanting:
        return
    where = (
        "What the host or the container's settings must give"
        if context.container.kind != "none"
        else "What it would need"
    )
    console.print(f"\n{where}", style="bold")
    # No table: a command that is folded cannot be copied.
    for needs, names in wanting.items():
        console.print(Text(f" {', '.join(names)}:", style="cyan"), Text(needs), soft_wrap=True)


def _keys() -> None:
    from rich.table import Table
    from rich.text import Text

    from pagelab.machine.settings import FIXED, PATTERNS

    table = Table("setting", "what it does", box=None)
    for pattern, meaning in PATTERNS:
        table.add_row(Text(pattern), Text(meaning))
    for setting in FIXED:
        table.add_row(Text(f"{setting.key}={setting.values}"), Text(setting.why))
    terminal.console().print(table)


def _print(kind: str) -> None:
    from pagelab.machine import describe
    from pagelab.machine.container_requirements import KINDS, text

    found = next((known for known in KINDS if known == kind), None)
    if found is None:
        raise BadInputError(f"--print {kind}: allowed: {', '.join(KINDS)}")
    terminal.echo(text(found, describe()), nl=False)


def _changer() -> Changer:
    from pagelab.machine.change import Changer
    from pagelab.machine.journal import Journal
    from pagelab.machine.sysfs import Tree

    return Changer(Tree.from_environment(), Journal())


def _fix(assignments: list[str], dry_run: bool) -> None:
    from pagelab.machine.probe import own_command
    from pagelab.machine.settings import plan

    changer = _changer()
    changes = plan(changer.tree, assignments)
    if dry_run:
        for change in changes:
            terminal.echo(f"would write {change.value} to {change.path} (now {changer.tree.get(change.path)})")
    command = f"{own_command()} doctor --fix {' '.join(assignments)}"
    _check_rights(changer, changes, command)
    if dry_run:
        return
    made = changer.apply(changes, f"doctor --fix {' '.join(assignments)}")
    for entry in made:
        terminal.echo(f"{entry.path}: {entry.old} → {entry.new}")
    for change in changes:
        if change.path not in {entry.path for entry in made}:
            terminal.echo(f"{change.path}: {change.value} already")
    if made:
        terminal.echo(f"to put back: sudo {own_command()} doctor --restore")


def _check_rights(changer: Changer, changes: list[Change], command: str) -> None:
    """Before any change: shows an ordinary user the command with sudo, and root in a container the host to use."""
    for change in changes:
        if not os.access(changer.tree.path(change.path), os.W_OK, effective_ids=True):
            if os.geteuid() != 0:
                raise MachineError(f"cannot write {change.path}: Permission denied (EACCES); run: sudo {command}")
            raise MachineError(
                f"cannot write {change.path}: not writable, even for root (a container's /sys?); "
                f"on the host run: sudo {command}"
            )
    changer.journal.check_writable()


def _restore(force: bool, dry_run: bool) -> None:
    from pagelab.machine.probe import own_command

    changer = _changer()
    snapshot = changer.journal.read()
    if snapshot.damaged_lines:
        terminal.say(f"pagelab: {changer.journal.path}: {snapshot.damaged_lines} damaged line(s) skipped\n")
    active = snapshot.active(changer.boot)
    if dry_run:
        for entry in reversed(active):
            present = changer.tree.get(entry.path)
            note = ""
            if entry.owner_lives:
                note = f"; left: process {entry.pid} still runs"
            elif present not in (entry.old, entry.new) and not force:
                note = f"; left, unless with --force, if somebody else has changed it from {entry.new}"
            terminal.echo(f"would write {entry.old} to {entry.path} (now {present}){note}")
        if not active:
            terminal.echo("nothing to restore")
        return
    if active and os.geteuid() != 0 and not os.access(changer.journal.path, os.W_OK):
        raise MachineError(f"cannot restore {active[0].path}: not root; run: sudo {own_command()} doctor --restore")
    report = changer.restore(force=force)
    if not report:
        terminal.echo("nothing to restore")
    _tell(report)


def _tell(report: list[Undone]) -> None:
    for item in report:
        terminal.echo(item.message, err=item.left)
    left = [item for item in report if item.left]
    if left:
        raise MachineError(f"{len(left)} of {len(report)} setting(s) not restored, see above")
