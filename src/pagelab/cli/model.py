"""``pagelab model``: one file a command, each imported only when it is used."""

from __future__ import annotations

from pagelab.cli.lazy import Entry, group

COMMANDS: dict[str, Entry] = {
    "layouts": Entry("pagelab.cli.model_layouts", "layouts_command"),
}

model_app = group(
    COMMANDS, "Models of run time: layouts of page sizes, and what is fitted to their runs.", add_completion=False
)
