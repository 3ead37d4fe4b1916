"""Non-determinism on the page: ALLOC's Figures 4 to 10, its Figure 1, and their tables."""
