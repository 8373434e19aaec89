"""Decide whether a customer plainly asks for a person, or accepts the offer of one, in English or Chinese. Pure.

The test is a list of phrasings (here and in `wishes.json`), a clause at a time: a customer that asks whether a person
packed the parcel, or does not want one, gets the model's answer. A missed wish costs one more question, and there is a
button; an imagined one costs an answer. So a doubtful one is none.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Self

import msgspec

from shared.faq.small_talk import is_pieces_only
from shared.faq.words.fold import fold, plain

MAX_CHARS: Final = 2_000
"""What is longer than this is no plain wish."""

_CLAUSES: Final = re.compile(r"[.!?;,:\n。！？；，、：…]+|\s(?:but|and|so|because)\s")

_MAX_PHRASE_CHARS: Final = 80
_NO_WORD: Final = re.compile(r"[^\w']+")


class _Said(msgspec.Struct, frozen=True):
    """One language's phrases. What is `agreeing` accepts an offer too, unless thanks stand beside it."""

    wishes: list[str]
    around: list[str]
    accepting: list[str]
    agreeing: list[str]
    fillers: list[str]
    thanks: list[str]


class _Table(msgspec.Struct, frozen=True):
    english: _Said
    chinese: _Said
    accepting_signs: str

    @property
    def by_end(self) -> tuple[tuple[str, _Said], ...]:
        """Return the phrases by what stands behind a word in their language."""
        return ((" ", self.english), ("", self.chinese))


_TABLE: Final = msgspec.json.decode(Path(__file__).with_name("wishes.json").read_bytes(), type=_Table)

# --- English

_KIND = r"(?:(?:a|an|any|some|the|your|one of your|another) )?(?:(?:real|live|actual|human|proper|customer) )*"
_PERSON = (
    r"(?:person|people|human(?: being)?|agent|representative|rep|operator|advis[eo]r|member of staff|staff member)"
)
_HUMAN = rf"{_KIND}{_PERSON}"
_OFFICE = (
    r"(?:(?:a|the|your|live|online|human|technical) )*"
    r"(?:manager|supervisor|customer (?:service|support|care)|support|staff|team)"
)
_SOMEONE = r"(?:someone|somebody)(?=$| (?:real|human|there|else|from|in|at|on|who|that|i|about|please|now)\b)"
_SOMEBODY = rf"(?:{_HUMAN}|{_OFFICE}|{_SOMEONE})"
_TALK = r"(?:talk|speak|chat) (?:to|with)"
_MANNERS = r"(?:(?:please|just|really|now|only|still|finally) ){0,3}"
_WOULD = rf"i(?:'d| would) {_MANNERS}(?:like|love|prefer|want|rather)"
_WANT = rf"(?:i {_MANNERS}(?:want|wanna|gotta|need|wish|have|demand)|{_WOULD}|i must) {_MANNERS}"
_HOW = r"(?:how (?:can|do|could|would)|where (?:can|do|could))"
_MAY = rf"(?:(?:can(?:'t)?|could|may|might|{_HOW}) i|let me|allow me to) {_MANNERS}"
_PURPOSE = r"to (?:help|talk|speak|answer|look|call|explain)"
_END = rf"(?=$| (?:please|now|instead|right|asap|immediately|today|here|thanks|not|{_PURPOSE})\b)"
_HELLO = r"^(?:(?:please|ok|okay|hello|hi|hey) ){0,3}"

_WISHES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\b{_WANT}(?:to )?{_MANNERS}{_TALK} {_SOMEBODY}\b",
        rf"\b{_WANT}(?:to be )?(?:connected|transferred|put through) (?:to|with) {_SOMEBODY}\b",
        rf"\b{_WANT}{_HUMAN}{_END}",
        rf"\b{_MAY}(?:{_TALK}|reach|get hold of|contact) {_HUMAN}\b",
        rf"\b{_MAY}{_TALK} {_SOMEBODY}\b",
        rf"\b{_MAY}(?:have|get) {_HUMAN}{_END}",
        rf"\b(?:connect|transfer|put|pass|hand|switch) me (?:through |over |on )?(?:to|with) {_SOMEBODY}\b",
        rf"\b(?:get|give|bring|find|call) me {_HUMAN}{_END}",
        rf"\bis there {_SOMEBODY}(?: (?:that|who|whom))? i (?:can|could|may) (?:talk|speak|chat)\b",
        rf"{_HELLO}{_TALK} {_SOMEBODY}\b",
        rf"{_HELLO}{_HUMAN}(?: (?:please|now|support|agent)){{0,2}}$",
    )
)
_NOT: Final = re.compile(
    r"(?:n't|\bnot|\bnever|\bwithout|\bno need|\binstead of|\brather than|\bif|\bunless|\bwhen|\bwhether|\bbefore"
    r"|\bafter|\bdo|\bdid|\bdoes|\bmust|\bshould|\bwould|\bwill|\bwhy would|\bwhy should)\b(?: \w+){0,2}\s*$"
)
_ASKS_WHY_NOT: Final = re.compile(r"\bwhy (?:can't|cannot|can not|may) ?$")

# --- Chinese

_SERVICE = (
    r"(?:人工(?:客服|服务(?!费)|坐席)|真人(?:客服|服务)|(?:人工|真人)(?=$|[吧呀啊呢了行可好吗么谢帮来处回解聊说]))"
)
_OF_THE_SHOP = r"(?:你们|你们的|店里的?)?(?:经理|主管|店员|员工|专员|负责人)"
_STAFF = rf"(?:真人|人工(?:客服)?|客服(?:人员)?|工作人员|{_OF_THE_SHOP}|(?:一个)?(?:真的|真正的)?人)"
_ZH_WISHES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:转接?|接|找|叫|换|联系|呼叫|请求|连接|接入)(?:一下|个|位|到|至|给|成|上)?{_SERVICE}",
        rf"(?:我要|我想要|我需要|需要|想要|给我|我想找|帮我找|^要|请给我)(?:一个|个|位)?{_SERVICE}(?![吗么])",
        r"转接?(?:一下)?(?:到|至|给)?(?:客服|工作人员|专员|(?:你们)?的?经理)",
        rf"(?:想|要|希望|需要|能|可以|让我|可否)(?:不能|不可以|够)?(?:直接)?(?:和|跟|同|与){_STAFF}(?:说话?|聊|谈|沟通|讲|对话|通话|联系|交流)",
        r"^(?:请|你好|您好|麻烦)?(?:人工|真人|人工客服|真人客服|人工服务|客服)(?:谢谢|吧|啊|呢|在吗)?$",
    )
)
_ZH_NOT: Final = re.compile(
    r"(?:不(?:要|想要?|用|需要?|必|愿意?|打算|是要|是想)?|别|勿|无需|没必要|没有?|如果.{0,6}|要是.{0,6}|是否需?要?|会)"
    r"(?:再|给我|帮我|让我|把我|我|去|给|帮|直接)?$"
)
_ZH_ASKS: Final = re.compile(r"(?:能|可|可以)不$|能不能.{0,4}$|可不可以.{0,4}$|要不要$")


def wants_person(text: str, own: tuple[str, ...] = ()) -> bool:
    """Return whether a text asks in so many words for a person. `own`: the shop's further wordings of the wish, each a
    whole clause, whatever polite words stand around it."""
    text = plain(text)
    if len(text) > MAX_CHARS:
        return False
    clauses = [" ".join(clause.split()) for clause in _CLAUSES.split(fold(text))]
    return any(
        _in_english(clause)
        or _in_chinese(clause.replace(" ", ""))
        or any(phrasing.fits(clause) for phrasing in _wishes(own))
        for clause in clauses
        if clause
    )


def accepts_offer(text: str) -> bool:
    """Return whether a text that follows the offer of a person accepts it: "yes please", "好的", a thumb. "Ok, thanks"
    does not: it ends the talk."""
    text = plain(text)
    if any(char.isalnum() for char in text):
        return any(phrasing.fits(text) for phrasing in _ACCEPTANCES)
    return any(sign in _TABLE.accepting_signs for sign in text)


@dataclass(frozen=True, slots=True)
class _Phrasing:
    """Texts that are `telling` phrases and others around them, of one language, and nothing else."""

    pieces: re.Pattern[str]
    telling: re.Pattern[str]
    end: str

    @classmethod
    def of(cls, end: str, telling: Sequence[str], *around: Sequence[str]) -> Self:
        """`end` stands behind each word in this language."""
        phrases, others = (
            "|".join(sorted(map(re.escape, words), key=len, reverse=True))
            for words in (telling, [*telling, *itertools.chain(*around)])
        )
        return cls(re.compile(f"(?:{others}){end}"), re.compile(f"(?:{phrases}){end}"), end)

    def fits(self, text: str) -> bool:
        words = _words(text, self.end)
        return (
            len(words) <= _MAX_PHRASE_CHARS
            and self.telling.search(words) is not None
            and is_pieces_only(words, self.pieces)
        )


def _words(text: str, end: str) -> str:
    return "".join(f"{word}{end}" for word in _NO_WORD.split(fold(text)) if word)


@lru_cache(4)
def _wishes(own: tuple[str, ...]) -> list[_Phrasing]:
    """Return the wishes that are listed, and the shop's own."""
    return [
        _Phrasing.of(end, [*said.wishes, *(_words(wish, end).removesuffix(end) for wish in own)], said.around)
        for end, said in _TABLE.by_end
    ]


_ACCEPTANCES: Final = [
    phrasing
    for end, said in _TABLE.by_end
    for phrasing in (
        _Phrasing.of(end, said.accepting, said.agreeing, said.fillers, said.thanks),
        _Phrasing.of(end, said.agreeing, said.fillers),
    )
]


def _in_english(clause: str) -> bool:
    for wish in _WISHES:
        for found in wish.finditer(clause):
            before = clause[: found.start()]
            if not _NOT.search(before) or _ASKS_WHY_NOT.search(before):
                return True
    return False


def _in_chinese(clause: str) -> bool:
    for wish in _ZH_WISHES:
        for found in wish.finditer(clause):
            before = clause[: found.start()]
            if not _ZH_NOT.search(before) or _ZH_ASKS.search(before):
                return True
    return False
