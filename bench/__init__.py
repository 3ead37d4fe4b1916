"""Benchmarks of pagelab itself: costs as ratios or differences within one interleaved run."""
