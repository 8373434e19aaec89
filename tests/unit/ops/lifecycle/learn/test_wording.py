"""A customer's words are published only after a person has edited them."""

import pytest

from ops.lifecycle.learn.candidates import Candidate, Rated
from ops.lifecycle.learn.commands import _asked_for, _check_wording
from ops.lifecycle.learn.personal import is_quoted, personal_data
from shared.conversation.corrections import BadAnswer
from shared.errors import SettingsError
from shared.wire.session_key import SessionKey

WORDS = "I am CUSTOMER J, order 88123, phone +43 660 5550199: can you engrave spoons?"


def candidate(*questions: str) -> Candidate:
    bad = [
        BadAnswer(response_id=f"resp_{n}", question=each, answer="No.", source="x", rated_unix_ms=n)
        for n, each in enumerate(questions)
    ]
    return Candidate(rated=tuple(Rated(session=SessionKey("shop", "s"), bad=each) for each in bad), sources=1)


def test_without_a_question_nothing_is_confirmed_where_no_terminal_asks() -> None:
    with pytest.raises(SettingsError, match="--question is missing"):
        _asked_for(candidate(WORDS))


@pytest.mark.parametrize(
    ("text", "customer"),
    [
        (WORDS, WORDS),
        ("do you ENGRAVE  spoons", "Do you engrave spoons?"),
        ("Do you engrave spoons? And forks?", "Hi! Do you engrave spoons? Thanks"),
        ("Dear all: I was sold a broken one, and so on", "hello. i was sold a broken one"),
        ("Why?", "why"),
        ("你们可以刻字吗？", "你们可以刻字吗"),
        ("请问你们可以刻字吗？", "你好。你们可以刻字吗？谢谢"),
    ],
)
@pytest.mark.parametrize("option", ["--question", "--answer"])
def test_a_customers_own_sentence_is_refused(text: str, customer: str, option: str) -> None:
    assert is_quoted(text, customer)
    question, answer = (text, "Yes.") if option == "--question" else ("Can spoons be engraved?", text)
    with pytest.raises(SettingsError, match=rf"{option} .* customer's own sentence"):
        _check_wording(candidate("Another one?", customer), question, answer)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Is +43 660 5550199 my number?", "telephone"),
        ("Is 0660 5550199 yours?", "5550199"),
        ("我的电话是13812345678吗?", "13812345678"),
        ("Did you mail jane@example.org?", "jane@example.org"),
        ("Where is order 88123?", "88123"),
        ("Where is my order no. AX-1234-99?", "AX-1234-99"),
        ("Invoice number: 2024-117?", "2024-117"),
        ("订单号 2024123456 到哪里了?", "2024123456"),
        ("I am Jane Doe, can you engrave?", "Jane Doe"),
        ("I'm Jane, can you engrave?", "Jane"),
        ("my name is jane: can you engrave?", "jane"),
        ("我叫王小明，可以刻字吗？", "王小明"),
        ("Do you deliver to 12 High Street?", "12 High Street"),
        ("Is 4111 1111 1111 1111 charged?", "4111 1111 1111 1111"),
        ("Is 13800138000 my number?", "13800138000"),
        ("Is １３８００１３８０００ my number?", "13800138000"),
        ("Is 1 3 8 0 0 1 3 8 0 0 0 my number?", "1 3 8 0 0 1 3 8 0 0 0"),
        ("Is 138.0013.8000 my number?", "138.0013.8000"),
        ("Is 138*0013*8000 my number?", "138"),
        ("Is 1\u200b3\u200b800138000 my number?", "13800138000"),
        ("我的电话是一三八零零一三八零零零", "一三八零零一三八零零零"),
        ("Is DE89370400440532013000 charged?", "89370400440532013000"),
        ("Is passport X1234567 enough?", "X1234567"),
        ("Did you mail jane(at)example.org?", "jane"),
        ("Did you mail jane at example dot org?", "jane at example dot org"),
        ("Did you mail jane @ example.org?", "jane @ example.org"),
        ("Did you mail jane@ex\u00adample.org?", "jane@example.org"),
        ("订单 AB１２３４ 到哪里了?", "AB1234"),
        ("I am called Jane, can you engrave?", "Jane"),
        ("Name : Jane, can you engrave?", "Jane"),
        ("Is @jane_roe your account?", "@jane_roe"),
        ("Does WeChat ID: jane_roe88 work?", "jane_roe88"),
        ("加我微信 jane_roe88 可以吗？", "jane_roe88"),
        ("Why is https://shop/orders?mail=jane%40example.org empty?", "jane@example.org"),
    ],
)
def test_personal_data_in_a_question_is_named_and_refused(text: str, named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        _check_wording(candidate(WORDS), text, "Yes.")


def test_an_answer_may_have_the_shops_own_numbers_and_not_the_customers() -> None:
    _check_wording(candidate(WORDS), "Can spoons be engraved?", "Yes, for $5. Call +43 1 5550100.")
    with pytest.raises(SettingsError, match=r"--answer .* 5550199"):
        _check_wording(candidate(WORDS), "Can spoons be engraved?", "We called +43 660 5550199.")


@pytest.mark.parametrize(
    "text",
    [
        "Can you engrave spoons?",
        "Does the AX-3391-B come in size 42?",
        "Is delivery free above 100 EUR, within 30 days?",
        "Are 100000 points enough?",
        "Can I order at example.com?",
        "Is it open on 2026-11-28 10:00?",
        "Are sizes 36, 37, 38, 39, 40 and 41 in stock?",
        "I am happy with it. May I order 12 more?",
        "你们可以在勺子上刻字吗？",
        "Can I pay by WeChat Pay, or Instagram Shopping?",
        "可以用微信支付吗？微信 2 分钟能退款吗？",
        "Is it 2 @ $5 each?",
    ],
)
def test_the_shops_own_wording_is_taken(text: str) -> None:
    assert personal_data(text) == []
    _check_wording(candidate(WORDS, "Hi! Why? Do it now please", "? ? ? 1", "May I?"), text, "Yes.")
