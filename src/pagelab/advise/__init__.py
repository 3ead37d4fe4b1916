"""Where a program's huge pages should go: random mosaics, what each region gains, and a check of what is promised."""
