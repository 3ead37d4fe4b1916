"""Advises where a program's huge pages should go: random mosaics, each region's gain, and a check of the promise."""
