"""Look up a text's last tokens in earlier text, to propose the tokens that may follow (prompt lookup). Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

LONGEST_MATCH: Final = 16
_SHORTEST_MATCH: Final = 2
_OCCURRENCES: Final = 8
"""The latest occurrences of a pair that are compared: a text of one repeated token has thousands."""


class Match(NamedTuple):
    """The last `length` tokens of a text occur in `text` before position `at`."""

    length: int
    text: "Text"
    at: int


class Text:
    """Token ids that grow at their end, indexed by pairs."""

    __slots__ = ("_after", "ids")

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.ids: list[int] = []
        self._after: dict[tuple[int, int], list[int]] = {}
        self.extend(ids)

    def extend(self, ids: Iterable[int]) -> None:
        for token_id in ids:
            if len(self.ids) >= _SHORTEST_MATCH:
                places = self._after.setdefault((self.ids[-2], self.ids[-1]), [])
                places.append(len(self.ids))
                if len(places) > _OCCURRENCES:
                    del places[0]
            self.ids.append(token_id)

    def find(self, tail: list[int]) -> Match | None:
        """Return the longest match of the end of `tail`, at least two tokens; of equal ones the latest."""
        best = None
        if len(tail) < _SHORTEST_MATCH:
            return None
        for at in reversed(self._after.get((tail[-2], tail[-1]), ())):
            length, most = _SHORTEST_MATCH, min(at, len(tail), LONGEST_MATCH)
            while length < most and self.ids[at - 1 - length] == tail[-1 - length]:
                length += 1
            if best is None or length > best.length:
                best = Match(length, self, at)
        return best


def longest_match(texts: Iterable[Text], tail: list[int]) -> Match | None:
    """Return the longest match in any of the texts; of equal ones the first text's."""
    found = [match for text in texts if (match := text.find(tail)) is not None]
    return max(found, key=lambda match: match.length, default=None)
