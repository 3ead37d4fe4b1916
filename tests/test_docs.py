"""The documentation: widths of its lines (tools/docs_lines.py), targets of its links, and the files that it names."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tools import docs_lines

from pagelab.cli.manpage import commands

ROOT = Path(__file__).resolve().parent.parent
LONG = " ".join(["page"] * 60)


def test_no_line_of_the_documentation_is_too_wide() -> None:
    assert {str(page): docs_lines.too_wide(page.read_text()) for page in docs_lines.pages(ROOT)} == {
        str(page): [] for page in docs_lines.pages(ROOT)
    }


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = [re.sub(r"[`*]|\[|\]\([^)]*\)", "", title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_lead_to_files_and_headings() -> None:
    wrong = []
    for page in docs_lines.pages(ROOT):
        for link in re.findall(r"\]\((?!https?:)([^)\s]*)\)", page.read_text()):
            file, _, anchor = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                wrong.append(f"{page.relative_to(ROOT)}: {link}")
    assert wrong == []


def repository() -> set[str]:
    """Files and folders of the repository, each by all ends of its path: ``src/run.rs`` and ``run.rs``, ``src/``."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    files = done.stdout.split() if done.returncode == 0 else [str(f.relative_to(ROOT)) for f in ROOT.rglob("*")]
    names = set()
    for path in (Path(file) for file in files if (ROOT / file).is_file()):
        names |= {(path.parts, "")} | {(folder.parts, "/") for folder in path.parents if folder.parts}
    return {"/".join(parts[start:]) + end for parts, end in names for start in range(len(parts))}


ELSEWHERE = {"mm/page_alloc.c"}
"""Files of the kernel."""


def test_references_of_reports_lead_to_headings() -> None:
    """Regression: a page named a heading that was renamed."""
    templates = ROOT / "src" / "pagelab" / "report" / "templates"
    found = [
        (template.name, "method/nondeterminism.md" if kind else "method.md", name)
        for template in sorted(templates.glob("*.j2"))
        for kind, name in re.findall(r'\b(nd)?ref\("([\w-]+)"\)', template.read_text())
    ]
    assert len(found) > 10
    assert [one for one in found if one[2] not in anchors(ROOT / "docs" / one[1])] == []


def test_files_that_the_documentation_names_exist() -> None:
    """In backticks: a path that begins with a folder of the repository, or a file's name with the end of its path."""
    known = repository()
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and f"{path.name}/" in known}
    missing = []
    for page in docs_lines.pages(ROOT):
        for name in re.findall(r"`([\w.-]+(?:/[\w.-]+)*/?)`", page.read_text()):
            inside = "/" in name and name.split("/")[0] in folders
            source = re.search(r"\w\.(?:rs|py|md|c|h|sh|patch)$", name) is not None
            if (inside or source) and name not in known | ELSEWHERE and not (inside and f"{name}/" in known):
                missing.append(f"{page.relative_to(ROOT)}: {name}")
    assert missing == []


def invocations(text: str) -> list[list[str]]:
    """The words after ``pagelab`` of every command in code, up to the program that it starts."""
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    blocks = re.findall(r"```.*?\n(.*?)```", text, re.DOTALL)
    lines = spans + [line for block in blocks for line in re.sub(r"\\\n *", "", block).splitlines()]
    found = [re.match(r"(?:.*(?:[$#(|] |sudo |&& |next: ))?pagelab ([a-z].*)", line) for line in lines]
    return [re.split(r" -- |  +#| \| |; ", match[1])[0].split() for match in found if match]


def test_commands_and_options_that_the_documentation_names_exist() -> None:
    options = {
        one.path.removeprefix("pagelab "): {n for o in one.options for n in o.names} for one in commands().walk()
    }
    wrong, seen = [], 0
    for page in docs_lines.pages(ROOT):
        for words in invocations(page.read_text()):
            name = next((name for name in (" ".join(words[:2]), words[0]) if name in options), None)
            if words[0] == "trace" and name in ("trace", None):
                name = "trace capture"  # the word can be left out
            unknown = [word for word in words if re.match(r"--[a-z]", word) and word not in options.get(name or "", ())]
            wrong += [f"{page.relative_to(ROOT)}: pagelab {' '.join(words)}"] if name is None or unknown else []
            seen += 1
    assert wrong == []
    assert seen > 200


def test_the_drawing_of_the_guest_names_its_files() -> None:
    """Every name in it (words alone between wide gaps) is a file or folder, and it has all of the top ones."""
    drawing = (ROOT / "docs/architecture/guest.md").read_text().split("```")[1]
    guest = ROOT / "crates/preload/src"
    cells = [cell for line in drawing.splitlines() for cell in re.split(r" {2,}", line.strip())]
    names = {found[1] for cell in cells if (found := re.match(r"([a-z_]+)(?:/|\.rs)?(?: \(.*\))?$", cell))}
    assert len(names) > 50
    assert names <= {path.stem for path in guest.rglob("*")}
    assert {path.stem for path in guest.iterdir()} - {"lib"} <= names


def test_a_wide_paragraph_is_found_and_wrapped() -> None:
    text = f"# Title\n\nshort\n{LONG}\n"
    assert docs_lines.too_wide(text) == [4]
    wrapped = docs_lines.rewrapped(text)
    assert docs_lines.too_wide(wrapped) == []
    assert wrapped.split() == text.split()
    assert max(map(len, wrapped.splitlines())) <= docs_lines.COLUMNS


def test_tables_code_and_headings_keep_their_lines() -> None:
    text = f"# {LONG}\n\n| {LONG} |\n\n```\n{LONG}\n```\n"
    assert docs_lines.too_wide(text) == []
    assert docs_lines.rewrapped(text) == text


def test_items_and_quotations_keep_their_indent() -> None:
    lines = docs_lines.rewrapped(f"- {LONG}\n\n1. {LONG}\n\n> {LONG}\n> {LONG}\n").splitlines()
    starts = {line[:3].rstrip("p") for line in lines if line}
    assert starts == {"- ", "  ", "1. ", "   ", "> "}
    assert [line for line in lines if "> " in line[2:]] == []


def test_a_code_span_stays_on_one_line() -> None:
    text = f"{LONG[:100]} `a span of several words` {LONG}\n"
    assert "`a span of several words`" in docs_lines.rewrapped(text)


@given(st.lists(st.sampled_from(["page", "-", "1.", "#", "+", "|", "`a b`", "[a b](c)", "word" * 20]), min_size=1))
def test_wrapping_keeps_the_words_and_adds_no_markup(words: list[str]) -> None:
    text = "word " + " ".join(words)
    wrapped = docs_lines.rewrapped(text)
    assert wrapped.split() == text.split()
    assert not any(docs_lines.MARKUP.match(line) for line in wrapped.splitlines())
    assert docs_lines.rewrapped(wrapped) == wrapped
