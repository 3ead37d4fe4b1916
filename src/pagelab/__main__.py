"""``python -m pagelab`` is ``pagelab``."""

from pagelab.cli import main

main()
