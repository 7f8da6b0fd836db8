"""Tables and figures of the pages on longer contexts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import far
import tables
from ropewalk import extension
from ropewalk.lab.figures.extensions import draw_extensions
from ropewalk.lab.figures.theme import FIGURE_THEMES
from ropewalk.lab.inspect.encoding_facts import parse_docstring

READERS = (None, "vllm", "mlx")
WIDTH, LONGEST = 128, 65536
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 4096}
CASES: dict[str, dict[str, Any]] = {
    "nothing more": {},
    "`attention_factor: 1.0`": {"attention_factor": 1.0},
    "`mscale: 1.0, mscale_all_dim: 1.0`": {"mscale": 1.0, "mscale_all_dim": 1.0},
    "`mscale: 0.707`": {"mscale": 0.707},
}


def draw(folder: Path) -> None:
    """What rules make of frequencies, light and dark, into the folder's images."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for theme in FIGURE_THEMES:
        draw_extensions(theme=theme).savefig(folder / "images" / f"extensions-{theme}.png", dpi=160)


def rules() -> str:
    """Every rule: its name in a dictionary, what it is, and whether it depends on the length."""
    said = {name: parse_docstring(kind.__doc__ or "") for name, kind in extension.RULES.items()}
    rows = [(f"`{name}`", f"`{extension.RULES[name].__name__}`", words.summary) for name, words in said.items()]
    return tables.table(["`rope_type`", "class", "what it does"], rows)


def factors() -> str:
    """What q and k are multiplied by, as each framework reads one dictionary."""
    head = ["with", "as written, transformers", "vLLM", "mlx-lm"]
    return tables.table(head, [(name, *(_factor(keys, reader) for reader in READERS)) for name, keys in CASES.items()])


def _factor(keys: dict[str, Any], reader: str | None) -> str:
    try:
        found = extension.options(YARN | keys, head_dim=WIDTH, max_position_embeddings=LONGEST, framework=reader)
    except ValueError:
        return "an error"
    rule = extension.parse(found["extension"])
    assert rule is not None
    return f"{rule.attention(None):.4f}"


def distance() -> str:
    """How exact scores are far out, and what bfloat16 does to them."""
    return (
        f"{far.table()}\n\nStoring turned q and k in bfloat16 moves these scores by {far.bfloat16():.1e} in the mean square."
    )


TABLES: dict[str, Callable[[], str]] = {"rules": rules, "yarn-factors": factors, "far": distance}
