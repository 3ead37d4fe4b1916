"""Reads Python sources for the measurements: lines of code, and modules that import each other."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


def code_lines(text: str) -> list[tuple[int, str]]:
    """The lines that have code, with their numbers: no blanks, comments and docstrings."""
    docstrings = _docstring_lines(ast.parse(text))
    lines = text.splitlines()
    numbers: set[int] = set()
    comment_starts: dict[int, int] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comment_starts[token.start[0]] = token.start[1]
        elif token.type not in NO_CODE and token.type != tokenize.ENDMARKER:
            numbers.update(range(token.start[0], token.end[0] + 1))
    return [
        (number, lines[number - 1][: comment_starts.get(number)].strip())
        for number in sorted(numbers - docstrings)
        if lines[number - 1].strip()
    ]


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return lines


def modules(package: Path) -> dict[str, Path]:
    """``package.a.b`` → its file, for every module of a package (programs in folders without ``__init__`` are none)."""
    found: dict[str, Path] = {}
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyi")]):
        folders = [folder for folder in path.parents if package in (folder, *folder.parents)]
        if all((folder / "__init__.py").exists() for folder in folders):
            name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def graph(package: Path) -> dict[str, set[str]]:
    """Module → the modules it imports, anywhere in it: inside functions and for types only as well."""
    known = modules(package)
    return {name: set(imported(name, path, set(known))) - {name} for name, path in known.items()}


def imported(name: str, path: Path, known: set[str]) -> Iterator[str]:
    """The known modules that one module imports."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            source = ".".join(filter(None, [base, node.module]))
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                yield from (one for one in (whole if whole in known else source,) if one in known)
