"""What the launcher and this package tell each other.

``record`` and ``request`` are generated from ``crates/contract``: change the Rust types, then ``make contract``.
"""
