"""``pagelab model``: runtime models of one workload, one file per command, each imported only when it is used."""

from __future__ import annotations

from pagelab.cli.lazy import Entry, group

COMMANDS: dict[str, Entry] = {
    "run": Entry("pagelab.cli.model.run", "run_command"),
    "layouts": Entry("pagelab.cli.model.layouts", "layouts_command"),
    "import": Entry("pagelab.cli.model.import_", "import_command"),
    "fit": Entry("pagelab.cli.model.fit", "fit_command"),
    "report": Entry("pagelab.cli.model.report", "report_command"),
    "check": Entry("pagelab.cli.model.check", "check_command"),
    "range": Entry("pagelab.cli.model.range", "range_command"),
    "kinds": Entry("pagelab.cli.model.kinds", "kinds_command"),
    "sensitivity": Entry("pagelab.cli.model.sensitivity", "sensitivity_command"),
}

model_app = group(
    COMMANDS,
    "Runtime models: from TLB hits, misses and walk cycles of many layouts to run time, and how far each is off.",
    add_completion=False,
)
