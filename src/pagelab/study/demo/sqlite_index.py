"""A program of the demonstration: an SQLite table in memory with an index, filled and looked up in random order."""

import random
import sqlite3

ROWS = 60_000

draw = random.Random(1)
keys = [draw.getrandbits(62) for _ in range(ROWS)]
db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE t (key INTEGER PRIMARY KEY, name TEXT NOT NULL)")
db.execute("CREATE INDEX t_name ON t (name)")
db.executemany("INSERT INTO t VALUES (?, ?)", ((key, f"{key * 2654435761 % 2**64:020d}") for key in keys))
draw.shuffle(keys)
found = sum(db.execute("SELECT length(name) FROM t WHERE key = ?", (key,)).fetchone()[0] for key in keys)
assert found == 20 * ROWS
