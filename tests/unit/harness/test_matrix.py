"""The rows of `replyline optimize matrix`: what is divided by what, and what counts as missed or not measured."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ops.evaluation.judging.judge import Given, Verdict
from ops.evaluation.judging.questions import Question
from ops.evaluation.judging.result import Judged
from ops.model.prepare import prepare_model
from shared.errors import SettingsError
from tests.bench.cell import FAILED, Measured
from tests.bench.smaller.forms import EXPERTS, FP32, INT8, LOOKUP, NOT_MEASURED, ONNX, PRUNED, TAUGHT, forms_of
from tests.bench.smaller.program import check_vocabularies, counted
from tests.bench.smaller.table import FIRST_TEXT, ROWS, Answered, Found, Predicted, page, rows_of, speed
from tests.support.models.fixtures import TINY, write_llama
from tests.support.rows import Row

FOLDERS = {FP32: Path("fp32"), ONNX: Path("int8"), INT8: Path("int8"), PRUNED: Path("pruned")}


def measured(tok_s: float, first_ms: float = 40.0, differing: float = 0.0) -> list[dict[str, float | None]]:
    return [{**{speed(rows): tok_s * rows for rows in ROWS}, FIRST_TEXT: first_ms, FAILED: differing}]


def answers(right: int, *, held_out_right: int, invented: int = 0, sku_right: int = 6) -> Answered:
    return Answered(
        asked=100, right=right, invented=invented, by_model=40, by_model_right=30, held_out=60,
        held_out_right=held_out_right, sku=6, sku_right=sku_right,
    )  # fmt: skip


def found(**changed: Any) -> dict[str, Row]:
    return {row.row: row for row in rows_of(everything(**changed))}


def everything(**changed: Any) -> Found:
    forms = forms_of(FOLDERS)
    speeds = {FP32: 20.0, ONNX: 40.0, INT8: 50.0, INT8 + LOOKUP: 100.0, PRUNED: 65.0, PRUNED + LOOKUP: 130.0}
    given: dict[str, Any] = {
        "measured": {name: Measured(name=name, bases=(), rounds=measured(value)) for name, value in speeds.items()},
        "answered": {
            FP32: answers(90, held_out_right=50),
            INT8: answers(90, held_out_right=50),
            PRUNED: answers(80, held_out_right=45),
        },
        "predicted": {INT8: {"common": Predicted(same=99, places=100, nats=0.001)}},
        "missing": {TAUGHT: NOT_MEASURED[TAUGHT]},
        **changed,
    }
    return Found(forms=forms, **given)


def test_the_page_has_a_row_a_form_and_leaves_out_what_was_not_measured() -> None:
    lines = page(everything()).splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines[2:]] == [
        FP32, ONNX, INT8, INT8 + LOOKUP, PRUNED, PRUNED + LOOKUP,
    ]  # fmt: skip
    assert "| 50 / 200 / 400 / 800 | 40 |" in lines[4]
    assert "0.990" in lines[4]


def test_every_form_is_measured_with_lookup_too_but_for_fp32_onnx_and_random_weights() -> None:
    names = [form.name for form in forms_of({**FOLDERS, EXPERTS: Path("experts")})]
    assert names == [FP32, ONNX, INT8, INT8 + LOOKUP, PRUNED, PRUNED + LOOKUP, EXPERTS]


def test_lookup_is_divided_by_the_same_model_without() -> None:
    rows = found()
    for count in ROWS:
        row = rows[f"{INT8}{LOOKUP}: tok/s of those without, {count} rows"]
        assert (row.figure, row.holds) == ("2.000", True)
    assert rows[f"{INT8}{LOOKUP}: 1 row (article: 40 % less latency)"].figure == "50 % less time a token"


def test_texts_that_differ_miss() -> None:
    torn = {
        INT8: Measured(name=INT8, bases=(), rounds=measured(50)),
        INT8 + LOOKUP: Measured(name=INT8 + LOOKUP, bases=(), rounds=measured(100, differing=1)),
    }
    row = found(measured=torn)["lookup: texts that differ"]
    assert (row.figure, row.holds) == ("1", False)


def test_right_answers_of_a_pruned_model_are_those_to_held_out_questions() -> None:
    rows = found()
    row = rows[f"{PRUNED}: right answers of {INT8}'s, held-out questions"]
    assert (row.figure, row.holds) == ("0.900 (45 and 50 of 60)", False)
    assert rows[f"{PRUNED}: tok/s of int8's, 8 rows"].holds


def test_a_lost_article_number_and_an_invented_figure_miss() -> None:
    fewer = {
        FP32: answers(90, held_out_right=50),
        INT8: answers(90, held_out_right=50, sku_right=5),
        PRUNED: answers(90, held_out_right=50, invented=1),
    }
    rows = found(answered=fewer)
    assert not rows[f"{INT8}: right answers about article numbers, and fp32's"].holds
    assert not rows[f"{PRUNED}: answers with an invented figure"].holds
    assert rows[f"{INT8}: right answers of fp32's"].holds


def test_what_is_not_measured_is_a_row_that_does_not_hold() -> None:
    row = found()[TAUGHT]
    assert row.figure.startswith("not measured: ")
    assert not row.holds


def test_a_form_that_failed_to_run_has_no_ratio() -> None:
    rows = found(measured={}, answered={}, predicted={})
    assert not any(row.holds for row in rows.values() if row.target.startswith(">="))


def test_counts_tell_held_out_questions_and_article_numbers_apart() -> None:
    def one(kind: Any, split: Any, *, right: bool, source: Any = "model") -> Judged:
        question = Question(
            id=f"{kind}-{split}",
            language="en",
            kind=kind,
            split=split,
            question="?",
        )
        given = Given(source=source, text="!")
        return Judged(question=question, given=given, verdict=Verdict(right=right), found=())

    counts = counted(
        [
            one("sku", "held_out", right=True),
            one("sku", "dev", right=False),
            one("paraphrase", "held_out", right=True, source="quote"),
        ]
    )
    assert (counts.asked, counts.right, counts.by_model, counts.by_model_right) == (3, 2, 2, 1)
    assert (counts.held_out, counts.held_out_right, counts.sku, counts.sku_right) == (2, 2, 2, 1)


def test_a_model_with_another_vocabulary_is_refused_with_both_numbers(tmp_path: Path) -> None:
    folders = []
    for name, more in (("demo", 0), ("other", 8)):
        architecture = msgspec.structs.replace(TINY, vocab_size=TINY.vocab_size + more)
        write_llama(tmp_path / name, architecture, seed=1)
        folders.append(prepare_model(tmp_path / "models", "fp32", source=tmp_path / name).path)
    check_vocabularies(folders[:1], folders[0])
    with pytest.raises(SettingsError, match=f"has {TINY.vocab_size + 8} tokens, the demo's model {TINY.vocab_size};"):
        check_vocabularies(folders[1:], folders[0])
