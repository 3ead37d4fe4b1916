"""Benchmarks of pagelab itself: what it costs, each number a ratio or difference within one interleaved run."""
