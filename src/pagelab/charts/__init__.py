"""What every picture is drawn with: one look (`theme`), marks that know no study (`over_colours`, `by_row`), files."""
