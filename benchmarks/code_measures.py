"""Measure how readable the lab's source is: sizes of files and functions, names, comments, imports.

    python benchmarks/code_measures.py src/ropewalk/lab

The figures are signs, not goals: LOG.md has them before and after the lab was rearranged.
"""

import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter
from pathlib import Path


def iter_functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def count_comment_lines(text: str) -> int:
    """Count lines that hold a comment and nothing else."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.COMMENT and token.line.lstrip().startswith("#") for token in tokens)


def name_modules(root: Path) -> dict[str, Path]:
    """Map dotted module names to files, for all of ropewalk, of which `root` is a part."""
    package = next(path for path in (root, *root.parents) if path.name == "ropewalk")
    names = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def find_imports(tree: ast.AST, modules: dict[str, Path]) -> set[str]:
    """Find the modules of ropewalk that a file imports anywhere in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in modules}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in inner} & set(modules)
    return found


def count_inner_imports(tree: ast.AST) -> int:
    """Count import statements inside functions."""
    inner = {id(node) for function in iter_functions(tree) for node in ast.walk(function) if is_import(node)}
    return len(inner)


def is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def find_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Find groups of modules that import each other at the top level (strongly connected components)."""
    order, low, stack, cycles = {}, {}, [], []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in graph.get(name, ()):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            group = [stack.pop()]
            while group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                cycles.append(sorted(group))

    for name in graph:
        if name not in order:
            visit(name)
    return cycles


def measure_source(root: Path) -> dict[str, object]:
    """Measure all Python files below a folder of the package."""
    modules = name_modules(root)
    inside = {name: path for name, path in modules.items() if path.is_relative_to(root)}
    texts = {name: path.read_text() for name, path in inside.items()}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    lengths = sorted(len(text.splitlines()) for text in texts.values())
    functions = [function for tree in trees.values() for function in iter_functions(tree)]
    sizes = sorted((function.end_lineno or 0) - function.lineno + 1 for function in functions)
    public = [function.name.strip("_") for function in functions if not function.name.startswith("__")]
    stems = [path.stem for path in inside.values() if path.stem != "__init__"]
    importers = Counter(
        name for path in modules.values() for name in find_imports(ast.parse(path.read_text()), modules) if name in inside
    )
    leaves = [name for name, path in inside.items() if path.stem != "__init__"]
    return {
        "files": len(texts),
        "lines": sum(lengths),
        "median file, lines": statistics.median(lengths),
        "median / p90 function, lines": f"{statistics.median(sizes):g} / {sizes[len(sizes) * 9 // 10]}",
        "full-line comments, %": round(100 * sum(map(count_comment_lines, texts.values())) / sum(lengths), 1),
        "one-word module names, %": round(100 * sum("_" not in stem for stem in stems) / len(stems)),
        "function name, median letters": statistics.median(len(name.replace("_", "")) for name in public),
        "one-word function names, %": round(100 * sum("_" not in name for name in public) / len(public)),
        "modules that one other imports": sum(importers[name] == 1 for name in leaves),
        "imports inside functions": sum(map(count_inner_imports, trees.values())),
        "import cycles, also of imports inside functions": find_cycles(
            {name: find_imports(tree, modules) & set(inside) - {name} for name, tree in trees.items()}
        ),
    }


if __name__ == "__main__":
    if len(sys.argv) != 2 or not re.search(r"(^|/)ropewalk(/|$)", sys.argv[1]):
        sys.exit("wanted: one folder within ropewalk, such as src/ropewalk/lab")
    for label, value in measure_source(Path(sys.argv[1]).resolve()).items():
        print(f"{label:<50} {value}")
