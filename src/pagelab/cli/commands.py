"""The ``pagelab`` command: one file per command, each imported only when it is used."""

from __future__ import annotations

import typer

from pagelab.cli.habits import show_version
from pagelab.cli.lazy import Entry, group

# Everything after the program's name belongs to the program, with or without "--" before it.
_TAKES_A_COMMAND = {"allow_interspersed_args": False}

COMMANDS = {
    "try": Entry("pagelab.cli.try_", "try_command", _TAKES_A_COMMAND),
    "run": Entry("pagelab.cli.run", "run_command", _TAKES_A_COMMAND),
    "map": Entry("pagelab.cli.map", "map_command", _TAKES_A_COMMAND),
    "stat": Entry("pagelab.cli.stat", "stat_command"),
    "study": Entry("pagelab.cli.study", "study_app"),
    "report": Entry("pagelab.cli.report", "report_command"),
    "trace": Entry("pagelab.cli.trace", "trace_app"),
    "diagnose": Entry("pagelab.cli.diagnose", "diagnose_command", _TAKES_A_COMMAND),
    "advise": Entry("pagelab.cli.advise", "advise_command", _TAKES_A_COMMAND),
    "compare": Entry("pagelab.cli.compare", "compare_command"),
    "simulate": Entry("pagelab.cli.simulate", "simulate_app"),
    "model": Entry("pagelab.cli.model", "model_app"),
    "predict": Entry("pagelab.cli.predict", "predict_command"),
    "import": Entry("pagelab.cli.import_", "import_command"),
    "doctor": Entry("pagelab.cli.doctor", "doctor_command"),
    "demo": Entry("pagelab.cli.demo", "demo_command"),
}


app = group(
    COMMANDS,
    "A laboratory for virtual-memory page placement: where, how big and when a program's pages come into memory.",
)


@app.callback()
def _root(
    _version: bool = typer.Option(
        False, "--version", "-V", callback=show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass
