"""A model's reasoning is never shown, in any form or split; all other text passes as it arrives."""

import pytest

from shared.model.tokenizer import Tokenizer
from tests.support.builders.worker import answer
from workers.answer.thoughts import Habit, Thoughts

ANSWER = "You can return it within 30 days."
THOUGHT = "Okay, the customer is annoyed; I must hide that the shop had complaints. "
FORMS = [
    f"<think>{THOUGHT}</think>\n\n{ANSWER}",
    f"\n<think>\n\n</think>\n{ANSWER}",
    f"<thinking>{THOUGHT}</thinking>{ANSWER}",
    f"<thought>{THOUGHT}</thought> {ANSWER}",
    f"<REASONING>{THOUGHT}</REASONING>{ANSWER}",
    f"<think>{THOUGHT}</think><think>{THOUGHT}</think><answer>{ANSWER}</answer>",
    f"<seed:think>{THOUGHT}</seed:think>{ANSWER}",
    f"[THINK]{THOUGHT}[/THINK]{ANSWER}",
    f"\u25c1think\u25b7{THOUGHT}\u25c1/think\u25b7{ANSWER}",
    f"<|begin_of_thought|>{THOUGHT}<|end_of_thought|>{ANSWER}",
    f"<|START_THINKING|>{THOUGHT}<|END_THINKING|><|START_RESPONSE|>{ANSWER}<|END_RESPONSE|>",
    f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{ANSWER}<|return|>",
    f"<|channel|>final<|message|>{ANSWER}",
    f"<|thought_start|>{THOUGHT}<|thought_end|>{ANSWER}",
    f"<think_never_used_51bc>{THOUGHT}</think_never_used_51bc>{ANSWER}",
    f"<\u601d\u8003>{THOUGHT}</\u601d\u8003>{ANSWER}",
    f'<details type="reasoning" done="true">{THOUGHT}</details>{ANSWER}',
    f"<|inner_prefix|>{THOUGHT}<|inner_suffix|>{ANSWER}",
    f"<|channel>thought\n{THOUGHT}<channel|>{ANSWER}",
    f"<think >{THOUGHT}</think >{ANSWER}",
    f"<thinking_process>{THOUGHT}</thinking_process>{ANSWER}",
    f"<unused94>thought\n{THOUGHT}<unused95>{ANSWER}",
    f"<|begin_of_thought|>{THOUGHT}<|end_of_thought|><|begin_of_solution|>{ANSWER}<|end_of_solution|>",
    f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|channel|>final <|constrain|>text<|message|>{ANSWER}<|return|>",
    *(
        f"<{name}>{THOUGHT}</{name.partition(' ')[0]}>\n{ANSWER}"
        for name in ("analysis", "plan", "denken", "réflexion", "chain-of-thought", "CoT", 'thought type="a b"', "推理")
    ),
    f"<plan>{THOUGHT}</plan><critique>{THOUGHT}</critique><final_answer>{ANSWER}</final_answer>",
    f"<response>{ANSWER}</response>",
    *(
        f"{lt}think{gt}{THOUGHT}{lt}/think{gt}\n{lt}answer{gt}{ANSWER}{lt}/answer{gt}"
        for lt, gt in (
            "＜＞",
            "〈〉",
            "‹›",
            "《》",
            ("\\<", "\\>"),
            ("&lt;", "&gt;"),
            ("&#60;", "&#62;"),
            ("\\u003c", "\\u003E"),
        )
    ),
    f"<think>{THOUGHT}\n<think>{THOUGHT}</think>{THOUGHT}</think>\n{ANSWER}",
    f"<think>\n<think>{THOUGHT}</think>\n\n{ANSWER}",
    f"<think>{THOUGHT}<think>{THOUGHT}</think>{THOUGHT}</think>\n{ANSWER}",
    f"<think>\n<think>\n<think>{THOUGHT}</think>{THOUGHT}</think>{THOUGHT}</think>\n{ANSWER}",
    f"<reasoning>{THOUGHT}<think>{THOUGHT}</think>{THOUGHT}</reasoning>\n{ANSWER}",
    f"◁think▷{THOUGHT}◁think▷{THOUGHT}◁/think▷{THOUGHT}◁/think▷{ANSWER}",
    f"[THINK]{THOUGHT}[THINK]{THOUGHT}[/THINK]{THOUGHT}[/THINK]{ANSWER}",
    f"&lt;think&gt;{THOUGHT}&lt;think&gt;{THOUGHT}&lt;/think&gt;{THOUGHT}&lt;/think&gt;{ANSWER}",
    f"&amp;lt;think&amp;gt;{THOUGHT}&amp;lt;/think&amp;gt;{ANSWER}",
    f"<think>{THOUGHT}&lt;/think&gt;{ANSWER}",
    f"&lt;think&gt;{THOUGHT}&lt;&#47;think&gt;{ANSWER}",
    f"\\u003cthink\\u003e{THOUGHT}\\u003c\\/think\\u003e{ANSWER}",
    f"< think >{THOUGHT}< / think >\n{ANSWER}",
    f"<\u200bthink>{THOUGHT}</\u200bthink>{ANSWER}",
    f"<｜begin▁of▁thinking｜>{THOUGHT}<｜end▁of▁thinking｜>{ANSWER}",
    f"<think/>{ANSWER}",
    f"<!-- think: {THOUGHT} -->{ANSWER}",
    f"```thinking\n{THOUGHT}\n```\n{ANSWER}",
    f"<|think|>{THOUGHT}<|end|><|begin|>assistant<|content|>{ANSWER}",
    f"[思考]{THOUGHT}[/思考]{ANSWER}",
    f"【思考】{THOUGHT}【/思考】{ANSWER}",
    *(f"{ANSWER}{token}" for token in ("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<end_of_turn>", "</s>")),
]
BARE = [  # their marks are words
    f"analysisThe user asks. {THOUGHT}assistantfinal{ANSWER}",
    f"Here is my thought process: {THOUGHT} Here is my response: {ANSWER}",
    f"Here are my reasoning steps:\n{THOUGHT}\n[BEGIN FINAL RESPONSE]\n{ANSWER}[END FINAL RESPONSE]",
    f"【思考过程】{THOUGHT}\n【回答】\n{ANSWER}",
    f"**Thinking:** {THOUGHT}\n\n**Answer:** {ANSWER}",
    f"# Reasoning\n{THOUGHT}\n# Final Answer\n{ANSWER}",
    f"Thought: {THOUGHT}\nFinal Answer: {ANSWER}",
]
UNOPENED = [
    f"{thought}\n</think>\n\n{ANSWER}"
    for thought in (
        THOUGHT,
        "Der Kunde fragt nach der Rückgabe. Ich muss kurz antworten.",
        "D'accord, le client demande un retour.",
        "Vale, el usuario pregunta por una devolución.",
        "ユーザーは返品について尋ねています。",
    )
]
ORDINARY = [
    ANSWER,
    "If a < b, see [1] and <b>this</b>: <3 to <joe@shop.example>, or [Open Orders].",
    "Okay, you can return it. Open Orders.",
    "Fill in <reason> below, and List<Reason>.",
    "I think <think about it> is our slogan.",
    "Write <think> into the field.\nThen send it.",
    "Open <details><summary>More</summary>so</details>, or [Reasoning] there.",
    "  The customer service answers <everything>.\n",
    "<Your-Name> goes on the label, then the address.",
    "<b>Returns</b> are free.",
    "R&D & <3: 5 &lt; 6, 《红楼梦》, C:\\u and ‹so›.",
    "Thinking of a gift? Reasoning about sizes is hard.",
    "Reasoning: a refund takes a week.",
    "Der Kunde zahlt nur den Rückversand.",
    "Use `code`, ``two`` or\n```python\nthink(1)\n``` and <!-- a note -->.",
    "5 < 6, &amp;lt; is a sign, [begin here] and [End of sale], \\/ or </ b.",
    "Say\nAnalysisFoo, or\nThoughts: none.",
]


def shown(text: str, size: int, habit: Habit) -> str:
    thoughts = Thoughts(habit)
    return "".join(thoughts.feed(text[at : at + size]) for at in range(0, len(text), size)) + thoughts.finish()


@pytest.mark.parametrize(
    ("form", "size"),
    [*((form, size) for form in FORMS for size in (1, 3, 1_000)), *((form, size) for form in BARE for size in (3, 8))],
)
@pytest.mark.parametrize("habit", ["unknown", "plain"])
def test_no_thought_is_shown(form: str, habit: Habit, size: int) -> None:
    assert shown(form, size, habit) == ANSWER


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize("habit", ["unknown", "opened"])
@pytest.mark.parametrize("text", UNOPENED)
def test_a_thought_that_the_prompt_opened_is_not_shown(text: str, habit: Habit, size: int) -> None:
    assert shown(text, size, habit) == ANSWER


@pytest.mark.parametrize("size", [1, 5, 1_000])
@pytest.mark.parametrize("habit", ["unknown", "plain", "opened"])
@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text: str, habit: Habit, size: int) -> None:
    assert shown(text, size, habit) == text


@pytest.mark.parametrize("habit", ["unknown", "plain"])
def test_ordinary_text_is_not_delayed(habit: Habit) -> None:
    thoughts = Thoughts(habit)
    assert [thoughts.feed(piece) for piece in ("You ", "can", " return <", " 5 items")] == [
        "You ",
        "can",
        " return ",
        "< 5 items",
    ]


@pytest.mark.parametrize("text", [*(form.removesuffix(ANSWER) for form in FORMS[:4]), "<think>hm", "[THI", THOUGHT])
def test_of_an_answer_that_is_cut_within_a_thought_nothing_is_shown(text: str) -> None:
    thoughts = Thoughts("unknown")
    assert "".join(thoughts.feed(piece) for piece in text).strip() + thoughts.finish(whole=False) == ""


def test_a_tag_in_an_answer_says_nothing_about_how_a_server_begins_its_answers() -> None:
    thoughts, text = Thoughts(), "Use <details>x</details> and <reason>x</reason>."
    assert thoughts.feed(text) + thoughts.finish() == text
    assert not thoughts.unopened


@pytest.mark.parametrize("form", [f"{ANSWER} <think>{THOUGHT}</think>", f"{ANSWER}\n<reasoning>{THOUGHT}</reasoning>"])
def test_a_thought_after_text_is_not_shown(form: str) -> None:
    assert shown(form, 3, "plain").strip() == ANSWER


def test_reasoning_of_our_own_engines_is_removed_too() -> None:
    own = answer("r", stops=("Stop",))
    for token in Tokenizer.byte_level().encode_text("<think>Stop here?</think>\nYes.Stop"):
        own.add(token)
    own.finish()
    assert own.text == "Yes."


@pytest.mark.parametrize("piece", ["&lt;", "&lt;&a;", "&amp;", "<think>", "< ", "`", "[begin ", "<!--", "\\u003"])
@pytest.mark.timeout(10)
def test_a_text_built_to_be_slow_is_read_quickly(piece: str) -> None:
    for size in (1, 50):
        shown(piece * 1_500, size, "unknown")
