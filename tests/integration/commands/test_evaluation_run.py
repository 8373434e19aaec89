"""`replyline eval` through its own whole system: questions are answered, judged, shown and written."""

from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from ops.evaluation.asking import Gateway
from ops.evaluation.judging.questions import Question
from ops.evaluation.options import EvaluationOptions
from ops.evaluation.program import BoundMissed, evaluate
from shared.faq import FaqIndex
from shared.settings import Settings
from tests.support.system import Service

pytestmark = pytest.mark.system(workers=1)

SIZE = next(
    entry for entry in FaqIndex.load().entries if (entry.id, entry.language) == ("product-size-ax-3391-b", "en")
)
QUESTIONS = (
    {"id": "greets", "kind": "small_talk", "split": "dev", "question": "good morning!"},
    {"id": "strays", "kind": "unanswerable", "split": "dev", "question": "qwertz uiop asdfgh"},
    {
        "id": "asks",
        "kind": "paraphrase",
        "split": "held_out",
        "question": "may i return it after a long time",
        "entries": ["return-period"],
        "must": [["30 days"]],
    },
    {
        "id": "leans",
        "kind": "follow_up",
        "split": "dev",
        "question": "And can it go in the dryer?",
        "history": [{"user": "which size of the ax-3391-b do i need", "assistant": SIZE.answer}],
        "entries": ["product-care-ax-3391-b"],
        "must": [["20 minutes"]],
    },
)


@pytest.mark.timeout(90)
async def test_a_run_asks_its_own_system_and_writes_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an engine that is never asked, because no entry is sure enough."""
    for name, value in {
        "WORKER__ENGINE": "fake",
        "ANSWERS__CONFIDENT_SCORE": "1",
        "ANSWERS__WEAK_SCORE": "0.25",
    }.items():
        monkeypatch.setenv(f"REPLYLINE_{name}", value)
    questions = tmp_path / "questions.jsonl"
    questions.write_bytes(b"\n".join(msgspec.json.encode({"language": "en", **question}) for question in QUESTIONS))
    report = tmp_path / "report.json"
    options = EvaluationOptions(
        split="all", questions=questions, clients=2, policy="grounded", require=["zh_right=0.9"], json_path=report
    )
    with pytest.raises(BoundMissed, match="zh_right was not measured"):
        await evaluate(Settings(), options, "replyline eval", Console(quiet=True))
    result = msgspec.json.decode(report.read_bytes())
    answers = {answer["id"]: answer for answer in result["answers"]}
    assert {name: (answer["source"], answer["why"]) for name, answer in answers.items()} == {
        "greets": ("courtesy", []),
        "strays": ("unsure", []),
        "asks": ("quote", []),  # with the entry that is closest
        "leans": ("quote", []),  # with the turn before, from the history
    }
    assert (result["hedged"], result["en_right_unhedged"]) == (1.0, 0.0)
    assert (result["unanswerable_right"], result["zh_right"]) == (1.0, None)
    assert {answer["question"] for answer in result["answers"]} == {question["question"] for question in QUESTIONS}


async def test_a_running_gateway_answers_by_its_own_promise(gateway: Service) -> None:
    """It allows no question more time."""
    question = Question(id="asks", language="en", kind="paraphrase", split="dev", question="And when?")
    given = await Gateway(url=gateway.ws).ask(question)
    assert (given.source, given.error) == ("model", None)
