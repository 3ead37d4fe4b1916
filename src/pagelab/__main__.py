"""``python -m pagelab`` is ``pagelab``, except that Python looks for modules in the working directory first.

So pagelab's own modules are imported without it: a file there, ``typer.py`` for instance, is not the user's intent.
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]

from pagelab.cli import main

main()
