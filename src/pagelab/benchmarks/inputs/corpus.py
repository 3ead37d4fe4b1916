"""Makes a corpus of C files for compilers from a seed, in the role of ALLOC's Csibe.

Each file is a separate program, mostly of one kind of code in several variants: a lexer, an abstract machine, tables of
records, loops over arrays, hash tables, strings, a protocol, trees, or plain functions of random structure. The program
runs all its code and prints a checksum.
"""

from __future__ import annotations

from importlib.resources import files
from string import Template

from . import Draw
from .expressions import Functions
from .text import vocabulary

KINDS = ("lexer", "machine", "records", "matrix", "hashes", "strings", "states", "trees", "functions")
"""Kinds of code; each has one file, ``KIND.c``."""
_VARIANTS = 3
_HEAD = """\
/* Made by pagelab from seed {seed}: do not edit. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned int u32;

static u32 next_u32(u32 *state)
{{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 7 ^ *state << 11;
}}
"""


def make_file(kind: str, seed: int) -> str:
    """The C program ``kind`` of the corpus."""
    draw = Draw(seed, f"corpus {kind}")
    others = draw.shuffled([other for other in KINDS if other != kind])[:2]
    parts, prefixes = [_HEAD.format(seed=seed)], []
    for number, part in enumerate([kind] * _VARIANTS + others + ["functions"]):
        prefix = f"{part}{number}"
        parts.append(_module(part, draw, prefix))
        prefixes.append(prefix)
    runs = "\n".join(f"    sum = sum * 29u ^ {prefix}_run(sum + {draw.below(1 << 20)}u);" for prefix in prefixes)
    parts.append(
        f'int main(void)\n{{\n    u32 sum = {seed}u;\n{runs}\n    printf("%u\\n", (unsigned)sum);\n    return 0;\n}}\n'
    )
    return "\n".join(parts)


def _module(kind: str, draw: Draw, prefix: str) -> str:
    if kind == "functions":
        return Functions(draw, prefix).make(draw.between(6, 9))
    text = files(__package__).joinpath("c", f"{kind}.c").read_text(encoding="ascii")
    return Template(text).substitute(p=prefix, **_VALUES[kind](draw, prefix))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _lexer(draw: Draw, _prefix: str) -> dict[str, str]:
    words = vocabulary(draw, 60)
    keywords = words[: draw.between(6, 20)]
    signs = ["+", "-", "*", "(", ")", ";", "=", "<", "// a comment\n", '"text"', "\n"]
    source = [draw.one(words) if draw.chance(50) else draw.one([*signs, str(draw.below(9999))]) for _ in range(120)]
    lines = "\n        ".join(_quoted(" ".join(source[start : start + 12]) + " ") for start in range(0, 120, 12))
    return {"keywords": ", ".join(map(_quoted, keywords)), "factor": str(31 + 2 * draw.below(50)), "source": lines}


_OPERATIONS = {
    "ADD": "a + b",
    "SUBTRACT": "b - a",
    "MULTIPLY": "a * b",
    "DIVIDE": "b / (a | 1u)",
    "AND": "a & b",
    "OR": "a | b",
    "XOR": "a ^ b",
    "LEFT": "b << (a & 31u)",
    "RIGHT": "b >> (a & 31u)",
    "LESS": "b < a",
    "MIX": "(a ^ b >> 15) * 2246822519u",
    "AVERAGE": "(a & b) + ((a ^ b) >> 1)",
    "ROTATE": "b << 7 | b >> 25",
}


def _machine(draw: Draw, prefix: str) -> dict[str, str]:
    chosen = draw.shuffled(list(_OPERATIONS))[: draw.between(6, len(_OPERATIONS))]
    cases = []
    for name in chosen:
        cases.append(f"        case {prefix}_{name}:\n            a = {prefix}_pop(machine);")
        cases.append(
            f"            b = {prefix}_pop(machine);\n            {prefix}_push(machine, {_OPERATIONS[name]});"
        )
        cases.append(
            "            break;" if "a" in _OPERATIONS[name].split() else "            (void)a;\n            break;"
        )
    for name, body in (
        ("LOAD", "push(machine, machine->memory[operand % 64u])"),
        ("LITERAL", "push(machine, operand)"),
    ):
        cases.append(f"        case {prefix}_{name}:\n            {prefix}_{body};\n            break;")
    store = f"machine->memory[operand % 64u] = {prefix}_pop(machine);"
    cases.append(f"        case {prefix}_STORE:\n            {store}\n            break;")
    names = [*chosen, "LOAD", "LITERAL", "STORE"]
    return {
        "instructions": ", ".join(f"{prefix}_{name}" for name in names),
        "count": str(len(names) + 2),
        "cases": "\n".join(cases),
        "code": ", ".join(str(byte) for byte in draw.bytes(2 * draw.between(30, 90))),
        "depth": str(draw.between(16, 64)),
        "limit": str(draw.between(2000, 6000)),
    }


def _records(draw: Draw, _prefix: str) -> dict[str, str]:
    kinds = (("u32", "%u"), ("unsigned short", "%hu"), ("unsigned char", "%hhu"), ("unsigned long", "%lu"))
    fields = [(f"field{number}", *draw.one(kinds)) for number in range(draw.between(4, 12))]
    keys = draw.shuffled(fields)[:2]
    return {
        "fields": "\n".join(f"    {kind} {name};" for name, kind, _ in fields),
        "comparisons": "\n".join(
            f"    if (a->{name} != b->{name})\n        return a->{name} < b->{name} ? -1 : 1;" for name, _, _ in keys
        ),
        "format": "".join(f"|{form}" for _, _, form in fields),
        "values": ", ".join(f"record->{name}" for name, _, _ in fields),
        "filled": "\n".join(
            f"        record.{name} = ({kind})(next_u32(&seed) % {draw.between(5, 60_000)}u);"
            for name, kind, _ in fields
        ),
        "count": str(draw.between(50, 300)),
    }


def _matrix(draw: Draw, prefix: str) -> dict[str, str]:
    steps = [(di, dj) for di in (-1, 0, 1) for dj in (-1, 0, 1)]
    chosen = draw.shuffled(steps)[: draw.between(3, 9)]
    terms = [f"{draw.between(1, 5)}.0 * {prefix}_{draw.one('ac')}[i + {di}][j + {dj}]" for di, dj in chosen]
    return {
        "side": str(draw.between(16, 40)),
        "stencil": "\n                + ".join(terms).replace("+ -", "- "),
        "steps": str(draw.between(2, 7)),
    }


def _hashes(draw: Draw, _prefix: str) -> dict[str, str]:
    slots = draw.between(300, 900)
    return {
        "polynomial": str(draw.below(1 << 31) | 1 << 31),
        "slots": str(slots),
        "keys": str(slots * 3 // 2),
        "inserts": str(slots // 2),
        "stride": str(draw.between(2, 7)),
        "shift": str(draw.between(9, 18)),
        "multiplier": str(draw.below(1 << 32) | 1),
        "phrase": " ".join(vocabulary(draw, 12)),
    }


def _strings(draw: Draw, _prefix: str) -> dict[str, str]:
    words = vocabulary(draw, 30)
    sentence = " ".join(draw.one(words) for _ in range(60))
    return {
        "digits": draw.one(("0123456789abcdef", "0123456789ABCDEF")),
        "longest": str(draw.between(3, 255)),
        "length": str(draw.between(64, 400)),
        "mask": str(draw.one((1, 3, 7, 255))),
        "sentence": _quoted(sentence),
        "old": draw.one(words),
        "new": draw.one(words),
    }


def _states(draw: Draw, prefix: str) -> dict[str, str]:
    words = vocabulary(draw, 30)
    states = [f"{prefix}_{word.upper()}" for word in words[: draw.between(5, 12)]]
    events = [f"{prefix}_ON_{word.upper()}" for word in words[12 : 12 + draw.between(4, 10)]]
    names = [f"{prefix}_do{number}" for number in range(draw.between(4, 9))]
    bodies = ("+= by", "^= by * 3u", "= session->counters[{0}] + 1u", "-= by >> 2")
    actions = []
    for name in names:
        target = draw.below(8)
        body = draw.one(bodies).format(draw.below(8))
        step = f"    session->counters[{target}] {body};"
        rest = f"    if (by % {draw.between(2, 9)}u == 0)\n        session->errors++;"
        actions.append(
            f"static void {name}(struct {prefix}_session *session, u32 by)\n{{\n    (void)by;\n{step}\n{rest}\n}}\n"
        )
    cells = [[draw.one([*names, "NULL"]) for _ in events] for _ in states]
    following = [[str(draw.below(len(states))) for _ in events] for _ in states]
    return {
        "states": ", ".join(states),
        "events": ", ".join(events),
        "actions": "\n".join(actions),
        "action_table": ",\n".join(
            "    {" + ", ".join(row) + "}" for row in [*cells[:-1], [*names, *["NULL"] * 10][: len(events)]]
        ),
        "state_table": ",\n".join("    {" + ", ".join(row) + "}" for row in following),
        "state_count": str(len(states)),
        "event_count": str(len(events)),
        "names": "\n".join(f'    case {state}:\n        return "{state}";' for state in states),
        "rounds": str(draw.between(500, 3000)),
    }


def _trees(draw: Draw, _prefix: str) -> dict[str, str]:
    nodes = draw.between(200, 800)
    return {"nodes": str(nodes), "keys": str(nodes * draw.between(2, 9)), "stride": str(draw.between(3, 40))}


_VALUES = {
    "lexer": _lexer,
    "machine": _machine,
    "records": _records,
    "matrix": _matrix,
    "hashes": _hashes,
    "strings": _strings,
    "states": _states,
    "trees": _trees,
}
