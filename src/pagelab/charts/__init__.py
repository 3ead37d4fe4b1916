"""Charts for every picture: one look (`theme`), marks without a study (`over_colours`, `by_row`), files."""
