"""Benchmarks of pagelab itself: its costs, each a ratio or difference within one interleaved run."""
