"""Reads `topics.txt`, whose head says what its lines mean."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PATH: Final = Path(__file__).with_name("topics.txt")


@dataclass(slots=True)
class Topic:
    """An entry with its facts left open, and how customers come to it."""

    section: str
    question: str
    answers: list[str] = field(default_factory=list)
    asks: list[str] = field(default_factory=list)
    follow_ups: list[str] = field(default_factory=list)
    premises: list[str] = field(default_factory=list)


def read_topics(path: Path = PATH) -> list[Topic]:
    """In the file's order. Raises `ValueError` for a line that is of none of its kinds."""
    topics: list[Topic] = []
    section = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        mark, _, text = line.partition(" ")
        if mark == "Q:":
            topics.append(Topic(section, text))
        elif line.startswith("["):
            section = line.strip("[]")
        elif mark in {"A:", "?", "+", "!"}:
            topic = topics[-1]
            {"A:": topic.answers, "?": topic.asks, "+": topic.follow_ups, "!": topic.premises}[mark].append(text)
        elif line and not line.startswith("#"):
            raise ValueError(f"{path.name}: {line!r} is of no kind")
    return topics
