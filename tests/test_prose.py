"""Prose and messages use the terms of the field: `python tests/test_prose.py [PATH ...]` lists banned phrases."""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BANNED = ROOT / "tests" / "support" / "banned_phrases.txt"
PROSE = ("src/**/*.py", "src/**/*.j2", "docs/**/*.py", "docs/**/*.md", "benchmarks/**/*.py", "*.md")
UNMENDED = ROOT / "tests" / "support" / "unmended_prose.txt"
"""Files that may still have banned phrases, one a line; those that have none are taken off the list."""

LOG_IS_HISTORY_UNTIL = "2026-11-18"


def read_phrases(text: str) -> dict[str, str]:
    """What to write instead, by phrase."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("\t") for line in lines)


def compile_phrases(phrases: dict[str, str]) -> re.Pattern:
    """Match any of the phrases as whole words, also where a line ends within it."""
    words = (r"[\s#>]+".join(map(re.escape, phrase.split())) for phrase in sorted(phrases, key=len, reverse=True))
    return re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE)


class Strings(ast.NodeVisitor):
    """Collects string literals; those written side by side are one, and an f-string's values are left out."""

    def __init__(self):
        self.found = []

    def visit_Constant(self, node):
        if isinstance(node.value, str):
            self.found.append((node.lineno, node.value))

    def visit_JoinedStr(self, node):
        self.found.append(
            (node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values))
        )
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)


def python_prose(source: str) -> Iterator[tuple[int, str]]:
    """String literals, and comments with those on the lines directly below them, each with its first line."""
    strings = Strings()
    strings.visit(ast.parse(source))
    yield from strings.found
    comments: list[tuple[int, list[str]]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line = token.start[0]
            if comments and comments[-1][0] + len(comments[-1][1]) == line:
                comments[-1][1].append(token.string)
            else:
                comments.append((line, [token.string]))
    yield from ((line, "\n".join(texts)) for line, texts in comments)


def markdown_prose(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Sections; of the log only those that are not history."""
    line = 1
    for section in re.split(r"(?m)^(?=## )", text):
        date = re.match(r"## (\d{4}-\d\d-\d\d)", section)
        if path.name != "LOG.md" or (date and date[1] > LOG_IS_HISTORY_UNTIL):
            yield line, section
        line += section.count("\n")


def find_banned(path: Path, text: str, phrases: dict[str, str]) -> list[str]:
    """One line for each banned phrase of a file."""
    pattern = compile_phrases(phrases)
    found = []
    for line, prose in python_prose(text) if path.suffix == ".py" else markdown_prose(path, text):
        for match in pattern.finditer(prose):
            phrase = " ".join(re.split(r"[\s#>]+", match[0].lower()))
            found.append((line + prose[: match.start()].count("\n"), match[0].replace("\n", " "), phrases[phrase]))
    return [f"{path}:{line}: '{' '.join(said.split())}': write '{instead}'" for line, said, instead in sorted(found)]


def prose_files() -> list[Path]:
    return sorted({path for pattern in PROSE for path in ROOT.glob(pattern)})


def find_all(files: list[Path]) -> list[str]:
    phrases = read_phrases(BANNED.read_text())
    return [line for path in files for line in find_banned(path.relative_to(ROOT), path.read_text(), phrases)]


PHRASES = read_phrases(BANNED.read_text())
UNMENDED_FILES = UNMENDED.read_text().split()


def test_phrases_are_no_bare_words():
    for phrase, instead in PHRASES.items():
        assert len(phrase.split()) > 1, phrase
        assert phrase == phrase.lower()
        assert instead
        assert not compile_phrases(PHRASES).search(instead), f"{phrase}: '{instead}' is banned itself"


PLACES = {
    "docstring": '"""A title.\n\nIt {}\nin the end.\n"""\n',
    "comment": "x = 1  # it {} here\n",
    "comment lines": "# It\n# {}\n# here.\nx = 1\n",
    "message": 'raise ValueError(f"{{x!r}} {} here")\n',
    "adjacent strings": 'raise ValueError(\n    "here it "\n    f"{}, "\n    "and there"\n)\n',
    "nested": "print(f\"{{say('{}')}}\")\n",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("phrase", PHRASES)
def test_phrases_are_found(phrase, place):
    (found,) = find_banned(Path("x.py"), PLACES[place].format(phrase.capitalize()), PHRASES)
    assert found.startswith("x.py:")
    assert PHRASES[phrase] in found


def test_phrases_are_found_across_lines():
    (one,) = find_banned(Path("x.py"), "# These data come\n# along with it.\n", PHRASES)
    (other,) = find_banned(Path("x.md"), "# Title\n\n## Data\n\nThese data come\nalong with it.\n", PHRASES)
    assert one.startswith("x.py:1: 'come # along'")
    assert other.startswith("x.md:5: 'come along'")


def test_identifiers_are_free():
    source = "come_along = is_told(way_back)\ntold, apart = cannot.tell, 'income alongside'\nclass Turn: is_told = 1\n"
    assert find_banned(Path("x.py"), source, PHRASES) == []


def test_history_is_left_as_it_was():
    log = "# Log\n\n## 2026-11-19 — New\n\nIt is told.\n\n## 2026-11-18 — Old\n\nIt is told.\n"
    (found,) = find_banned(Path("LOG.md"), log, PHRASES)
    assert found.startswith("LOG.md:5:")


def test_prose_has_no_banned_phrases():
    assert find_all([path for path in prose_files() if str(path.relative_to(ROOT)) not in UNMENDED_FILES]) == []


if __name__ == "__main__":
    lines = find_all([path.resolve() for path in map(Path, sys.argv[1:])] or prose_files())
    print("\n".join(lines))
    sys.exit(f"{len(lines)} banned phrases" if lines else 0)
