"""Count phrases that readers stumble over, per 10,000 words of each room, and fail if a rate exceeds its figure.

The figures are in `rates.json`. They may only fall: `python -m tests.wording --lower` writes the current rates of rooms
that have improved. A room is a folder such as `gateway/serving` or `tests/unit`; a new room may have `_NEW_ROOM`.
"""

import ast
import io
import json
import math
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FIGURES: Final = Path(__file__).with_name("rates.json")
_NEW_ROOM: Final = 10
_FOLDERS: Final = ("gateway", "workers", "shared", "ops", "tests")
_SHOWN: Final = 3
# Each phrase with the words to use instead.
_PHRASES: Final = {
    r"tells?|told|telling": "reports, logs, sends, says which",
    r"hears?|heard|hearing": "receives, learns",
    r"(stands?|stood|standing) (in|for|at|by|there|under|on|still|behind|with|as)": "is, is in, is stopped",
    r"(who|what|which|where|when)(so)?ever": "any client, any value, if",
    r"nobody|somebody|everybody|anybody": "no client, a reader, all workers",
    r"meanwhile|hitherto|thereby|therein|anew|afresh": "in the meantime, again",
    r"whom|whose (?=is|are|was|were)": "the client that, of which",
    r"at once": "immediately, at the same time",
    r"so (long|often|many|much|few|soon) (?!that)\w+": "for this long, this many",
    r"(by|until|from) (then|now)( on)?|from (then|now) on": "name the moment",
    r"(goes|go|went|going|gone) on": "continues",
    r"(gives?|gave|giving) way": "is replaced, is dropped",
    r"of (its|their|our|one's) own": "its own X, separate",
    r"(takes?|took|taken|taking) (it |them )?for(?! each| a| the)": "treats as, assumes",
    r"where (there is|it is|that is|none|no one|nothing)": "if",
    r"there is none": "is missing, without X",
    r"what (stands|comes|came|lies|goes|holds|waits)": "the records that, the text that",
    r"beside": "next to, in addition to",
    r"as if": "like",
    r"in (his|their|its|the \w+'s?) stead": "instead of",
}
_INSTEAD: Final = [*_PHRASES.values()]
_ANY: Final = re.compile(r"\b(?:" + "|".join(f"(?P<n{at}>{phrase})" for at, phrase in enumerate(_PHRASES)) + r")\b")


@dataclass(slots=True)
class Room:
    """The words of one room, and its hits: where, which phrase, what to write instead."""

    words: int = 0
    hits: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def rate(self) -> int:
        """Return the hits per 10,000 words, rounded up."""
        return math.ceil(10_000 * len(self.hits) / max(1, self.words))

    def read(self, path: str, source: str) -> None:
        """Count the texts of one Python file."""
        for line, text in texts_of(source):
            self.words += len(text.split())
            for found in _ANY.finditer(text):
                place = f"{path}:{line + text.count(chr(10), 0, found.start())}"
                self.hits.append((place, found[0], _INSTEAD[int(str(found.lastgroup)[1:])]))


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, comments and help texts of a Python file, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
        is_help = isinstance(node, ast.keyword) and node.arg in {"help", "description"}
        if is_help and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def rooms_of(root: Path) -> dict[str, Room]:
    """Return the rooms of a checkout, from the files that git knows."""
    command = ["git", "ls-files", *(f"{each}/*.py" for each in _FOLDERS)]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True)
    rooms: dict[str, Room] = defaultdict(Room)
    for path in sorted(listed.stdout.decode().splitlines()):
        if (root / path).is_file() and not path.endswith("_pb2.py"):
            rooms["/".join(path.split("/")[:-1][:2])].read(path, (root / path).read_text(encoding="utf-8"))
    return rooms


def complaints(rooms: Mapping[str, Room], figures: Mapping[str, int]) -> list[str]:
    """Return a line for each room above its figure, with the first hits and what to write instead."""
    return [
        f"{name}: {room.rate} odd phrases in 10,000 words, {figures.get(name, _NEW_ROOM)} are allowed: "
        + "; ".join(f"{place} “{phrase}”: write {instead}" for place, phrase, instead in room.hits[:_SHOWN])
        for name, room in sorted(rooms.items())
        if room.rate > figures.get(name, _NEW_ROOM)
    ]


def lowered(rooms: Mapping[str, Room], figures: Mapping[str, int]) -> dict[str, int]:
    """Return the figures with the rates of the rooms that have improved; rooms that are gone are left out."""
    return {name: min(room.rate, figures.get(name, room.rate)) for name, room in sorted(rooms.items())}


if __name__ == "__main__":
    found, allowed = rooms_of(ROOT), json.loads(FIGURES.read_text())
    if "--lower" in sys.argv:
        allowed = lowered(found, allowed)
        FIGURES.write_text(json.dumps(allowed, indent=1) + "\n")
    rates = ", ".join(f"{name} {room.rate}" for name, room in sorted(found.items()))
    sys.stdout.write(f"odd phrases in 10,000 words: {rates}\n")
    sys.exit("\n".join(complaints(found, allowed)) or 0)
