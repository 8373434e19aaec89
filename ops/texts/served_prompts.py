"""Customers' texts of the demo, framed as a worker frames them. Pure but for the packaged files that they come from.

Some are what a model is measured by (`replyline optimize evaluate`).
"""

from collections.abc import Sequence

import numpy as np

from ops.texts.calibration_set import CalibrationText
from ops.texts.conversations import load_conversations
from ops.texts.demo_texts import demo_texts
from shared.errors import SettingsError
from shared.faq.entries import PACKAGED_PATH, FaqEntry, read_entries
from shared.settings import SYSTEM_PROMPT
from shared.wire.messages import Grounding
from workers.prompt.conversation import ChatTemplate, PromptBuilder
from workers.prompt.history_window import HistoryWindow


def fixed_prompts(template: ChatTemplate, count: int, *, max_tokens: int) -> list[list[int]]:
    """The same for the same `count`: spread over common texts, rare ones and those with numbers; a wording of an FAQ
    entry has that entry before it. Raises `SettingsError` where there are not so many."""
    entries, texts = _demo()
    if count > len(texts):
        raise SettingsError(f"--prompts {count}: there are {len(texts)}; ask for at most so many")
    return _framed(template, entries, _spread(texts, count), max_tokens)


def _demo() -> tuple[list[FaqEntry], list[CalibrationText]]:
    entries = list(read_entries(PACKAGED_PATH))
    return entries, [text for text in demo_texts(entries, load_conversations()) if text.role == "user"]


def _spread(texts: Sequence[CalibrationText], count: int) -> list[CalibrationText]:
    return [texts[at] for at in np.linspace(0, len(texts) - 1, count).astype(int)]


def _framed(
    template: ChatTemplate, entries: Sequence[FaqEntry], texts: Sequence[CalibrationText], max_tokens: int
) -> list[list[int]]:
    by_id = {entry.id: entry for entry in entries}
    builder = PromptBuilder(template, system=SYSTEM_PROMPT, window=HistoryWindow("sliding", 0))
    return [
        builder.build(turns=(), grounding=_grounding(text, by_id), question=text.text, max_tokens=max_tokens).ids
        for text in texts
    ]


def _grounding(text: CalibrationText, by_id: dict[str, FaqEntry]) -> tuple[Grounding, ...]:
    entry = by_id.get(text.group or "")
    return () if entry is None else (Grounding(id=entry.id, question=entry.question, answer=entry.answer),)
