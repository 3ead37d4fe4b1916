"""Campaigns for runtime models: layouts, runs, counts, fits and a judgement of them, in one directory."""
