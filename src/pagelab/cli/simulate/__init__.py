"""``pagelab simulate``: one file per simulator, each imported at its first use."""

from __future__ import annotations

from pagelab.cli.lazy import Entry, group

COMMANDS: dict[str, Entry] = {
    "paging": Entry("pagelab.cli.simulate.paging", "paging_command"),
    "cache": Entry("pagelab.cli.simulate.cache", "cache_command"),
    "tlb": Entry("pagelab.cli.simulate.tlb", "tlb_command"),
    "sweep": Entry("pagelab.cli.simulate.sweep", "sweep_command"),
    "model": Entry("pagelab.cli.simulate.model", "model_command"),
}

simulate_app = group(
    COMMANDS, "Simulate memory that this machine may not have: paging with colours, caches, TLBs.", add_completion=False
)
