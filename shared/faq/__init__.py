"""The shop's FAQ: what answers when the model is late, and what grounds the model's prompt."""

from shared.faq.entries import FaqEntry, FaqHit, Language
from shared.faq.index import FaqIndex
from shared.faq.terms import detect_language

__all__ = ["FaqEntry", "FaqHit", "FaqIndex", "Language", "detect_language"]
