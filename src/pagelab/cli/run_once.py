"""The work of ``pagelab run`` after its command line was read.

Nothing here imports the libraries of the command line, of models or of tables before the program has run: what they
take to start, the user would wait for. Only a record that is written out or shown as JSON is validated by its model.
"""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pagelab import launcher, machine, terminal, whole_file
from pagelab.cli.settings import NOTHING, Typed, asked
from pagelab.errors import BadInputError, MachineError, cannot_write, quoted


class Asked(NamedTuple):
    """The arguments of ``pagelab run``, by the names that :func:`pagelab.cli.run.run_command` gives them."""

    argv: list[str]
    policy: Path | None = None
    pages: list[str] | None = None
    fetch: list[str] | None = None
    frames: list[str] | None = None
    via: str | None = None
    backend: str | None = None
    layout: Path | None = None
    preload: bool = True
    settings: Typed = NOTHING
    env: list[str] | None = None
    unset: list[str] | None = None
    clear_env: bool = False
    cwd: Path | None = None
    stdin: str = "inherit"
    stdout: str = "inherit"
    stderr: str = "inherit"
    run_dir: Path | None = None
    events: list[str] | None = None
    per_process: bool = True
    measure_regex: str | None = None
    flush: list[str] | None = None
    json_: bool = False
    output: Path | None = None
    quiet: bool = False
    propagate: bool = False


_DROP_CACHES = "/proc/sys/vm/drop_caches"


def perform(one: Asked) -> int:
    """Makes the run, shows and writes the requested results; returns the exit code of ``pagelab run``."""
    kept = launcher.of_caller()
    measured = launcher.measure_fd(kept)
    if measured is None and not one.quiet:
        terminal.say("pagelab: the program inherits every descriptor up to 239: none is left for its measurements\n")
    mode, files = _flush(one.flush or [])
    if mode == "all" and not os.access(_DROP_CACHES, os.W_OK, effective_ids=True):
        raise MachineError(
            f"cannot drop the page cache: {_DROP_CACHES} cannot be written, and a warm run would stand for a cold one; "
            "run it as root, or drop single files: --flush FILE"
        )
    if " " in one.argv[0]:
        from pagelab.cli.quoted import refuse_quoted

        refuse_quoted(one.argv, "pagelab run")
    request = {
        "argv": one.argv,
        "policy_toml": _policy(one.policy, one.pages, one.fetch, one.frames, one.via, one.backend, one.layout),
        "policy_path": None if one.policy is None else str(one.policy),
        "preload": "auto" if one.preload else "never",
        "env": {"clear": one.clear_env, "set": _variables(one.env or []), "unset": one.unset or []},
        "cwd": None if one.cwd is None else str(one.cwd),
        "stdin": one.stdin,
        "stdout": one.stdout,
        "stderr": one.stderr,
        "run_dir_root": None if one.run_dir is None else str(one.run_dir),
        "events": one.events or [],
        "per_process_counters": one.per_process,
        "measurements": {"fd": measured, "regex": one.measure_regex},
        "flush": {"mode": mode, "files": files},
        "tell_limits": not one.quiet,
        **asked(one.settings),
    }
    check_output(one.output)
    described = machine.describe()
    written = launcher.launch(request, described, kept, ends_with_signals=True)
    if one.json_ or one.output is not None:
        from pagelab import runner

        _write(runner.complete(written, described).model_dump_json(by_alias=True, indent=1), one)
    record = json.loads(written)
    try:
        if not (one.quiet or one.json_):
            _summarise(record, described)
        return _exit_code(record["outcome"], propagate=one.propagate)
    except (KeyError, TypeError):
        from pagelab import runner

        runner.complete(written, described)  # tells what is wrong with a record of another version
        raise


def _policy(
    policy: Path | None,
    pages: list[str] | None,
    fetch: list[str] | None,
    frames: list[str] | None,
    via: str | None,
    backend: str | None,
    layout: Path | None,
) -> str:
    """The policy's text; checked against this machine here, so that a bad flag is named as it was typed."""
    if policy is None and not (pages or fetch or frames or via or backend or layout):
        return 'name = "kernel"\n'
    from pagelab import machine
    from pagelab import policy as policies

    described = machine.describe()
    flags = policies.Flags(
        pages=pages or [], fetch=fetch or [], frames=frames or [], via=via, backend=backend, layout=layout
    )
    found = policies.from_flags(flags, described, policy)
    policies.check_runnable(found, described)
    return found.toml


def _variables(texts: list[str]) -> dict[str, str]:
    bad = next((text for text in texts if text.find("=") < 1), None)
    if bad is not None:
        raise BadInputError(f"--env {bad}: not of the form NAME=VALUE")
    names = [text.split("=", 1)[0] for text in texts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInputError(f"--env {twice}=… is given {names.count(twice)} times, and only one value can count")
    return dict(text.split("=", 1) for text in texts)


def _flush(targets: list[str]) -> tuple[Literal["none", "files", "all"], list[str]]:
    if not targets:
        return "none", []
    if "all" in targets:
        if len(targets) > 1:
            raise BadInputError("--flush all drops every file already; to drop a file named all: --flush ./all")
        return "all", []
    for target in targets:
        if not os.path.lexists(target):  # what may not be looked at is left to the launcher
            raise BadInputError(
                f"cannot drop {target} from the page cache: there is no such file, and the run would be warm; --flush "
                f"takes files that are there, or all; run: ls -l {quoted(target)}"
            )
    return "files", targets


def check_output(output: Path | None, option: str = "--output") -> None:
    """Refuses an unwritable file before anything runs: a long run must not end without its result."""
    if output is None:
        return
    directory = output.absolute().parent
    if os.path.isdir(output):  # noqa: PTH112 - false where it may not be looked at
        raise BadInputError(f"{option} {output}: it is a directory; name a file")
    if not directory.is_dir():
        raise BadInputError(f"{option} {output}: there is no directory {directory}")
    if output.exists() and not output.is_file() and not whole_file.is_stream(output):
        raise BadInputError(
            f"{option} {output}: it is no file, and not this user's, so nothing is written to it; name a file, or "
            "/dev/stdout, which the shell redirects"
        )
    place = output if whole_file.is_stream(output) else directory
    if not os.access(place, os.W_OK):
        denied = f"{os.strerror(errno.EACCES)} (errno {errno.EACCES})"
        raise BadInputError(f"{option} {output}: cannot write to {place}: {denied}; run: ls -ld {quoted(place)}")


def _write(text: str, one: Asked) -> None:
    if one.output is not None:
        try:
            whole_file.put(one.output, text + "\n")
        except OSError as error:
            raise cannot_write(one.output, error) from None
    if one.json_:
        terminal.echo(text)


def _summarise(record: dict[str, Any], described: dict[str, Any]) -> None:
    from pagelab.cli.summary import show

    toml = record["policy"]["toml"]
    # Spares most runs the import: canonical text says of every axis whether the kernel decides it.
    if toml.replace('frames = "kernel"', "").count("frames"):
        from pagelab.machine.colours import colour_warnings

        about_colours = [one.model_dump(mode="json") for one in colour_warnings.warnings(toml, described)]
        record = {**record, "warnings": [*record["warnings"], *about_colours]}
    show(record)


def _exit_code(outcome: dict[str, Any], *, propagate: bool) -> int:
    if outcome["status"] == "ok":
        return 0
    code, ended_by, message = outcome.get("exit_code"), outcome.get("signal"), outcome.get("message")
    if propagate and code is not None:
        # A program that succeeded and whose output was lost has failed.
        return int(code) or int(outcome["status"] == "failed")
    if propagate and ended_by is not None:
        return 128 + int(ended_by)
    interrupted = message is not None and message.startswith("interrupted by")
    # In the foreground of a terminal Ctrl-C reaches the program alone.
    return 130 if interrupted or ended_by == signal.SIGINT else 1
