"""`replyline bench faq` measures an FAQ that a shop could have."""

import json
import random
from pathlib import Path

import pytest

from shared.faq import FaqIndex
from shared.faq.texts import MAX_ANSWER_CHARS, MAX_QUESTION_CHARS, fault_of
from tests.bench.faq import bench_faq, make_entries, measure


def test_made_up_entries_are_as_many_as_asked_for_and_none_is_another() -> None:
    entries = make_entries(300, random.Random(1))
    assert {language: sum(entry.language == language for entry in entries) for language in ("en", "zh")} == {
        "en": 300,
        "zh": 300,
    }
    assert len({entry.question for entry in entries}) == 600
    assert not [entry for entry in entries if fault_of(entry.question, MAX_QUESTION_CHARS)]
    assert not [entry for entry in entries if fault_of(entry.answer, MAX_ANSWER_CHARS)]


def test_each_entry_is_found_by_its_own_product() -> None:
    entries = make_entries(300, random.Random(1))
    index = FaqIndex(entries)
    for entry in entries[::25]:
        sku = entry.question.partition(": ")[0].split()[-1]
        best = index.search(f"{entry.question.partition(': ')[2]} {sku}", k=1, language=entry.language)
        assert best[0].entry == entry


def test_every_search_is_timed_by_both_clocks() -> None:
    index = FaqIndex(make_entries(10, random.Random(1)))
    wall_ms, cpu_ms = measure(index, "zh", 8, random.Random(1))
    assert len(wall_ms) == len(cpu_ms) == 8
    assert all(ms >= 0 for ms in (*wall_ms, *cpu_ms))


def test_the_result_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench_faq(entries=20, searches=5, seed=0, json_path=tmp_path / "faq.json")
    result = json.loads((tmp_path / "faq.json").read_text())
    assert result["entries"] == 20
    assert result["search"].keys() == {"en", "zh"}
    assert result["search"]["zh"]["wall_ms"]["p99"] > 0
    assert "20 entries in each language" in capsys.readouterr().out
