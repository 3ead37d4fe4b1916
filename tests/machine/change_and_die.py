"""Apply or restore settings, and die by SIGKILL at a named step.

Arguments: ROOT JOURNAL STEP fix|restore [KEY=VALUE…]. The settings of an invented machine behave as the kernel's.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from fake_machine import FakeTree

from pagelab.machine.change import Changer
from pagelab.machine.journal import Journal
from pagelab.machine.settings import plan
from pagelab.machine.sysfs import Tree


def main() -> None:
    root, journal, last, action, *assignments = sys.argv[1:]
    tree = Tree() if root == "/" else FakeTree(root)

    def step(name: str) -> None:
        if name == last:
            os.kill(os.getpid(), signal.SIGKILL)

    changer = Changer(tree, Journal(Path(journal)), step=step)
    if action == "fix":
        changer.apply(plan(tree, assignments), "test")
    else:
        changer.restore()


if __name__ == "__main__":
    main()
