"""What a page's HTML gives as plain text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.operate.faq.blocks import Asked, Block, Heading, Text
from ops.operate.faq.html import read_html

Q = "Can I swap it?"
A = "Yes, within 30 days."
FAQ_PAGE = (
    '<script type="application/ld+json">{"@type": "FAQPage", "mainEntity": [{"@type": "Question", "name": "Can I swap '
    'it?", "acceptedAnswer": {"@type": "Answer", "text": "<p>Yes, within <b>30</b>&nbsp;days.</p>"}}]}</script>'
)
SPANS = (
    "<table><tr><th rowspan=2>To</th><th colspan=2>Post</th></tr><tr><th>1 kg</th><th>5 kg</th></tr>"
    "<tr><td rowspan=2>Oslo</td><td>1 €</td><td>2 €</td></tr><tr><td colspan=2>free</td></tr></table>"
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
        FAQ_PAGE.replace('"Question"', '["Thing", "https://schema.org/Question"]'),
        FAQ_PAGE.replace("}}]}", "}},]}").replace("swap it", "swap\nit"),
        FAQ_PAGE.replace('ld+json">', 'ld+json; charset=utf-8">/*<![CDATA[*/').replace("</script>", "/*]]>*/</script>"),
        FAQ_PAGE.replace("<b>30</b>&nbsp;", "&amp;lt;b&amp;gt;30&amp;lt;/b&amp;gt;&amp;nbsp;"),
        f'<div itemtype="https://schema.org/Question"><h3 itemprop="name">{Q}</h3><p itemprop="text">{A}</p></div>',
        f'<h2><button data-bs-toggle="collapse" data-bs-target="#a">{Q} +</button></h2><div id="a">{A}</div>',
        f"<p><strong>{Q}</strong><br>{A}</p>",
        f"<div>{Q}</div><div>{A}</div>",
        f"<p>Q: {Q} A: {A}</p>",
        f"<p><b>Q:</b> {Q}</p><p><b>A:</b> {A}</p>",
        f"<ul><li>{Q}<p>{A}</p></li></ul>",
        f"<details><summary>Returns</summary><details><summary>{Q}</summary>{A}</details></details>",
        f"<p>{Q}</p><button aria-controls=a>Show answer</button><div id=a>{A}</div>",
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
        ("<p><strong>Fees</strong></p>", Heading(6, "Fees")),
        ("<div role=heading aria-level=3>Fees ¶</div>", Heading(3, "Fees")),
        ("<p>19<sup>99</sup> € or 4,90<sup>1</sup> €</p>", Text("19.99 € or 4,90 €")),
        ("<p><del>79 €</del> 59 €</p>", Text("59 €")),
        ("<p>By <a href='//x.de'>mail</a><a href='HTTPS://x.de/y'> now</a></p>", Text("By mail now (HTTPS://x.de/y)")),
        ("<ol start=4><li>Pack</li></ol>", Text("4. Pack")),
        ("<ul>Also:<li>a</li><ul><li>b</li></ul></ul>", Text("Also:\n- a\n  - b")),
        (SPANS, Text("Oslo: Post 1 kg 1 €, Post 5 kg 2 €\nOslo: Post 1 kg free, Post 5 kg free")),
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


@pytest.mark.parametrize(
    "html",
    [
        "<html class=no-cookies><body class='cookies-not-set'>{}</body></html>",
        "<body><main class=has-breadcrumbs>{}</main></body>",
        "<body><form action=/><h2>yes</h2>{}</form></body>",
        "<body><p>one</p><p role=alert>two</p>{}</body>",
        "<body><main> </main><div>{}</div></body>",
        "<body><div id=cookie-cutters>{}</div></body>",
        "<body><article>teaser</article><div>{}</div></body>",
        "<body><div><header><h1>yes</h1></header>{}</div></body>",
    ],
)
def test_no_content_is_taken_for_what_is_around_it(html: str) -> None:
    assert read_html(html.format("<p>In 30 days.</p>")).blocks[-1] == Text("In 30 days.")


def test_what_a_page_shows_counts_more_than_its_data() -> None:
    html = f"{FAQ_PAGE}<h2>{Q}</h2><p>Within 14 days.</p>"
    assert read_html(html).blocks == (Heading(2, Q), Text("Within 14 days."))


@pytest.mark.parametrize("piece", ["<dl><dt>Is it so?<dd>", "<ul><li>a<ul>", "<b><i>", "<div id=a><a aria-controls=a>"])
def test_nested_markup_is_read_once(piece: str) -> None:
    """It took twice as long for each level."""
    assert len("".join(map(repr, read_html(piece * 60 + "the end").blocks))) < 60_000


def test_the_main_part_is_read_alone_with_its_own_header() -> None:
    html = "<body><div>around</div><main><header><h1>Returns</h1></header><p>In 30 days.</p></main></body>"
    assert read_html(html).blocks == (Heading(1, "Returns"), Text("In 30 days."))


@pytest.mark.parametrize("around", ["div", "main", "body"])
def test_a_button_inside_what_it_opens_is_read_as_text(around: str) -> None:
    html = f"<{around} id='a'><button aria-controls='a'>Sizes</button><p>In 30 days.</p></{around}>"
    assert read_html(html).blocks == (Text("Sizes"), Text("In 30 days."))


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


def test_a_heading_of_ornaments_is_read_in_no_time() -> None:
    """It was searched from each of its characters on: one of 40 KB for minutes."""
    (heading, _) = read_html(f"<h1>{'+ ' * 100_000}x +</h1><p>An answer.</p>").blocks
    assert isinstance(heading, Heading)
    assert heading.text.endswith("+ x")
