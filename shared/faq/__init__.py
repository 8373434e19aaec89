"""The shop's FAQ: what answers when the model is late, and what grounds the model's prompt."""

from shared.faq.entries import FaqEntry, FaqHit
from shared.faq.index import FaqIndex, Found
from shared.faq.terms import detect_language
from shared.wire.messages import Language

__all__ = ["FaqEntry", "FaqHit", "FaqIndex", "Found", "Language", "detect_language"]
