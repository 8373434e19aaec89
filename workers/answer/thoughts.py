"""Leave out what a model thinks before it answers, in the forms that models write it into their text. Pure.

A form is known by its opening mark: `<think>`, `[THINK]`, `◁think▷`, harmony's channel; at an answer's beginning also a
heading ("Thought:") that one of the answer follows, and any element that is not HTML's ("<plan>"). Some chat templates
write that mark into the prompt, so that only `</think>` comes: text before it is the thought. Whether a server does so
is known from its answers; before the first one ends, a beginning is held back only if it talks about the customer.
After a thought that opened another, text is a thought too if a second end follows.
Other text passes as it comes, except what may become a mark. Within a line, words that are a mark elsewhere ("fill in
<reason>") are text; so is what follows "<think>" there, if the answer ends without "</think>".
"""

import re
from typing import Final, Literal

from shared.faq.words.markup import ELEMENTS

Habit = Literal["unknown", "plain", "opened"]
"""Whether a server's answers begin within a thought that the prompt has opened."""

# "<", "/" and ">", also in full width, as quotation marks, and escaped for Markdown, HTML (even twice) or JSON.
_UNSEEN: Final = r"[ \u200b-\u200d\u2060\ufeff]?"
_LT: Final = rf"(?:\\?<|[＜〈‹《]|&(?:amp;){{0,3}}(?:lt|#0*60|#x0*3c);|\\u003c){_UNSEEN}"
_SLASH: Final = rf"(?:\\?/|&(?:amp;){{0,3}}(?:#0*47|#x0*2f|sol);){_UNSEEN}"
_GT: Final = rf"{_UNSEEN}(?:\\?>|[＞〉›》]|&(?:amp;){{0,3}}(?:gt|#0*62|#x0*3e);|\\u003e)"
_WORD: Final = (
    r"(?:[a-z]{1,12}[:_])?(?:think(?:ing)?(?:_process)?|thoughts?|chain_of_thought|reason(?:ing)?|reflection|scratch_?pad"
    r"|analysis|inner_monologue|思考(?:过程)?|unused94)"
    r"(?:_never_used_\w+)?"
)
_ANSWER: Final = r"(?:final_?)?(?:answer|response|output|reply|result|solution)|final"
_FINAL: Final = (
    r"(?:<\|end\|>)?(?:<\|start\|>assistant)?<\|channel\|>\s*final(?:\s*<\|constrain\|>)?[^<]{0,40}<\|message\|>"
)
_FINAL_WORDS: Final = r"\[BEGIN FINAL RESPONSE\]"
_HEADING: Final = (
    r"\A\s*(?:\*\*|#+ )?(?:thoughts?|thinking|reasoning|denkprozess|【?思考(?:过程)?】?)(?:\*\*)?(?:[:：]|\n|(?<=】))"
)
_ANSWERS_HEADING: Final = (
    r"(?:\n|(?<=[.!?。！？]) |(?=【))\s*(?:\*\*|#+ )?【?/?"
    r"(?:(?:final )?(?:answer|response)|antwort|回答|答案|(?<=/)思考(?:过程)?)(?:\*\*)?(?:[:：](?:\*\*|(?=[^*]))|\n|】)"
)
_ELEMENT: Final = (
    rf"\A\s*<(?P<name>(?!(?:{ELEMENTS}|{_ANSWER}|end_of_\w+|unused95)[\s>])[^\W\d][\w:-]{{0,40}})(?:\s[^<>]{{0,60}})?>"
)
_OPENER: Final = (
    rf"{_LT}[|｜]?(?:(?:begin|start)[_▁]of[_▁]|start_)?{_WORD}(?:_start|_begin)?"
    rf"(?:\s+[\w-]+=[^<>]{{0,60}}|\s*)[|｜]?{_GT}"
)
_CLOSER: Final = (
    rf"{_LT}[|｜]?(?:(?:{_SLASH}|end[_▁]of[_▁]|end_){_WORD}|{_WORD}_end|unused95)\s*[|｜]?{_GT}"
    r"|<\|end\|>\s*<\|begin\|>assistant\s*<\|content\|>"
)
_FORMS: Final = (
    (_OPENER, _CLOSER),
    (r"<details\s[^<>]{0,60}(?:reason|think)[^<>]{0,60}>", r"</details>"),
    (r"\[(?:THINK(?:ING)?|THOUGHT|REASONING|思考)\]", r"\[/(?:THINK(?:ING)?|THOUGHT|REASONING|思考)\]"),
    (r"◁think▷", r"◁/think▷"),
    (r"(?:<\|start\|>assistant)?<\|channel\|>\s*(?:analysis|commentary)", _FINAL),
    (r"<\|channel>\s*(?:thought|analysis)", r"<channel\|>"),
    (r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    (r"<!--\s*(?:think|thought|reason)", r"-->"),
    (r"```[ \t]*(?:think(?:ing)?|thoughts?|reasoning|思考)[ \t]*\n", r"\n[ \t]*```"),
    # From here on at an answer's beginning alone.
    (r"\A\s*analysis(?=[A-Z])", r"assistantfinal"),  # harmony whose marks were left out
    (r"\A\s*here are my reasoning steps:", _FINAL_WORDS),
    (r"\A\s*here(?:'s| is) my (?:thought|thinking|reasoning) process:", r"here(?:'s| is) my (?:response|answer):"),
    (_HEADING, _ANSWERS_HEADING),
    (_ELEMENT, r"</{name}\s*>"),
)
_NUM_MARKED: Final = 9
_LITERAL: Final = (
    *("analysis", "here is my thought process:", "here's my thinking process:", "here are my reasoning steps:"),
    *("thoughts", "thinking", "reasoning"),
    *("denkprozess", "思考过程"),
)
_LEAST_LITERAL: Final = 3
_ANY_CLOSER: Final = re.compile(
    "|".join([_FINAL_WORDS, *(_FORMS[number][1] for number in (0, 2, 3, 4, 5, 6))]), re.IGNORECASE
)
_AT_BEGINNING: Final = frozenset(f"open{number}" for number in range(_NUM_MARKED, len(_FORMS)))
_SPECIAL: Final = ("<|", "<end_of_turn", "</s")
_WORDS: Final = ("open0", "open1", "open2", "open8")
_SURE: Final = re.compile(rf"<\||{_LT}think(?:ing)?{_GT}|\[THINK\]", re.IGNORECASE)
_NESTED: Final = re.compile("|".join(_FORMS[number][0] for number in (0, 2, 3)), re.IGNORECASE)
_MARK: Final = re.compile(
    "|".join([f"(?P<open{number}>{opener})" for number, (opener, _) in enumerate(_FORMS)])
    + f"|(?P<close>{_ANY_CLOSER.pattern})"
    + r"|(?P<skip><\|(?!start\||channel|message|constrain)[a-z_]{2,24}\|>|<end_of_turn>|</s>\Z"
    + rf"|{_LT}(?:{_SLASH})?(?:{_ANSWER}){_GT}|{_LT}{_WORD}\s?{_SLASH}{_GT}|\[END FINAL RESPONSE\])",
    re.IGNORECASE,
)
_PARTIAL: Final = re.compile(
    r"(?:(?:<\|end\|>)?<\|start\|>[a-z]{0,12})?(?:<\|channel\|?>\s{0,4}[a-z]{0,12})?(?:<(?:[|｜]?/?[\w:-]{0,60}[|｜]?)?)?\Z"
    rf"|<{_UNSEEN}(?:/{_UNSEEN})?[|｜/\w:▁-]{{0,40}}{_UNSEEN}\Z"
    r"|<(?:[\w:-]*(?:think|thought|reason)[\w:-]*|details)\s[^<>]{0,60}\Z|<!(?:-{0,2}\s*[a-z]{0,7})?\Z"
    r"|\[(?:/?[a-z思考]{0,10}|(?:begin|end)(?: [a-z]{0,5})?(?: [a-z]{0,8})?)?\Z|◁/?[a-z]{0,8}\Z"
    rf"|(?:[＜〈‹《]|\\<|&(?:amp;){{0,3}}(?:lt|#0*60|#x0*3c);|\\u003c){_UNSEEN}[|/a-z0-9:_思考过程-]{{0,40}}{_UNSEEN}"
    r"(?:(?:&[#a-z0-9;|/:_-]{0,52}){1,3}|\\[u03e/]{0,5}[a-z_]{0,20}(?:\\[u03e]{0,5})?)?\Z"
    r"|&(?:amp;){0,3}(?:a(?:mp?)?|l?t?|#0*6?0?|#x0*3?c?)\Z|\\(?:u0{0,2}3?)?\Z|`{1,2}\Z|```[ \t]*[a-z思考]{0,9}[ \t]*\Z",
    re.IGNORECASE,
)
_BRACKET: Final = re.compile(r"[<\[◁＜〈‹《&\\`]")
_LONGEST_MARK: Final = 120
_STARTS: Final = (
    *("okay", "ok", "alright", "hmm", "hm", "so", "well", "let", "the", "this", "user", "we", "i", "first", "now"),
    *("got", "also", "gut", "der", "die", "ich", "zuerst", "bon", "alors", "le", "la", "d", "vale", "bueno", "el"),
)
_WIDE_STARTS: Final = ("嗯", "好", "用户", "首先", "让我", "我", "顾客", "客户", "ユーザー", "まず", "사용자", "고객")
_ALL_STARTS: Final = (*_STARTS, *_WIDE_STARTS)
_OF_THOUGHTS: Final = re.compile(r"think|thought|reason|reflect|analysis|scratch|思考|</|/\]", re.IGNORECASE)
_BOUNDARY: Final = re.compile(r"[\s,.!:'’]")
_ABOUT: Final = re.compile(
    r"\b(?:the|this|our) (?:user|customer|shopper|client|question|query)\b|\buser (?:asks|wants|is)\b"
    r"|\b(?:i|we) (?:need|have|should|must|can)(?: to)? (?:answer|respond|reply|check|figure|determine|look|use)\b"
    r"|\blet(?: me|'s|’s) (?:check|think|look|see|recall|start)|用户|顾客|客户|让我|我需要|我应该"
    r"|\b(?:der|die|des|dem) (?:kunde|kundin|nutzer|benutzer|frage)|\bich (?:muss|soll|sollte) \w*(?:antworten|prüfen)"
    r"|\b(?:le client|la cliente|l['’]utilisateur|el cliente|el usuario|la pregunta)\b|ユーザー|사용자|고객",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(r"[.!?\n。！？]\s*\S")
_HESITATES: Final = frozenset(("okay", "ok", "alright", "hmm", "hm"))

_WITNESSES: Final = 3


class Habits:
    """The habit of each server, as its whole answers show it.

    A customer can make a model write a thought's mark. So answers to words about thoughts show nothing, and a known
    habit changes only if answers of several conversations, one after the other, contradict it.
    """

    def __init__(self) -> None:
        self._known: dict[str, Habit] = {}
        self._contradicting: dict[str, set[str]] = {}

    def of(self, server: str) -> Habit:
        """Return the habit by which to read a server's next answer."""
        known = self._known.get(server, "unknown")
        return "unknown" if known == "plain" and self._contradicting.get(server) else known

    def learn(self, server: str, shown: Habit, conversation: str, words: str) -> None:
        """Learn from a whole answer to a conversation's words."""
        if _OF_THOUGHTS.search(words):
            return
        against = self._contradicting.setdefault(server, set())
        if shown == self._known.setdefault(server, shown):
            against.clear()
            return
        against.add(conversation)
        if len(against) >= _WITNESSES:
            self._known[server] = shown
            against.clear()


class Thoughts:
    """The text of one answer. `found`: a thought was left out; `unopened`: only its end was marked. What a server's
    habit alone makes a thought is text after all if the answer ends without the mark of its end."""

    def __init__(self, habit: Habit = "plain") -> None:
        self._held = ""
        self._closer: re.Pattern[str] | None = _ANY_CLOSER if habit == "opened" else None
        self._implied = habit == "opened"
        self._searched = self._depth = 0
        self._shown = self._within_line = self._passed = self._wrapped = False
        self._doubted = ""  # the mark, within a line, of what is a thought only if it ends
        self._may_muse = habit == "unknown"
        self.found = False
        self.unopened = False

    @property
    def thinking(self) -> bool:
        """Return whether the text is within a thought."""
        return self._closer is not None

    @property
    def habit(self) -> Habit:
        """Return the habit that this answer shows, once it has ended."""
        return "opened" if self.unopened else "plain"

    def feed(self, text: str) -> str:
        """Return what may be shown with more text."""
        if self._shown and not self._held and self._closer is None and _BRACKET.search(text) is None:
            self._within_line = _within_line(text, already=self._within_line)
            return text
        self._held += text
        shown: list[str] = []
        while self._step(shown):
            pass
        new = "".join(shown)
        if self.found and not self._shown:
            new = new.lstrip()
        self._shown = self._shown or bool(new.strip())
        self._within_line = _within_line(new, already=self._within_line)
        return new

    def finish(self, *, whole: bool = True) -> str:
        """Return what was held back and is no thought: the answer has ended. Not `whole`: it was cut off."""
        rest, self._held = self._held, ""
        if (self._implied or self._doubted) and whole:
            rest = self._doubted + rest
        elif self.thinking or rest.startswith("<|"):
            return ""
        elif not whole and (partial := _PARTIAL.search(rest)) is not None:
            rest = rest[: partial.start()]
        return rest.lstrip() if self.found and not self._shown else rest

    def _step(self, shown: list[str]) -> bool:
        """Take what is held up to the next mark; return whether there is one."""
        if self._closer is not None:
            return self._step_in_thought(self._closer)
        mark = _MARK.search(self._held)
        if mark is None:
            keep = self._kept()
            shown.append(self._held[: len(self._held) - keep])
            self._held = self._held[len(self._held) - keep :]
            return False
        before, self._held = self._held[: mark.start()], self._held[mark.end() :]
        kind = next(name for name, found in mark.groupdict().items() if found is not None and name != "name")
        within_line = _within_line("".join(shown) + before, already=self._within_line)
        has_shown = self._shown or any(each.strip() for each in shown)
        if self._passed if kind == "close" else _is_text(kind, mark[0], within_line=within_line, has_shown=has_shown):
            self._passed = True
            shown.append(before + mark[0])
            return True
        if kind == "close":
            self.unopened = self.found = True
        elif kind != "skip":
            self._closer = _closer_of(mark, kind)
            self._doubted = mark[0] if within_line or kind in _AT_BEGINNING else ""
        elif not has_shown and not before.strip():
            self._wrapped = True
        if before.strip() and (has_shown or kind != "close"):  # else it was a thought
            shown.append(before)
        if kind == "skip" and not (self.found or self._wrapped) and not mark[0].startswith(_SPECIAL):
            shown.append(mark[0])
        self._may_muse = False
        return True

    def _step_in_thought(self, closer: re.Pattern[str]) -> bool:
        """Drop the thought up to the mark of its end; return whether that has come."""
        end = closer.search(self._held, self._searched)
        stop = end.start() if end else len(self._held)
        for nested in _NESTED.finditer(self._held, self._searched, stop):
            self._depth, self._searched = self._depth + 1, nested.end()
        if end is None:
            doubted = self._implied or bool(self._doubted)
            drop = 0 if doubted else max(0, len(self._held) - _LONGEST_MARK)
            self._held = self._held[drop:]
            self._searched = max(0, self._searched - drop, len(self._held) - _LONGEST_MARK)
            self.found = self.found or not doubted
            return False
        self.unopened, self._doubted = self._implied and not self.found, ""
        self._implied = self._depth > 0
        self._closer, self._depth = _ANY_CLOSER if self._depth else None, max(0, self._depth - 1)
        self._held, self.found, self._searched = self._held[end.end() :], True, 0
        return True

    def _kept(self) -> int:
        """Return how many of the held characters are to wait: all of a beginning that may be a thought, or what may
        become a mark."""
        held = self._held
        if not self._shown and not self.found:
            begun = held.lstrip().lower()
            bare = begun.strip("*#【 ")
            sure = len(begun) >= _LEAST_LITERAL or not bare.isascii() or not bare
            if sure and any(form.startswith(bare) for form in _LITERAL):
                return len(held)
            if self._may_muse and (muses := _muses(begun)) is not False:
                if muses:
                    self._closer, self._implied = _ANY_CLOSER, True
                return len(held)
            self._may_muse = False
        partial = _PARTIAL.search(held)
        if partial is None:
            return 0
        return len(held) - (partial.start() if self._shown or held[: partial.start()].strip() else 0)


def _closer_of(mark: re.Match[str], kind: str) -> re.Pattern[str]:
    _, closer = _FORMS[int(kind.removeprefix("open"))]
    return re.compile(closer.replace("{name}", re.escape(mark["name"] or "")), re.IGNORECASE)


def _is_text(kind: str, mark: str, *, within_line: bool, has_shown: bool) -> bool:
    """Return whether the opening mark of a thought is text where it stands."""
    if kind in _AT_BEGINNING:
        return has_shown
    return within_line and kind in _WORDS and not _SURE.match(mark)


def _within_line(text: str, *, already: bool) -> bool:
    """Return whether the line in which a text ends has a word in it."""
    _, ends, rest = text.rpartition("\n")
    return bool(rest.strip()) or (already and not ends)


def _muses(begun: str) -> bool | None:
    """Return whether a beginning may be a thought, since it talks about the customer; None if it is too short to
    decide."""
    word = _BOUNDARY.split(begun, maxsplit=1)[0]
    if (
        word not in _STARTS
        and not begun.startswith(_WIDE_STARTS)
        and not any(one.startswith(begun) for one in _ALL_STARTS)
    ):
        return False
    most = 100 if word in _HESITATES or not begun[0].isascii() else 32
    if _ABOUT.search(begun) is not None:
        return True
    return None if len(begun) < most and _SENTENCE.search(begun) is None else False
