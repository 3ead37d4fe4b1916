"""What the page shows of non-determinism: ALLOC's Figures 4 to 10, its Figure 1, and the tables behind them."""
