"""Find the questions among a page's lines, and their answers. Pure."""

import re
from collections.abc import Iterator
from typing import Final

from ops.operate.faq.blocks import Asked, Block, Heading, Text

QUESTION_MARKS: Final = ("?", "？", "؟")
HEADING_CHARS: Final = 120
"""The longest line that is a heading or a question without markup."""
_ASKS: Final = re.compile(r"(?:Q|Question|问|問|问题|問題)\s?\d*\s*[:：.]\s*(.+)")
_ANSWERS: Final = re.compile(r"^(?:A|Answer|答|答案|回答)\s?\d*\s*[:：.]\s*")
_ASKS_AND_ANSWERS: Final = re.compile(_ASKS.pattern + r"\s(?:A|Answer|答|答案|回答)\s?\d*\s*[:：.]\s*(.+)")
_BULLET: Final = re.compile(r"^\s*(?:[-•*]|\d+[.)])\s+")
_SENTENCE_END: Final = re.compile(r"[.!?。！？]\s")


def with_asked(blocks: list[Block]) -> Iterator[Block]:
    """Yield the blocks. A question on a line by itself becomes a block with the text up to the next question or heading
    as its answer."""
    question, answer = "", list[str]()

    def asked() -> Iterator[Block]:
        if question:
            yield Asked(question, "\n".join(answer)) if answer else Text(question)

    for block in blocks:
        if isinstance(block, Text):
            plain = list[str]()
            for line in block.text.split("\n"):
                own, told = _asked_in(line)
                if own:
                    yield from asked()
                    question, answer = own, [told] if told else []
                elif question:
                    answer.append(_ANSWERS.sub("", line.strip()) if not answer else line.removeprefix("  "))
                else:
                    plain.append(line)
            if plain:
                yield Text("\n".join(plain))
            continue
        yield from asked()
        question, answer = "", []
        if isinstance(block, Heading) and (found := _ASKS.match(block.text)) is not None:
            question = found[1]
        else:
            yield block
    yield from asked()


def _asked_in(line: str) -> tuple[str, str]:
    """Return the question on a line, and the answer if the line has both ("Q: Is it free? A: Yes."); what is missing is
    empty."""
    line = _BULLET.sub("", line)
    if (both := _ASKS_AND_ANSWERS.match(line)) is not None:
        return both[1].strip(), both[2].strip()
    if (asks := _ASKS.match(line)) is not None:
        return asks[1].strip(), ""
    is_question = line.endswith(QUESTION_MARKS) and len(line) <= HEADING_CHARS and not _SENTENCE_END.search(line)
    return (line, "") if is_question else ("", "")
