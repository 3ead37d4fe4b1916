"""Sweeps: traces × configurations × seeds, on processes or a cluster, into one dataset (docs/simulate-sweep)."""
