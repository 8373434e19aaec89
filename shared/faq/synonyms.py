"""The words by which customers of a shop call the same thing.

A row of `synonyms.json`: its words, and the name before them, all stand for that name; a word may stand in several
rows. The table is the vocabulary of shops in general and holds no phrasing of any FAQ: it is applied to entries and to
questions alike, and does harm to neither where a word has another sense, since the word itself counts beside its names.
"""

from pathlib import Path
from typing import Final

import msgspec

_TABLE: Final = msgspec.json.decode(
    Path(__file__).with_name("synonyms.json").read_bytes(), type=dict[str, dict[str, str]]
)
_PAIRS: Final = _TABLE["english_pairs"]
# A verb and what makes it another: "call it off", "send the shoes back". So many words may stand between.
PAIR_REACH: Final = 4


def _by_word(table: dict[str, str], *, with_name: bool) -> dict[str, tuple[str, ...]]:
    """Each word of the table with its names."""
    names: dict[str, list[str]] = {}
    for name, words in table.items():
        for word in (*([name] if with_name else []), *words.split()):
            names.setdefault(word, []).append(name)
    return {word: tuple(of_word) for word, of_word in names.items()}


NAMES: Final = _by_word({**dict.fromkeys(_PAIRS, ""), **_TABLE["english"]}, with_name=True)
PAIR_NAMES: Final = {
    (pair.partition("-")[0], pair.partition("-")[2]): name for name, pairs in _PAIRS.items() for pair in pairs.split()
}
CHINESE_NAMES: Final = _by_word(_TABLE["chinese"], with_name=False)
