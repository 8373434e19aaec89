"""Every reader normalises a text in the same way: each way of typing with each reader."""

import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gateway.people.handoff_wish import wants_person
from shared.errors import SettingsError
from shared.faq import FaqIndex, Language, detect_language
from shared.faq.answer_policy import AnswerPolicy, sureness_of
from shared.faq.embedder import Embedder
from shared.faq.fallback import choose_fallback
from shared.faq.small_talk import small_talk
from shared.faq.terms import seems_foreign
from shared.faq.words.fold import fold, plain, plain_entry

Typed = Callable[[str], str]
_QUOTE: Final = "Thank you for your order. Delivery takes 3 to 5 working days.\nYou can pay by card. 三到五天送达。"
_QUOTED: Final = "> " + _QUOTE.replace("\n", "\n> ")
_HEAD: Final = "From: Shop <help@shop.example>\nSent: Monday, 3 November 2026 10:12\nTo: Jane\nSubject: Your order\n\n"
_LEGAL: Final = "CONFIDENTIALITY NOTICE: This e-mail and any attachments are confidential and may be privileged."
_TABLE: Final = json.loads(Path(fold.__code__.co_filename).with_name("chinese.json").read_text("utf-8"))


def _shifted(text: str) -> str:
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text).replace(" ", "\u3000")


def _between(mark: str) -> Typed:
    return mark.join


def _wrapped(form: str) -> Typed:
    return lambda text: form.replace("QUESTION", text).replace("QUOTED", _QUOTED).replace("QUOTE", _QUOTE)


def _named(pattern: str) -> Typed:
    """Return a function that maps a text's letters to those of that name in Unicode, as far as there is one."""

    def styled(letter: re.Match[str]) -> str:
        try:
            return unicodedata.lookup(pattern.format(letter[0].upper()))
        except KeyError:
            return letter[0]

    return lambda text: re.sub("[a-zA-Z]", styled, text)


def _styled(first: int) -> Typed:
    """Return a function that maps a text's letters to the alphabet starting at code point `first`."""
    return lambda text: re.sub("[a-zA-Z]", lambda one: chr(first + ord(one[0].lower()) - ord("a")), text)


_CYRILLIC: Final = str.maketrans("aoc", "\u0430\u043e\u0441")
CHARACTERS: Final[dict[str, Typed]] = {
    "soft hyphens": _between("\u00ad"),
    "zero-width spaces": _between("\u200b"),
    "joiners": _between("\u200d"),
    "non-joiners": _between("\u200c"),
    "word joiners": _between("\u2060"),
    "variation selectors": _between("\ufe0f"),
    "tag characters": lambda text: text + "\U000e0041\U000e007f",
    "a byte order mark": lambda text: "\ufeff" + text,
    "overridden direction": lambda text: f"\u202e{text}\u202c",
    "an isolate": lambda text: f"\u2067{text}\u2069",
    "no-break spaces": lambda text: text.replace(" ", "\u00a0"),
    "blank letters": lambda text: text.replace(" ", "\u3164"),
    "a line separator": lambda text: f"{text}\u2028",
    "full width": _shifted,
    "combining marks": lambda text: "".join(char + "\u0336" * (char.isascii() and char.isalpha()) for char in text),
    "Cyrillic letters among Latin ones": lambda text: text.replace("e", "\u0435").replace("o", "\u043e"),
    "a Cyrillic word": lambda text: re.sub(r"\b[aoc]\b", lambda word: word[0].translate(_CYRILLIC), text),
    "Armenian and Cherokee letters": lambda text: text.replace("o", "\u0585").replace("W", "\u13d4"),
    **{
        name: _styled(first)
        for name, first in {
            "letters in brackets": 0x249C,
            "capitals in brackets": 0x1F110,
            "squared letters": 0x1F130,
            "letters in black circles": 0x1F150,
            "letters in black squares": 0x1F170,
            "circled letters": 0x24D0,
            "bold letters": 0x1D5EE,
        }.items()
    },
    "words of flags' letters": _styled(0x1F1E6),
    **{
        name: _named(f"LATIN {name}")
        for name in ("SMALL LETTER {} WITH STROKE", "SMALL LETTER {} WITH HOOK", "CAPITAL LETTER {} WITH BAR")
    },
    "tortoise shells": _named("TORTOISE SHELL BRACKETED LATIN CAPITAL LETTER {}"),
    "halves of flags": lambda text: re.sub(r"(?<=[^a-z])[a-z]", lambda one: chr(0x1F185 + ord(one[0])), text),
    "Canadian syllabics among Latin letters": lambda text: text.replace("r", "\u1587").replace("d", "\u15ea"),
    "typographic signs": lambda text: text.replace("'", "\u2019").replace("-", "\u2011"),
    "Traditional characters": lambda text: text.translate(
        {ord(to): char for char, to in zip(reversed(_TABLE["from"]), reversed(_TABLE["to"]), strict=True)}
    ),
}
MARKUP: Final[dict[str, str]] = {
    "paragraphs": "<div><p>QUESTION</p></div>",
    "a page": "<html><head><title>Mail</title><style>p{color:red}</style></head><body><p class='x'>QUESTION</p>"
    "<script>pay('by card')</script></body></html>",
    "bold": "<b>QUESTION</b>",
    "entities": "&nbsp;QUESTION&#160;&zwnj;&shy;",
    "escaped twice": "&lt;p&gt;QUESTION&amp;nbsp;&lt;/p&gt;",
    "escaped three times": "&amp;amp;lt;p&amp;amp;gt;QUESTION&amp;amp;lt;/p&amp;amp;gt;",
    "a comment": "<!-- pay by card -->QUESTION",
    "Word": "<![if !mso]><p>QUESTION<o:p></o:p></p><![endif]>",
    "Gmail": "<div dir='ltr'>QUESTION</div><br><div class='gmail_quote'><div>On Mon, 3 Nov 2026 at 10:12, Shop &lt;"
    "<a href='mailto:a@b.example'>a@b.example</a>&gt; wrote:<br></div><blockquote>QUOTE</blockquote></div>",
}
MAILS: Final[dict[str, str]] = {
    "quotation below": "QUESTION\n\nOn Mon, 3 Nov 2026 at 10:12, Shop <help@shop.example> wrote:\nQUOTED",
    "on two lines": "QUESTION\n\nOn Mon, 3 Nov 2026 at 10:12, Shop\n<help@shop.example> wrote:\n\nQUOTED\n>> hi",
    "quotation above": "On Mon, 3 Nov 2026 at 10:12, Shop <help@shop.example> wrote:\nQUOTED\n\nQUESTION",
    "between quotations": "QUOTED\nQUESTION\nQUOTED",
    "Windows lines": "Hello,\r\n\r\nQUESTION\r\n\r\n-- \r\nJane\r\nSent from my iPhone",
    "Original Message": f"QUESTION\n\n-----Original Message-----\n{_HEAD}QUOTE",
    "Outlook": f"QUESTION\n\n________________________________\n{_HEAD}QUOTE",
    "Outlook in bold": "QUESTION\n\n*From:* Shop\n*Sent:* 3 November\n*To:* Jane\n\nQUOTE",
    "forwarded": f"QUESTION\n\n---------- Forwarded message ---------\n{_HEAD}QUOTE",
    "forwarded alone": f"---------- Forwarded message ---------\n{_HEAD}QUESTION",
    "quoted alone": "> QUESTION",
    "signature": f"Hi team,\n\nQUESTION\n\nBest regards\nJane Example\nExample Ltd, 1 Example St\n{_LEGAL}",
    "thanks": "Dear Sir or Madam,\n\nQUESTION\n\nThank you in advance for your help.\n\nThanks,\nJane",
    "Markdown": "> **Shop**\nQUOTED\n\nQUESTION",
    "Dutch Outlook": "QUESTION\n\nMet vriendelijke groet,\nJan\n\nVan: Shop\nVerzonden: 3 november\nAan: J\n\nQUOTE",
    "Italian": "QUESTION\n\nIl giorno lun 3 nov 2026 alle ore 10:12 Shop <a@b.example> ha scritto:\nQUOTED",
    "Apple": "QUESTION\n\n> On Nov 3, 2026, at 10:12, Shop <a@b.example> wrote:\n> \nQUOTED",
    "on three lines": "QUESTION\n\nOn Tue, Nov 3, 2026 at 10:12 AM Shop\n<a@b.example>\nwrote:\n\nQUOTED",
    "disclaimer": f"QUESTION\n\n{_LEGAL}\nIf you are not the intended recipient, delete it.",
    "banner": "CAUTION: This email originated from outside of the organization.\n\nQUESTION",
    "telephone": "QUESTION\n\nSent from my iPhone",
    "Outlook on a telephone": f"QUESTION\n\nGet Outlook for iOS<https://aka.ms/x>\n{_HEAD}QUOTE",
    "telephone on one line": "QUESTION  发自我的iPhone",
    "German": "QUESTION\n\nAm Mo., 3. Nov. 2026 um 10:12 Uhr schrieb Shop <help@shop.example>:\n\nQUOTED",
    "German Outlook": "QUESTION\n\nMit freundlichen Grüßen\nJane\n\nVon: Shop\nGesendet: 3. November\nAn: J\n\nQUOTE",
    "French": "QUESTION\n\nLe lun. 3 nov. 2026 à 10:12, Shop <help@shop.example> a écrit :\n\nQUOTED",
    "Spanish": "QUESTION\n\nEl lun, 3 nov 2026 a las 10:12, Shop (<help@shop.example>) escribió:\n\nQUOTED",
    "Japanese": "QUESTION\n\n2026年11月3日(火) 10:12 Shop <help@shop.example>:\n\nQUOTED",
    "Romanian Outlook": "QUESTION\n\nDe la: Shop\nTrimis: 3 nov 2025\nCătre: J\nSubiect: x\n\nQUOTE",
    "Hungarian Outlook": "QUESTION\n\nFeladó: Shop\nElküldve: 2025. november 3.\nCímzett: J\nTárgy: x\n\nQUOTE",
    "Greek Outlook": "QUESTION\n\nΑπό: Shop\nΣτάλθηκε: 3 Νοε 2025\nΠρος: J\nΘέμα: x\n\nQUOTE",
    "Arabic Outlook": "QUESTION\n\nمن: Shop\nتم الإرسال: 3 نوفمبر\nإلى: J\nالموضوع: x\n\nQUOTE",
    "Hebrew Outlook": "QUESTION\n\nמאת: Shop\nנשלח: 3 נוב 2025\nאל: J\nנושא: x\n\nQUOTE",
    "an Arabic telephone": "QUESTION\n\nأرسلت من الـ iPhone",
    "Japanese Outlook": "QUESTION\n\n差出人: Shop\n送信日時: 2026年11月3日 10:12\n宛先: J\n件名: x\n\nQUOTE",
    "Korean": "QUESTION\n\n2026년 11월 3일 (화) 오전 10:12, Shop <a@b.example>님이 작성:\n\nQUOTED",
    "Russian": "QUESTION\n\nвт, 3 нояб. 2026 г. в 10:12, Shop <a@b.example>:\n\nQUOTED",
    "Chinese": "QUESTION\n\n在 2026年11月3日，10:12，商店 <help@shop.example> 写道：\n\nQUOTE",
    "Chinese Outlook": "QUESTION\n\n发件人: 商店\n发送时间: 2026年11月3日 10:12\n收件人: 简\n主题: 订单\n\nQUOTE",
    "QQ": "QUESTION\n\n------------------ 原始邮件 ------------------\n发件人: 商店;\n\nQUOTE",
    "Taiwan": "QUESTION\n\nShop <a@b.example> 於 2026年11月3日 週二 上午10:12寫道：\n\nQUOTED",
    "Japanese, forwarded": "QUESTION\n\n---------- 転送されたメッセージ ---------\n差出人: Shop\n\nQUOTE",
    "Japanese signature": "お世話になっております\n\nQUESTION\n\nよろしくお願いいたします。\n山田",
    "Chinese Apple, forwarded": "QUESTION\n\n开始转发的邮件：\n\n发件人: 商店\n日期: 2026年11月3日\n\nQUOTE",
    "Proton": "QUESTION\n\nSent with [Proton Mail](https://proton.me/mail/home) secure email.\n\nQUOTED",
    "Outlook on a Japanese telephone": "QUESTION\n\nOutlook for iOS を入手",
    "Outlook on a Chinese telephone": "QUESTION\n\n获取 Outlook for iOS",
    "a help desk's marker": "QUESTION\n\n##- Please type your reply above this line -##\n\nQUOTE",
    "a help desk's marker above": "##- Please type your reply above this line -##\n\nQUESTION",
    "Polish disclaimer": "QUESTION\n\nTa wiadomość jest przeznaczona wyłącznie dla adresata.",
    "Swedish disclaimer": "QUESTION\n\nDetta meddelande är konfidentiellt och endast avsett för mottagaren.",
    "Russian disclaimer": "QUESTION\n\nЭто сообщение и любые вложения являются конфиденциальными.",
    "Chinese telephone": "您好：\n\nQUESTION\n\n谢谢！\n\n发自我的华为手机",
}
WAYS: Final[dict[str, Typed]] = {
    **CHARACTERS,
    **{name: _wrapped(form) for name, form in (MARKUP | MAILS).items()},
}
INDEX: Final = FaqIndex.load()


def test_the_mail_phrases_are_stored_in_normalised_form() -> None:
    phrases = json.loads(Path(fold.__code__.co_filename).with_name("mail.json").read_text("utf-8"))
    every = [phrase for of_a_kind in phrases.values() for phrase in of_a_kind]
    assert [phrase for phrase in every if plain_entry(phrase) != phrase] == []


@pytest.fixture(params=WAYS)
def typed(request: pytest.FixtureRequest) -> Typed:
    return WAYS[request.param]


QUESTIONS: Final = (
    "How do I return an item?",
    "What's the warranty on DR-8830-C?",
    "优惠码怎么用？",
    "12 月买的什么时候前能退",
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_search_finds_a_restyled_text_with_the_same_score(typed: Typed, question: str) -> None:
    found, hits = INDEX.search(question), INDEX.search(typed(question))
    assert hits == found
    assert sureness_of(hits) == sureness_of(found)
    assert AnswerPolicy().decide(typed(question), hits) == AnswerPolicy().decide(question, found)
    assert choose_fallback(typed(question), hits) == choose_fallback(question, found)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_restyled_text_has_the_same_embedding(typed: Typed, question: str) -> None:
    read: list[str] = []

    def encode(texts: list[str]) -> NDArray[np.float32]:
        read.extend(texts)
        return np.zeros((len(texts), 1), np.float32)

    embedder = Embedder.__new__(Embedder)
    vars(embedder)["_encoders"] = {"en": encode}
    embedder([question, typed(question)], "en")
    assert fold(read[0]) == fold(read[1])


@pytest.mark.parametrize(
    ("text", "language"), [("thank you", "en"), ("are you a bot?", "en"), ("谢谢你", "zh"), ("你是机器人吗", "zh")]
)
def test_small_talk_and_its_language_do_not_depend_on_typing(typed: Typed, text: str, language: Language) -> None:
    assert small_talk(typed(text)) == small_talk(text) is not None
    assert detect_language(typed(text)) == language


@pytest.mark.parametrize("text", ["I want to talk to a person", "how do i reach a person", "转人工客服", "找真人"])
def test_a_wish_for_a_person_does_not_depend_on_typing(typed: Typed, text: str) -> None:
    assert wants_person(typed(text))


@pytest.mark.parametrize("text", ["card declined wtf", "Wie lange dauert die Lieferung?", "how do i do that"])
def test_a_foreign_language_is_detected_in_any_typing(typed: Typed, text: str) -> None:
    assert seems_foreign(typed(text)) == seems_foreign(text)


@pytest.mark.parametrize("way", CHARACTERS)
@pytest.mark.parametrize(
    ("language", "question", "answer"),
    [("en", "How long is the warranty?", "Two years."), ("zh", "优惠码怎么用？", "结账时输入优惠码。")],
)
def test_texts_of_a_file_are_found_as_if_typed_plainly(
    tmp_path: Path, way: str, language: Language, question: str, answer: str
) -> None:
    def write(typed: Typed) -> FaqIndex:
        wording = {"question": typed(question), "alternatives": [typed("war" + question)], "answer": typed(answer)}
        records = [{"id": "a", "topic": "t", language: wording}]
        (tmp_path / "faq.json").write_text(json.dumps(records), encoding="utf-8")
        return FaqIndex.load(tmp_path)

    if way in {"a byte order mark", "overridden direction", "an isolate"}:
        with pytest.raises(SettingsError, match="remove it"):
            write(CHARACTERS[way])
        return
    index, plainly = write(CHARACTERS[way]), write(str)
    for asked in (question, answer, question[3:]):
        assert [hit.score for hit in index.search(asked)] == [hit.score for hit in plainly.search(asked)] != []


def test_each_faq_question_is_found_in_traditional_characters() -> None:
    turn = CHARACTERS["Traditional characters"]
    questions = [(entry, text) for entry in INDEX.entries for text in entry.wordings if entry.language == "zh"]
    assert len({entry.id for entry, _ in questions}) == 90
    assert [turn(text) for _, text in questions if INDEX.search(turn(text)) != INDEX.search(text)] == []


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("幾時出貨呀唔該", "什么时候出货呀请问"),
        ("點樣退貨？", "怎么退货？"),
        ("簡訊驗證碼冇收到", "短信验证码没有收到"),
        ("這裏有冇折價券", "这里有没有优惠券"),
        ("一点解释", "一点解释"),
        ("re\u00ad\nfunds", "refunds"),
        ("Ελλάδα and Москва", "Ελλάδα and Москва"),
        ("R&D; 5 < 6 > 4, a <- b", "R&D; 5 < 6 > 4, a <- b"),
        ("I am at <you@shop.example>", "I am at <you@shop.example>"),
        ("<p></p>", "<p></p>"),
        ("Press `<a>` or <menu> on the remote", "Press `<a>` or <menu> on the remote"),
        ("<p>if x <b and c> d, press `<b>` or <i></p>", "if x <b and c> d, press `<b>` or <i>"),
        ("<DIV hidden>a <a HREF=x>b</A><td nowrap width=9>c<br>d<img src=x>", "a b\nc\nd"),
        ("> > nested\n> quotation", "nested\nquotation"),
        ("Hi team,\n> thanks for your order", "Hi team,"),
        ("Shipping.\nFrom: Berlin\nHow long?", "Shipping.\nFrom: Berlin\nHow long?"),
        ("The order came.\nThanks\nBut the lamp is broken", "The order came.\nBut the lamp is broken"),
        ("A question.\n\nThanks,\nJane\n\nPS: Do you ship to Canada?", "A question.\nPS: Do you ship to Canada?"),
        ("Where is it?\n\nJane Example | Sales", "Where is it?"),
        ("A question:\n\nReturn Policy", "A question:\nReturn Policy"),
        ("How&nbsp do I?", "How  do I?"),
        ("ʀᴇꜰᴜɴᴅ", "refund"),
        ("🇭🇪🇱🇵", "help"),
        ("🇭 🇪🇱🇵 and 🇩🇪", "h elp and de"),
        ("Do you ship to 🇩🇪🇫🇷 or 🇬🇧?", "Do you ship to 🇩🇪🇫🇷 or 🇬🇧?"),
        ("🅷🅴🅻🅿 🄷🄴🄻🄿 Ⓗⓔⓛⓟ 🅗🅔🅛🅟 ⒣⒠⒧⒫ 🄗🄔🄛🄟", "help help help help help help"),
        ("my parcel hasnt come, WHERES it", "my parcel hasn't come, WHERE'S it"),
        ("ive paid, cant log in, youre slow, thatll do", "i've paid, can't log in, you're slow, that'll do"),
        ("its id, were well, the want of a tent", "its id, were well, the want of a tent"),
        ("退款要多久？\n\n张伟\n邮箱：zw@163.example\n签名由 网易邮箱大师 定制", "退款要多久？"),
        ("灯坏了\n发自 网易邮箱大师", "灯坏了"),
        ('怎么退货？\n\n------------------ Original ------------------\nFrom: "Shop"\n\nHow do I pay?', "怎么退货？"),
        ("我的灯坏了，能退吗？\n\n转人工", "我的灯坏了，能退吗？\n转人工"),
        ("可以退吗?\n\n多少天", "可以退吗？\n多少天"),
        ("Where is my order?\n\nAgent", "Where is my order?\nAgent"),
        ("Where is my order?\n\nHuman please", "Where is my order?\nHuman please"),
        ("Where is my order?\n\n人工", "Where is my order?\n人工"),
        ("我下单了。发自德国的包裹，邮箱填错了怎么改", "我下单了。发自德国的包裹，邮箱填错了怎么改"),
        (
            "Where is it?\n**Original order number: 12345**\nAnd?",
            "Where is it?\n**Original order number: 12345**\nAnd?",
        ),
        ("Two questions:\n-- original box lost?\n-- how long?", "Two questions:\n-- original box lost?\n-- how long?"),
        ("Sent from my iPhone", "Sent from my iPhone"),
        ("-- \nJane", "Jane"),
        ("Where is it?\n-- \nJane\nhttps://shop.example/?id=7", "Where is it?"),
        ("The lamp broke\n--\nCan I return it?", "The lamp broke\nCan I return it?"),
        ("It came.\n—\nIt broke.\n__\n\nCan I return it? Thanks", "It came.\nIt broke.\nCan I return it? Thanks"),
        ("Broken\n--\nReturn it?\n--\nJane", "Broken\nReturn it?"),
        ("灯坏了\n--\n能退货吗？", "灯坏了\n能退货吗？"),
        ("Broken\n--\nJane\n> Is it new?", "Broken"),
        ("Broken\n--\nJane\n\nOn Mon, 3 Nov 2026 at 10:12, Shop <a@b.example> wrote:\nIs it new?", "Broken"),
        ("I bought these:\n> 2 lamps\nCan I return them?", "I bought these:\nCan I return them?"),
        (f"{_LEGAL}", f"{_LEGAL}"),
    ],
)
def test_a_text_is_normalised_as_listed(text: str, read: str) -> None:
    assert plain(text) == read


@given(st.text(alphabet=st.sampled_from("ab1@<>&;:/!-[]p \n>\u00ad優唔点")) | st.text())
def test_any_text_is_normalised_and_none_becomes_empty(text: str) -> None:
    read = plain(text)
    assert plain(read) is read
    assert "\r" not in read
    if any(char.isascii() and char.isalpha() for char in text) and not set("<&") & set(text):
        assert read.strip()


@pytest.mark.parametrize(
    "piece",
    [
        "<a ",
        "<!--",
        "<",
        "</",
        "<![",
        "<?",
        "<p><!--",
        "<a b=",
        "&#",
        "唔",
        "Aа",
        "1 a:\n",
        "on 1 ",
        "\n",
        ">\n",
        "a\n--\n",
        "a?\n--\n",
    ],
)
@pytest.mark.timeout(5)
def test_a_text_built_to_be_slow_is_read_quickly(piece: str) -> None:
    for text in (piece * 6_000, "x<br>" + piece * 6_000):
        fold(text)


@pytest.mark.parametrize("tag", ["script", "style", "title", "template", "head"])
def test_an_unclosed_element_hides_no_text(tag: str) -> None:
    assert plain(f"<b>It</b> says <{tag}> error. How do I pay?") == f"It says <{tag}> error. How do I pay?"
