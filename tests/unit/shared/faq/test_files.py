"""An invalid FAQ file is refused in one line that names the entry, the fault and the remedy; no content causes another
error.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from shared.errors import SettingsError
from shared.faq import FaqIndex
from shared.faq.entries import read_entries
from shared.faq.live import LiveFaq
from shared.faq.texts import MAX_ANSWER_CHARS, MAX_QUESTION_CHARS, fault_of, shown
from shared.settings import FaqSettings


def record(answer: str = "There.", **changes: Any) -> dict[str, Any]:
    """An entry with this change; `None` removes a part."""
    wording = {"question": "Where is it?", "alternatives": ["where"], "answer": answer} | changes
    worded = {name: value for name, value in wording.items() if value is not None}
    return {"id": "where", "topic": "orders", "en": worded}


def refusal(path: Path, content: bytes | list[Any]) -> str:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(SettingsError) as caught:
        FaqIndex.load(path)
    assert caught.value.code == "invalid_setting"
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert str(path) in message
    return message


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[", "truncated"),
        (b"[]", "holds no entry"),
        (b'[{"id": "a"}]', "topic"),
        (b"[" * 200_000, ""),
        ([record(), record()], '"where" occurs twice'),
        ([record(), record() | {"id": "other"}], '"where" and "other" both ask "Where is it?"'),
        ([record() | {"id": "a\nb\x00"}], ""),
        ([record() | {"fr": {}}], "fr"),
        ([record(alternatives=[""])], "empty text"),
        *(
            ([record(url=url)], "write https:// and a page")
            for url in (
                "javascript:alert(1)",
                "/help",
                "https://",
                "https:///x",
                "https://a b",
                "http://x\n",
                "https://x" * 300,
            )
        ),
        *(
            ([record(url=url)], "a URL must not contain a user or a password")
            for url in ("https://u:secret@shop.example/a", "http://us@x")
        ),
        ([record(alternatives=None)], "alternatives"),
        ([record() | {"en": None}], 'neither "en" nor "zh"'),
        ([record(question="why " * MAX_QUESTION_CHARS)], f"the most is {MAX_QUESTION_CHARS}"),
    ],
)
def test_an_invalid_file_is_refused_in_one_line(tmp_path: Path, content: bytes | list[Any], complaint: str) -> None:
    assert complaint in refusal(tmp_path / "bad.json", content)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("See <b>here</b>.", 'the HTML "<b>"'),
        ('Look <a href="https://shop.example/x">here</a>.', "a link as its address"),
        ("One<br/>two", '"<br/>"'),
        ("<p>There.</p>", '"<p>"'),
        ("<!-- later --> There.", '"<!--"'),
        ("Harbor &amp; Pine", '"&amp;"'),
        ("30&nbsp;days", '"&nbsp;"'),
        ("It&#8217;s there", '"&#8217;"'),
        ("There\x00.", "U+0000"),
        ("There\x1b[31m.", "U+001B"),
        ("abc\u202etxt.exe", "U+202E"),
        ("na\ufffdve", "a character that was lost"),
        ("a" * 100_000, "100000 characters"),
        ("   \n ", "empty text"),
    ],
)
def test_a_text_unfit_for_display_is_refused(tmp_path: Path, answer: str, complaint: str) -> None:
    message = refusal(tmp_path / "faq.json", [record(answer)])
    assert complaint in message
    assert '"where" (en)' in message
    assert len(message) < 300


@pytest.mark.parametrize(
    "answer",
    [
        "Harbor & Pine",
        "5 < 6 > 4",
        "a <- b",
        "R&D; more",
        "x <y and z> y",
        "Press `<a>` on the remote",
        "Press `<b>`, then `</b>`",
        "Press <menu>, then <input> or <i>",
        "if x <b and c> d",
        "if x `<b and c>` d",
        "Close it by </b>",
        "tabs\tand\nlines\r\n",
        "<you@shop.example>",
    ],
)
def test_characters_that_only_resemble_html_are_accepted(tmp_path: Path, answer: str) -> None:
    (tmp_path / "faq.json").write_text(json.dumps([record(answer)]), encoding="utf-8")
    assert read_entries(tmp_path)[0].answer == answer


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "gbk", "shift-jis", "latin-1"])
def test_another_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    text = "är" if encoding == "latin-1" else "落"
    content = json.dumps([record(text)], ensure_ascii=False).encode(encoding)
    refusal(tmp_path / "faq.json", content)


def test_a_utf_8_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "faq.json").write_bytes(json.dumps([record()]).encode("utf-8-sig"))
    assert len(read_entries(tmp_path / "faq.json")) == 1


def test_invisible_characters_are_removed_and_reported_in_one_line(tmp_path: Path) -> None:
    """Joiners inside emoji stay."""
    path = tmp_path / "faq.json"
    path.write_text(
        json.dumps([record("The war\u00adran\u00adty\u200b \u2764\ufe0f 👩\u200d🔧.", question="War\u2060ranty?")])
    )
    with capture_logs() as lines:
        entry = LiveFaq(FaqSettings(path=path)).index.entries[0]
    assert (entry.question, entry.answer) == ("Warranty?", "The warranty \u2764\ufe0f 👩\u200d🔧.")
    dropped = {"path": str(path), "characters": "U+00AD x 2, U+200B x 1, U+2060 x 1"}
    assert lines == [{"event": "faq_characters_dropped", "log_level": "warning", **dropped}]


def test_an_answer_cites_the_page_of_its_entry(tmp_path: Path) -> None:
    (tmp_path / "faq.json").write_text(
        json.dumps(
            [record(url="https://shop.example/help#where"), record(question="Who?", alternatives=[]) | {"id": "b"}]
        )
    )
    assert [entry.as_grounding().url for entry in read_entries(tmp_path / "faq.json")] == [
        "https://shop.example/help#where",
        None,
    ]


@pytest.mark.parametrize("others", [[], [record()]])
def test_entries_that_no_question_finds_are_reported(tmp_path: Path, others: list[Any]) -> None:
    path = tmp_path / "faq.json"
    path.write_text(json.dumps([record(question="Сколько?", alternatives=["???"]) | {"id": "price"}, *others]))
    with capture_logs() as lines:
        LiveFaq(FaqSettings(path=path))
    assert [(line["event"], line["entries"]) for line in lines] == [("faq_entries_not_found", ["price"])]


@pytest.mark.parametrize("typed", ["where IS it", "Where is\u00a0it？", "Wh\u00adere is it?"])
def test_questions_that_differ_only_in_typing_are_duplicates(tmp_path: Path, typed: str) -> None:
    message = refusal(tmp_path / "faq.json", [record(), record(question=typed) | {"id": "other"}])
    assert '"where" and "other" both ask' in message


def test_an_answer_that_resembles_a_mail_is_found_by_all_its_words(tmp_path: Path) -> None:
    answer = "Write:\n> your size\n-- \nFrom: your postcode\nDate: 3 May\n\nSent from my wardrobe"
    (tmp_path / "faq.json").write_text(json.dumps([record(answer)]))
    index = FaqIndex.load(tmp_path)
    assert [word for word in ("size", "postcode", "wardrobe") if not index.search(word)] == []


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ([record(alternatives=7)], "alternatives"),
        ({}, "array"),
        ([record() | {"english": {}}], "english"),
        ([{"id": "a"}], "topic"),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_expected_form(tmp_path: Path, content: Any, what: str) -> None:
    message = refusal(tmp_path / "faq.json", content)
    assert what in message
    assert '"en": {"question": "…", "alternatives": [], "answer": "…"}' in message


def test_a_folder_without_json_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("[]", encoding="utf-8")
    for path, said in (
        (tmp_path, r"holds no \.json file; make one: replyline faq read"),
        (tmp_path / "none.json", r"none\.json: No such file"),
    ):
        with pytest.raises(SettingsError, match=said):
            read_entries(path)


def test_the_files_of_a_folder_form_one_faq(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([record()]), encoding="utf-8")
    assert FaqIndex.load(tmp_path).search("在哪里") == [], "a language that the shop does not offer"
    chinese = {"question": "几点开门？", "alternatives": [], "answer": "九点。"}
    (tmp_path / "b.json").write_text(json.dumps([{"id": "open", "topic": "t", "zh": chinese}]), encoding="utf-8")
    index = FaqIndex.load(tmp_path)
    assert [entry.id for entry in index.entries] == ["where", "open"]
    assert index.search("几点开门")[0].entry.answer == "九点。"


def test_entries_without_terms_are_not_found_and_harmless(tmp_path: Path) -> None:
    (tmp_path / "marks.json").write_text(json.dumps([record("!", question="???", alternatives=[])]), encoding="utf-8")
    assert FaqIndex.load(tmp_path).search("where") == []


def test_the_same_question_in_two_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([record()]), encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps([record() | {"id": "other"}]), encoding="utf-8")
    with pytest.raises(SettingsError, match='"where" and "other" both ask "Where is it\\?"'):
        read_entries(tmp_path)


def test_more_entries_than_the_limit_are_refused_by_their_number(tmp_path: Path) -> None:
    records = [
        record(question=f"Where is {number}?", alternatives=[]) | {"id": f"e{number}"} for number in range(20_001)
    ]
    (tmp_path / "faq.json").write_text(json.dumps(records), encoding="utf-8")
    with pytest.raises(SettingsError, match=r"holds 20001 entries, .* at most 20000"):
        read_entries(tmp_path)
    (tmp_path / "faq.json").write_text(json.dumps(records[1:]), encoding="utf-8")
    assert len(read_entries(tmp_path)) == 20_000


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: json.dumps([record(text)]).encode()))
def test_any_content_is_accepted_or_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "faq.json"
    path.write_bytes(content)
    message = ""
    try:
        entries = read_entries(path)
    except SettingsError as error:
        message = str(error)
    else:
        assert all(fault_of(entry.answer, MAX_ANSWER_CHARS) is None for entry in entries)
        FaqIndex(entries).search(entries[0].answer)
    assert len(message.splitlines()) <= 1
    assert not message or str(path) in message


@given(st.text(max_size=300))
def test_a_text_is_logged_on_one_short_line(text: str) -> None:
    line = shown(text)
    assert len(line.splitlines()) == 1
    assert len(line) <= 8 * 61 + 2
