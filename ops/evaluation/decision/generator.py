"""Make near misses for any FAQ, without a model: questions about an entry's topic that the entry does not answer.

The categories and the three strengths are those of RefusalBench (Muhamed et al., 2025). Each comes with the sentence
that would answer it, so that the same question can be put to the entry with and without it: nothing in the question
reveals which.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from ops.evaluation.judging.questions import Question
from shared.faq import FaqEntry

_TEMPLATES: Final = Path(__file__).with_name("near_misses.json")
# What an English question opens with before it comes to its topic.
_LEAD: Final = re.compile(
    r"(?:where|how|what|when|which|who|why|can|could|do|does|did|is|are|was|will|may|must|should|would|have|has|if|in|i"
    r"|you|we|they|it|there|your|my|much|many|long|often|see|find|get|got|offer|sell|use|take|need|tell|know|to|for|of"
    r"|not|be|with|at|on|and|or|happens|about|me|us|someone|anyone|somebody)\s+",
    re.IGNORECASE,
)
_HAN_AROUND: Final = re.compile(
    r"怎么样|怎么办|怎么|如何|可以|能不能|能否|能|多久|多少钱|多少|几天|几点|在哪里|哪里|哪些|什么时候|什么是|是什么|什么"
    r"|你们|我们|我|有没有|有|吗|呢|会|要|是否|请问|应该|[?？，。！]"
)
_LEAST_CHARS: Final = 2


class Template(msgspec.Struct, frozen=True):
    """A near miss about a topic: in each language what is asked, and the sentence that would answer it."""

    category: Literal["missing", "false premise", "granularity", "ambiguity", "contradiction", "epistemic"]
    strength: Literal["low", "medium", "high"]
    en: tuple[str, str]
    zh: tuple[str, str]


def templates() -> list[Template]:
    """Return the packaged templates."""
    return msgspec.json.decode(_TEMPLATES.read_bytes(), type=list[Template])


def near_misses(entries: Sequence[FaqEntry]) -> Iterator[Question]:
    """Return near misses about the entries: of each template one about each entry."""
    for number, template in enumerate(templates()):
        for entry in entries:
            ask, tell = template.en if entry.language == "en" else template.zh
            yield Question(
                id=f"{entry.id}-{entry.language}-{number}"[-64:],
                language=entry.language,
                kind="near_miss",
                split="dev",
                question=ask.format(topic=topic_of(entry)),
                near=entry.id,
                tell=tell,
            )


def topic_of(entry: FaqEntry) -> str:
    """Return what an entry's question is about, in its own words."""
    question = entry.question.strip().rstrip("?？.。!！")
    if entry.language == "zh":
        topic = _HAN_AROUND.sub("", question).strip("的了 ")
        return topic if len(topic) >= _LEAST_CHARS else question
    topic = question.split(". ")[0].split(", ")[0]
    while (lead := _LEAD.match(topic)) is not None:
        topic = topic[lead.end() :]
    return topic if len(topic) > _LEAST_CHARS else question
