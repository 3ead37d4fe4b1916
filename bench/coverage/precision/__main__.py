"""``python -m bench.coverage.precision``: simulate (or resume), then print the tables and write the CSV."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from bench.coverage.precision.cells import CELLS
from bench.coverage.precision.document import fill, tables
from bench.coverage.precision.simulate import Chunk, run_chunk
from bench.coverage.precision.tabulate import Row, rows_of, write_csv

CHUNK = 500


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.coverage.precision", description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="directory of finished chunks; run again to resume")
    parser.add_argument("--out", type=Path, help="CSV to write, e.g. docs/method/precision_coverage.csv")
    parser.add_argument("--document", type=Path, help="Markdown to put the tables into, e.g. docs/method.md")
    parser.add_argument("--replications", type=int, default=10_000, help=f"studies a cell, a multiple of {CHUNK}")
    parser.add_argument("--seed", type=int, default=20091109)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args(argv)
    if arguments.replications < CHUNK or arguments.replications % CHUNK:
        parser.error(f"--replications {arguments.replications}: not a multiple of {CHUNK}")
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Returns 0; a stop at any moment keeps the finished chunks."""
    arguments = _arguments(argv)
    arguments.work.mkdir(parents=True, exist_ok=True)
    per_cell = arguments.replications // CHUNK
    chunks = [Chunk(cell, index, CHUNK, arguments.seed) for index in range(per_cell) for cell in range(len(CELLS))]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        waiting = [pool.submit(run_chunk, chunk, arguments.work) for chunk in chunks]
        for done, future in enumerate(as_completed(waiting), start=1):
            future.result()
            print(f"\r{done} of {len(chunks)} chunks", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    rows: list[Row] = []
    for number, cell in enumerate(CELLS):
        paths = [chunk.path(arguments.work) for chunk in chunks if chunk.cell == number]
        rows.extend(rows_of(cell, np.concatenate([np.load(path) for path in paths])))
    for table in tables(rows).values():
        print(table, end="\n\n")
    if arguments.out is not None:
        write_csv(arguments.out, rows)
    if arguments.document is not None:
        arguments.document.write_text(fill(arguments.document.read_text(), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
