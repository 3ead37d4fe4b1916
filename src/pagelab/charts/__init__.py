"""Charts for every picture: one look (`theme`), marks without a study (`marks`, `rows`), files."""
