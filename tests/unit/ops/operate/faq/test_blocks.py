"""What a page's HTML gives as plain text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.operate.faq.blocks import Asked, Block, Heading, Text, read_html

Q = "Can I swap it?"
A = "Yes, within 30 days."
FAQ_PAGE = (
    '<script type="application/ld+json">{"@type": "FAQPage", "mainEntity": [{"@type": "Question", "name": "Can I swap '
    'it?", "acceptedAnswer": {"@type": "Answer", "text": "<p>Yes, within <b>30</b>&nbsp;days.</p>"}}]}</script>'
)


@pytest.mark.parametrize(
    "html",
    [
        FAQ_PAGE,
        FAQ_PAGE.replace("[{", '{"@graph": [{').replace("}}]}", "}}]}}"),
        f"{FAQ_PAGE}<details><summary>{Q}</summary>{A}</details>",
        f"<details><summary><h3>{Q}</h3></summary><p>{A}</p></details>",
        f"<dl><dt>{Q}</dt><dd>{A}</dd></dl>",
        f"<dl><div><dt>{Q}</dt><dd><p>{A}</p></dd></div></dl>",
        f'<button aria-controls="a">{Q}</button><div id="a" hidden>{A}</div>',
        f'<h3><button aria-expanded="false" aria-controls="a:1"><span>{Q}</span></button></h3><div id="a:1">{A}</div>',
        f'<ul><li><h3><a aria-controls="a" href="#a">{Q}</a></h3><div id="a"><p>{A}</p></div></li></ul>',
    ],
)
def test_a_marked_question_is_read_with_its_answer_once(html: str) -> None:
    assert read_html(f"<html><body><main>{html}</main></body></html>").blocks == (Asked(Q, A),)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<h2>Fees <small>net</small></h2>", Heading(2, "Fees net")),
        ("<p>By <b>bus</b>,\n or on&nbsp;foot.<br>Free.</p>", Text("By bus, or on foot.\nFree.")),
        ("<p>Ask <a href='https://help.shop/x'>here</a>.</p>", Text("Ask here (https://help.shop/x).")),
        ("<p>Ask <a href='/help'>here</a>.</p>", Text("Ask here.")),
        ("<p><a href='mailto:a@shop.de'>a@shop.de</a></p>", Text("a@shop.de")),
        ("<ul><li>One<ul><li>in it</li></ul></li><li>Two</li></ul>", Text("- One\n  - in it\n- Two")),
        ("<ol><li>Pack</li><li><p>Send</p></li></ol>", Text("1. Pack\n2. Send")),
        (
            "<table><tr><th>To</th><th>Fee</th><th>Days</th></tr><tr><td>Oslo</td><td>4.90 €</td><td>3</td></table>",
            Text("Oslo: Fee 4.90 €, Days 3"),
        ),
        ("<table><tr><th>Weight</th><td>3 kg</td></tr></table>", Text("Weight: 3 kg")),
        ("<dl><dt>Weight</dt><dd>3 kg</dd></dl>", Text("Weight: 3 kg")),
        ("<pre>a\n  b</pre>", Text("a\n  b")),
        ("words <i>without</i> a paragraph", Text("words without a paragraph")),
        ("<p>1 &lt; 2 &amp; 3</p>", Text("1 < 2 & 3")),
    ],
)
def test_a_block_is_plain_text(html: str, expected: Block) -> None:
    assert read_html(html).blocks == (expected,)


@pytest.mark.parametrize(
    "html",
    [
        "<nav><p>no</p></nav>",
        "<footer>no <nav>no</nav></footer>",
        "<form><p>no</p></form>",
        "<script>no</script>",
        '<script type="application/ld+json">{"@type": "Question", no</script>',
        '<div class="cookie-banner">no<div class="cookie-text">no</div></div>',
        '<div role="navigation">no</div>',
        "<template>no</template>",
        "<header><h1>no</h1></header>",
        "<!-- no -->",
    ],
)
def test_what_is_around_the_content_is_not_read(html: str) -> None:
    assert read_html(f"<body>{html}<p>yes</p>{html}</body>").blocks == (Text("yes"),)


def test_the_main_part_is_read_alone_with_its_own_header() -> None:
    html = "<body><div>around</div><main><header><h1>Returns</h1></header><p>In 30 days.</p></main></body>"
    assert read_html(html).blocks == (Heading(1, "Returns"), Text("In 30 days."))


@pytest.mark.parametrize("around", ["div", "main", "body"])
def test_a_button_inside_what_it_opens_is_read_as_text(around: str) -> None:
    html = f"<{around} id='a'><button aria-controls='a'>Open</button><p>In 30 days.</p></{around}>"
    assert read_html(html).blocks == (Text("Open"), Text("In 30 days."))


TAGS = (
    "div",
    "p",
    "ul",
    "li",
    "ol",
    "table",
    "tr",
    "td",
    "th",
    "dl",
    "dt",
    "dd",
    "details",
    "summary",
    "h2",
    "a",
    "b",
    "nav",
)
PIECES = st.one_of(
    st.sampled_from([f"<{tag}>" for tag in TAGS] + [f"</{tag}>" for tag in TAGS]),
    st.sampled_from(
        ["<a aria-controls=x>", "<div id=x>", "<h3 id=x><button aria-controls=x>", "<br>", "&amp;", "word "]
    ),
    st.text(max_size=3),
)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_page_stops_the_reading_or_gives_an_empty_text(html: str) -> None:
    for block in read_html(html).blocks:
        assert all(
            text.strip() for text in ([block.question, block.answer] if isinstance(block, Asked) else [block.text])
        )
