"""Makes the part of the page on non-determinism: ALLOC's Figures 4 to 10, its Figure 1, and their tables."""
