"""``python -m bench --only power``: what tools that compare two commands see in the same time on the same machine."""
