"""``python -m bench --only power``: tools that compare two commands, in the same time on the same machine."""
