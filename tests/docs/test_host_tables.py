"""The page of model families shows each of them once: among those that count, or with a result and a reason."""

import pytest

import host_tables

ROWS = [
    {"family": "llama", "class": "LlamaForCausalLM", "status": "counts", "reason": "", "figures": {}},
    {"family": "sam3", "class": "Sam3Model", "status": "refused", "reason": "no rule for <this> | that", "figures": {}},
    {
        "family": "blt",
        "class": "BltForCausalLM",
        "status": "fails wired",
        "reason": "frequency changes nothing",
        "figures": {},
    },
    {"family": "jamba", "class": "JambaForCausalLM", "status": "unbuilt", "reason": "no inputs", "figures": {}},
]
ROWS[0]["figures"] = {"generation": "yes", "attention": ["eager"]}


@pytest.fixture
def table(monkeypatch):
    found = {"versions": {"transformers": "1", "torch": "2"}, "date": "2030-01-01", "rows": ROWS}
    monkeypatch.setattr(host_tables, "load_hosts", lambda: found)


@pytest.mark.usefixtures("table")
def test_families_that_count_and_others():
    assert host_tables.count_hosts() == "1 of 4"
    assert host_tables.describe_hosts() == "transformers 1, torch 2, 2030-01-01"
    assert host_tables.list_counting() == "`llama`."
    rows = host_tables.list_refused().splitlines()[2:]
    assert [row.split(" | ")[0].strip("| `") for row in rows] == ["sam3", "blt", "jamba"]
    assert [row.split(" | ")[1] for row in rows] == ["refused", "a frequency has no effect", "not judged"]
    assert "&#60;this> &#124; that" in rows[0]
    assert host_tables.summarize_generation() == "1 generate tokens with a cache, and 0 have SDPA attention"


def test_the_results_have_a_word_for_each_status():
    kinds = {row["status"].split(" ")[-1] for row in host_tables.load_hosts()["rows"]}
    assert kinds <= {"counts", "refused", "unbuilt", *host_tables.CRITERIA}
