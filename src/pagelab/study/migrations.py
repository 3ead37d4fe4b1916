"""The store's tables, as a chain of migrations. A new store goes through the whole chain.

Never edit a released entry: add the next one. docs/schema/store.md is generated from here.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from .errors import StudyError

V1 = """
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
CREATE TABLE condition (
    id         INTEGER PRIMARY KEY,      -- index in the plan, from 0
    name       TEXT NOT NULL UNIQUE,     -- workload/policy
    workload   TEXT NOT NULL,            -- label: workload and the parameters it uses
    policy     TEXT NOT NULL,            -- label: policy and the parameters that only it uses
    baseline   INTEGER NOT NULL,         -- 1 for the policy that the others are compared with
    parameters TEXT NOT NULL,            -- JSON object
    left_out   TEXT                      -- why it is not run on this machine, or NULL
) STRICT;
CREATE TABLE schedule (
    position  INTEGER PRIMARY KEY,       -- from 0, in the order of execution
    block     INTEGER NOT NULL,          -- negative: warm-up
    condition INTEGER NOT NULL REFERENCES condition (id),
    execution INTEGER NOT NULL           -- number within the condition; negative: warm-up
) STRICT;
CREATE TABLE run (
    id          INTEGER PRIMARY KEY,
    position    INTEGER NOT NULL UNIQUE REFERENCES schedule (position),
    condition   INTEGER NOT NULL REFERENCES condition (id),
    execution   INTEGER NOT NULL,
    status      TEXT NOT NULL,           -- ok, failed, signalled, timed-out, not-started
    started_at  TEXT,                    -- ISO 8601, UTC; NULL when imported
    record_json TEXT                     -- pagelab.record/1 or pagelab.imported/1; NULL when not started
) STRICT;
CREATE TABLE measurement (
    run   INTEGER NOT NULL REFERENCES run (id),
    name  TEXT NOT NULL,
    idx   INTEGER NOT NULL,              -- order within the run and name, from 0
    value REAL NOT NULL,
    unit  TEXT NOT NULL,
    PRIMARY KEY (run, name, idx)
) STRICT, WITHOUT ROWID;
"""

V2 = """
ALTER TABLE run ADD COLUMN message TEXT;    -- why a run failed or was not started
ALTER TABLE run ADD COLUMN duration_s REAL; -- with set-up, flushing and tear-down: what time left is estimated from
CREATE TABLE session (
    id         INTEGER PRIMARY KEY,
    started_at TEXT NOT NULL,
    ended_at   TEXT,                     -- NULL: running, or killed
    reason     TEXT,                     -- done, interrupted, precision, error, killed
    pid        INTEGER NOT NULL,
    host       TEXT NOT NULL,
    boot_id    TEXT,
    machine    TEXT NOT NULL             -- JSON: the machine as this session found it
) STRICT;
CREATE TABLE attempt (
    id         INTEGER PRIMARY KEY,
    position   INTEGER NOT NULL REFERENCES schedule (position),
    session    INTEGER NOT NULL REFERENCES session (id),
    started_at TEXT NOT NULL,
    outcome    TEXT                      -- finished, interrupted; NULL: in progress, or killed
) STRICT;
CREATE TABLE step (
    id         INTEGER PRIMARY KEY,
    session    INTEGER REFERENCES session (id),
    run        INTEGER REFERENCES run (id),  -- NULL: a step of the whole session
    phase      TEXT NOT NULL,            -- setup, teardown
    command    TEXT NOT NULL,
    exit_code  INTEGER,                  -- NULL: killed by a signal, timed out or not startable
    duration_s REAL NOT NULL,
    output     TEXT NOT NULL,            -- the end of what it printed
    message    TEXT                      -- what went wrong, or NULL
) STRICT;
CREATE TABLE event (
    id      INTEGER PRIMARY KEY,
    at      TEXT NOT NULL,
    kind    TEXT NOT NULL,               -- warning, look, sized, limits
    data    TEXT NOT NULL                -- JSON; a warning is the record's RunWarning
) STRICT;
"""

V3 = """
-- meta.plan is pagelab.study/2: what a condition asks of each run is in its `request`, as the launcher reads it.
"""

V4 = """
CREATE TABLE platform (
    name      TEXT PRIMARY KEY,
    host      TEXT NOT NULL,
    processor TEXT NOT NULL,
    kernel    TEXT NOT NULL,
    machine   TEXT NOT NULL              -- JSON: the machine as the study first found it
) STRICT;
CREATE TABLE block_platform (            -- of a study on a cluster: each block is of one platform
    block    INTEGER PRIMARY KEY,        -- as in schedule
    platform TEXT NOT NULL REFERENCES platform (name)
) STRICT;
"""

V5 = """
-- attempt.outcome may also be repeated: a warm-up that was finished in a boot before that of what it precedes.
ALTER TABLE run ADD COLUMN boot_id TEXT;    -- the kernel's name of its boot; NULL: imported, or of an older version
ALTER TABLE run ADD COLUMN uptime_s REAL;   -- seconds from that boot to its start
"""

CHAIN = (V1, V2, V3, V4, V5)
VERSION = len(CHAIN)


def _plan_with_requests(connection: sqlite3.Connection) -> None:
    """Rewrites a store's plan into its new form; a store that is being made has no plan yet."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'plan'").fetchone()
    if row is not None:
        plan = json.loads(row[0])
        plan["schema"] = "pagelab.study/2"
        plan["conditions"] = [_with_request(condition) for condition in plan["conditions"]]
        connection.execute("UPDATE meta SET value = ? WHERE key = 'plan'", (json.dumps(plan),))


_ASKED = (
    *("argv", "cwd", "stdin", "stdout", "policy_toml", "policy_path", "scheduler", "node", "aslr", "preload"),
    *("timeout_s", "flush", "events", "per_process_counters"),
)
"""Fields of a condition in pagelab.study/1 that have the same name and form in its request."""


def _with_request(condition: dict[str, Any]) -> dict[str, Any]:
    """A condition of pagelab.study/1 in the form of pagelab.study/2. Old ones lack fields that were added later."""
    request = {name: condition.pop(name) for name in _ASKED if name in condition}
    request["env"] = {"set": condition.pop("env", {}), "unset": condition.pop("unset", [])}
    request["cpus"] = condition.pop("cpus", None) or []
    request["measurements"] = {"fd": 3, "regex": condition.pop("regex", None)}
    stderr = condition.pop("stderr", None)
    request["stderr"] = stderr or "null"
    return {**condition, "request": request, "keeps_stderr": stderr is None}


REWRITES = {3: _plan_with_requests}
"""Version → what its migration changes besides the tables, in the same transaction."""


def version_of(connection: sqlite3.Connection) -> int:
    """The store's version; 0 for an empty database. Raises :class:`StudyError` where it is not a pagelab store."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    query = "SELECT value FROM meta WHERE key = 'store_version'"
    row = connection.execute(query).fetchone() if "meta" in tables else None
    if row is None:
        raise StudyError("the database was not written by pagelab (it has tables, but no store_version)")
    return int(row[0])


def migrate(connection: sqlite3.Connection) -> int:
    """Brings the store to :data:`VERSION`, with one transaction per step; returns the version it had.

    Raises :class:`StudyError` for a store that a newer pagelab wrote: it is left untouched.
    """
    found = version_of(connection)
    refuse_newer(found)
    for version in range(found, VERSION):
        statements = "".join(CHAIN[version])
        connection.executescript(f"BEGIN IMMEDIATE;{statements}")
        try:
            if version + 1 in REWRITES:
                REWRITES[version + 1](connection)
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('store_version', ?)", (str(version + 1),))
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
    return found


def refuse_newer(found: int) -> None:
    if found > VERSION:
        raise StudyError(
            f"the store has version {found}, this pagelab knows versions up to {VERSION}; "
            "run: pip install --upgrade pagelab"
        )


def refuse_empty(connection: sqlite3.Connection) -> None:
    if version_of(connection) == 0:
        raise StudyError("the database is empty; remove it and start again with: pagelab study run SPEC")
