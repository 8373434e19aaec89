"""A greeting, thanks or a farewell is returned; a message that also asks something is answered."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.faq import FaqIndex, detect_language
from shared.faq.entries import LANGUAGES
from shared.faq.small_talk import MAX_CHARS, Kind, courtesy, small_talk, without_courtesies
from shared.faq.words.fold import plain
from tests.support.samples.faq_questions import CHINESE_QUESTIONS, ENGLISH_QUESTIONS, UNSEEN_QUESTIONS

MORE: dict[Kind, str] = {
    "greeting": (
        "gm|gm!|sup|wassup|whassup|morning all|hey man|yo dude|good evening team|"
        "long time no see|u there?|you there|hello? anybody?|hi bot|merry christmas|"
        "happy new year|在吗|在么|早啊|早上好呀|新年快乐|节日快乐|圣诞快乐|哈喽在吗|有人吗|吃了吗|你好呀|heyy"
    ),
    "goodbye": (
        "gn|gtg|g2g|got to go|i have to go|later|laters|ttys|cu|nighty night|我先走了|先走了|"
        "待会再聊|回头再说|拜拜咯|回聊|talk later|catch you later|下次聊|see tomorrow"
    ),
    "thanks": (
        "ty|tyvm|thank u sm|ta|much obliged|appreciated|thanks mate|thank you kindly|谢谢啊|"
        "感谢感谢|3q|thx a lot|多谢了|谢谢亲|thks|ty so much|"
        "thank you so so much|you've been very helpful"
    ),
    "noted": (
        "nvm|brb|np|k|kk|one sec|one moment please|just a sec|hang on|hold on|wait|"
        "wait a minute|let me check|let me think|ic|oic|rofl|all good|im good|"
        "i'm all set|yw|you're welcome|no prob|oops|jk|just kidding|test|testing|"
        "testing 123|sweet|brilliant|wow|right|true|exactly|of course|nah|whatever|"
        "forget it|算了|算了吧|稍等|稍等一下|等一下|等会儿|等等|我看看|我想想|我先看看|没关系|"
        "不客气|不谢|对不起|不好意思|抱歉|打扰了|哇|牛|"
        "厉害了|给力|哎呀|额|呃|测试|测试一下|随便|不用了|不需要|没了|sry|my apologies|hm ok|it's fine|i understand"
    ),
    "upset": (
        "ugh|smh|bruh|you suck|you're stupid|you are an idiot|dumb|moron|i hate you|"
        "i hate this|are you kidding me|omfg|this is dumb|not helpful at all|你真笨|你好笨|笨蛋|"
        "傻|你是傻子吗|智障|白痴|废物|蠢|服了|我服了|醉了|唉|你真没用|什么破玩意|神经病|"
        "你太蠢了|答非所问|screw you|waste of time"
    ),
    "puzzled": "say what|what??|really?|seriously?|真的吗|是吗|啊这|怎么回事|idk|i don't know|不知道|不清楚|eh?",
    "who": (
        "你几岁|are you human?|你是真人吗|who made you|how old are you|are you chatgpt|is this a real person|"
        "do you have a name|你是人还是机器"
    ),
}
ASKED = (
    "are you there on sunday|wait time?|how long do I wait|test results|"
    "do you test them|later delivery|sup board|right size?|sweet potato|true to size|"
    "correct address|is it correct|let me check my order|one minute noodles|"
    "forget my password|牛皮|牛皮沙发|要等一下吗|等多久|等下发货吗|不懂怎么退|"
    "我不知道怎么退货|额外费用|随便退吗|真的假的|"
    "对不起怎么退货|这个会傻吗|可以测试吗|生日快乐蛋糕|新年快乐贺卡|不需要发票吗|"
    "先看看货可以吗|没关系税吗|8|88|666|ta da lamp|cups|"
    "hold my order|i hate waiting for my parcel|waste of time returning this|why|为什么|"
    "how come|是吗这个多少钱|你们真的吗|抱歉我的订单|哇这个多少钱|wait, where is my order?|brb where is it|"
    "np what about refunds|test order|imported from?|are you open|any|"
    "see you later alligator mug|catch basin|is this real oak|do you have a name tag|talk to you about refunds|"
    "ok and the shipping?|cheers glasses set|早上送货吗|谢谢卡有吗|"
    "anyone can return?|gm car|are you serious about refunds|u can ship?"
)


COURTESIES = (
    "{} Thanks!", "{} thx", "{} thank you very much in advance, bye", "Hi, {}", "Hello there! {}", "hey team {}",
    "sorry to bother you, {}", "Good morning. I hope you are well. {} Kind regards", "could you please tell me {}",
    "{} thx in advance xx",
    "quick question: {}", "Dear Sir or Madam,\n{}\nBest regards", "i was wondering {} pls", "Happy new year! {}",
    "请问{}谢谢", "你好，{}", "麻烦问一下，{}", "您好，打扰一下，{}谢谢您", "亲，在吗？{}", "客服你好！{}辛苦了",
    "不好意思想请教一下{}",
    "老板好，{}拜托了", "唔該，{}", "請問一下{}感謝您！", "{} 祝生意兴隆",
)  # fmt: skip
INDEX = FaqIndex.load()


@pytest.mark.parametrize("courtesy", COURTESIES)
@pytest.mark.parametrize(
    "question", ["How do I cancel my order?", "How long does a refund take?", "怎么取消订单？", "运费是多少？"]
)
def test_courtesies_around_an_entrys_question_do_not_count(courtesy: str, question: str) -> None:
    found = INDEX.search(courtesy.format(question), k=1, language=detect_language(question))
    assert (found[0].entry.question, found[0].sureness) == (question, 1.0)
    assert small_talk(courtesy.format(question)) is None


@pytest.mark.parametrize(
    "text",
    [
        "Can I return it for 100 days. True?", "Morning delivery possible?", "感恩节有折扣吗", "你好像发错货了",
        "What does a thank-you card cost?", "早上下单下午能到吗", "可以寄到国外吗", "要多久", "ok, and if it is late?",
        "I do not know my size", "AX-3391-B: 9.99?", "are you a bot? Where do you get this?",
    ],
)  # fmt: skip
def test_what_is_no_courtesy_is_searched(text: str) -> None:
    assert without_courtesies(text) == plain(text)


@pytest.mark.parametrize("text", [*COURTESIES, "thanks", "谢谢老板", "你好，请问一下", "sorry to bother you", "hi!"])
def test_courtesies_alone_are_small_talk_and_are_not_cut_to_nothing(text: str) -> None:
    text = text.replace("{}", "")
    assert without_courtesies(text).strip() == plain(text).strip()
    assert small_talk(text) in {"thanks", "greeting", "goodbye"} or "wondering" in text or "tell me" in text


@pytest.mark.parametrize("piece", ["thanks ", "hi, ", "谢谢", "请问", "please " * 3, ",", "急", "a. "])
@pytest.mark.timeout(5)
def test_courtesies_without_end_take_little_time(piece: str) -> None:
    for end in ("", "x", "退"):
        assert without_courtesies(piece * (590 // len(piece)) + end)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Hi!", "greeting"),
        ("hello there, how are you?", "greeting"),
        ("Good morning", "greeting"),
        ("你好，在吗？", "greeting"),
        ("hi 你好", "greeting"),
        ("Ｈｅｌｌｏ", "greeting"),
        ("Thank you so much for your help", "thanks"),
        ("that was very helpful, thanks", "thanks"),
        ("好的，谢谢", "thanks"),
        ("ok thanks, bye!", "goodbye"),
        ("再见", "goodbye"),
        ("Danke schön!", "thanks"),
        ("Muchas gracias", "thanks"),
        ("Bonjour", "greeting"),
        ("hallo, wo ist mein Paket", None),
        ("are you a bot?", "who"),
        ("What's your name?", "who"),
        ("你是机器人吗", "who"),
        ("你是機械人嗎", "who"),
        ("你係咪真人", "who"),
        ("你係真人定機械人", "who"),
        ("早晨", "greeting"),
        ("掰掰", "goodbye"),
        ("拜托", "thanks"),
        ("早晨器", None),
        ("ok", "noted"),
        ("👍", "noted"),
        ("明白了", "noted"),
        ("haha nice one", "noted"),
        ("Great, that's all I wanted to know", "noted"),
        ("太好了，我就想问这些", "noted"),
        ("今天过得怎么样", "greeting"),
        ("hi, how do I return a lamp?", None),
        ("thanks. and the refund?", None),
        ("how are returns handled", None),
        ("你好，怎么退货", None),
        ("high", None),
        ("yes", "noted"),
        ("yes please", "noted"),
        ("是的", "noted"),
        ("可以", "noted"),
        ("不好", None),
        ("好的，怎么退货", None),
        ("这个质量不错吗", None),
        ("is that all the sizes", None),
        ("??", "puzzled"),
        ("？", "puzzled"),
        ("...", "puzzled"),
        ("……", "puzzled"),
        ("📦❓", "puzzled"),
        ("what do you mean?", "puzzled"),
        ("没看懂", "puzzled"),
        ("😡😡😡", "upset"),
        ("😭", "upset"),
        ("👎", "upset"),
        (":-(", "upset"),
        ("wtf!", "upset"),
        ("太差了", "upset"),
        ("SOS", "urgent"),
        ("🆘", "urgent"),
        ("!!!", "urgent"),
        ("Help me please!", "urgent"),
        ("救命！！", "urgent"),
        ("👍🏽", "noted"),
        (":)", "noted"),
        ("❤️", "thanks"),
        ("🙏", "thanks"),
        ("👋", "greeting"),
        *((text, "greeting") for text in ("Hiii there!", "hellooo", "hi bot", "g'day", "早", "喂？")),
        *(
            (text, "thanks")
            for text in ("thank u", "thanksss", "thanx", "thanks in advance", "谢谢老板", "唔該晒", "<3")
        ),
        *((text, "goodbye") for text in ("byebye", "see u", "bye for now", "再會", "明天见")),
        *(
            (text, "noted")
            for text in ("okkk", "gotcha", "sounds good", "no worries", ":D", "^_^", "+1", "懂了", "原来如此")
        ),
        *(
            (text, "upset")
            for text in ("this sucks", "worst service ever", "so annoying", "T_T", "D:", "骗子", "我很生气")
        ),
        *((text, "urgent") for text in ("can you help me?", "asap", "❗❗❗", "‼️", "急！", "快来人")),
        *((text, "puzzled") for text in ("wat", "sorry?", "confused", "🫤", "¯\\_(ツ)_/¯", "没明白", "啊？")),
        *((text, "who") for text in ("r u a bot", "is this a bot?", "who am I talking to", "真人还是机器人")),
        *(
            (text, None)
            for text in ("8", "XL", "size M?", "3", "can you help me return it", "sorry for the delay", "早上送吗")
        ),
        *((text, kind) for kind, texts in MORE.items() for text in texts.split("|")),
        *((text, None) for text in ASKED.split("|")),
        ("what is the return period", None),
        ("help me return a lamp", None),
        ("帮我退货", None),
        ("可以退货吗", None),
        ("要多久", None),
        ("  ", None),
        ("", None),
    ],
)
def test_small_talk_is_distinguished_from_questions(text: str, kind: Kind | None) -> None:
    assert small_talk(text) == kind


def test_no_shop_question_is_small_talk() -> None:
    questions = [text for text, _ in (*ENGLISH_QUESTIONS, *CHINESE_QUESTIONS, *UNSEEN_QUESTIONS)]
    assert [text for text in questions if small_talk(text)] == []


@given(st.lists(st.sampled_from(["hi", "thanks", "bye", "ok", "你好", "谢谢", " ", "!", "的", "a"])).map("".join))
def test_a_long_text_is_no_small_talk_and_a_short_one_takes_little_time(text: str) -> None:
    assert small_talk(text + "x" * MAX_CHARS) is None
    small_talk(text)


@pytest.mark.parametrize(
    "piece", ["哈", "嗯", "哦", "好的", "辛苦了", "谢谢你", "好吧", "good bye ", "no thanks ", "haha "]
)
@pytest.mark.timeout(10)
def test_a_text_with_many_possible_splits_takes_little_time(piece: str) -> None:
    times = (MAX_CHARS - 1) // len(piece)
    assert small_talk(piece * times) is not None
    assert small_talk(piece * times + "退") is None


@pytest.mark.parametrize("kind", get_args(Kind))
def test_each_kind_is_returned_in_each_language(kind: Kind) -> None:
    assert len({courtesy(kind, language) for language in LANGUAGES}) == len(LANGUAGES)
