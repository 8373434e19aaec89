"""A clear wish for a person is granted; a message without it, or only about people, is answered."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.people.handoff_wish import MAX_CHARS, accepts_offer, wants_person
from shared.faq import FaqIndex
from tests.support.samples.faq_questions import (
    CHINESE_OFF_TOPIC,
    CHINESE_QUESTIONS,
    ENGLISH_OFF_TOPIC,
    ENGLISH_QUESTIONS,
    UNSEEN_OFF_TOPIC,
    UNSEEN_QUESTIONS,
)

WISHES: Final = (
    "客服，谢谢", "客服，拜托", "客服，麻烦了", "我的灯坏了，能退吗？\n\n转人工",
    "I want 2 talk 2 some1", "any chance of speaking to somebody in support?",
    "Would you mind passing me on to a colleague", "I'd like a callback from a person",
    "please let a human look at this", "could you get somebody on the line for me", "I prefer talking to people",
    "talk to sales person", "Can I get some human help?", "would like to be connected with an associate",
    "叫你们客服出来", "麻煩找專人跟我聯絡", "请转售后人工", "Would you transfer me to a person",
    "would you please put me through to your manager?", "can u get a human for me",
    "Just let me speak with somebody already", "I'm asking to be put through to a person",
    "Can a person answer this please", "where do I find a real person to talk to", "i need to reach a human being",
    "connect to a live person", "can we switch to a real agent", "Could I be transferred to customer support?",
    "I want my case handled by a human", "give me a phone call from your staff",
    "I would like to file a complaint with your manager", "please can i be connected to an agent",
    "I'd like to speak to whoever is in charge", "where's the human", "human agent needed",
    "requesting human assistance", "help from a human please", "I need somebody from your support team to contact me",
    "who do I call to talk to a person", "i only talk to humans", "你们的人工在哪", "请找一位真人客服",
    "能请专人联系我吗", "想和你们店长谈谈", "Can we speak to a person please", "I want the support team",
    "May I be connected with customer care please", "Would a human be able to help me?",
    "can you forward my question to a person", "帮我转到人工座席", "我要求人工服务", "叫经理来听电话",
    "我想找客服聊聊",
    "put a human on", "can i get a human on the line", "could you please connect me to a member of your team?",
    "could someone from your team get in touch with me?", "may i have a word with a manager",
    "i want to complain to the owner", "talk to a h.u.m.a.n", "ask a colleague to contact me", "let a human take over",
    "someone please contact me", "hand this over to a human", "transfer my case to an agent", "I want a human response",
    "I would like to be called back by a person", "who can i talk to about this?", "帮我接通人工", "我要跟你们领导谈",
    "人工客服在哪里", "別再用機器人了", "找你们老板来",
    "Please escalate to a human",
    "Is anyone there I can talk to?",
    "能不能让人工来",
    "幫我接專員",
    "I want to talk to a person", "i want to speak with a human.", "I'd like to talk to a real person please",
    "I’d rather speak to someone from your team", "I would like to chat with an agent about my refund",
    "I need to speak to somebody", "Can I talk to a human?", "can i please speak to a representative",
    "Could I speak with your manager?", "Why can't I talk to a real person?", "How can I talk to a human being?",
    "how do i reach a person", "Let me speak to an actual person!", "Connect me to an agent",
    "please transfer me to customer service", "put me through to a human", "get me a human",
    "Give me a real person now", "Is there someone I can talk to?", "is there a person who I can speak to",
    "talk to a human", "Please talk to a person", "Speak to a representative", "human please", "agent",
    "Real person!", "I need a human", "I want a real person to help me", "I want a real person not a bot",
    "This does not help. I want a person!", "I don't want a bot, I want to talk to a person",
    "Where is my parcel? And can I talk to a human about it?", "I am not happy with this, let me talk to a person",
    "I  WANT\tTO   TALK to A PERSON", "转人工", "转人工客服", "請轉人工", "我要转人工！", "我 要 转 人工", "人工",
    "人工客服", "真人客服，谢谢", "客服", "我要人工客服", "帮我转接人工", "我想和真人说话", "我要跟真人聊",
    "能不能转人工？", "可以帮我转到人工吗", "怎么联系人工客服", "怎么转人工", "我想跟你们经理谈",
    "我不要机器人，我要人工", "这个回答没用。找真人！", "让我和客服人员沟通", "请帮我转接客服", "给我一个真人",
    "I wanna talk to a human", "need human", "real person pls", "transfer me to live support",
    "speak to a real person", "operator", "agent please", "live chat please", "customer service",
    "I'd like a live agent", "Hello, human support now please", "no more bots!", "有没有真人", "有真人吗？",
    "找客服", "換真人", "來個活人", "人工在吗", "找你们经理", "有沒有真人客服", "𝐡𝐮𝐦𝐚𝐧 please",
    "Hi,\n\nI want to talk to a person\n\nBest regards\nJane", "<p>operator</p>",
    "agent pls", "talk 2 human", "TALK TO A HUMAN!!", "talk_to_human", "chat w/ a person", "call a human 🙏",
    "can a real human please contact me", "have someone call me", "gimme a real person", "i want a supervisor",
    "hi i ordered a lamp last week and it hasn't come can i talk to somebody about it please", "id like to talk to sb",
    "is it possible to speak to a person", "speak to \u0430 human",
    "&amp;lt;p&amp;gt;talk to a human&amp;lt;/p&amp;gt;",
    "I'd like to escalate", "zhuǎn réngōng", "叫個人嚟同我講", "轉駁客服", "駁去真人", "想同職員傾", "请客服联系我",
    "让客服给我打电话", "能找个人跟我说话吗", "跟真人对话", "我想揾人工客服",
    "can i pls talk to someone real", "is there anyone there I can talk to?", "could someone call me back",
    "can you get a person to look at this", "not a robot please", "would like to speak with an actual person",
    "get me a human or I'm cancelling", "电话客服", "h u m a n", "r.e.p.r.e.s.e.n.t.a.t.i.v.e", "tlk 2 a person",
    "speek to humen", "aggent", "🅷🆄🅼🅰🅽",
    "we need a human", "is there a human here?", "我要同真人傾", "你們有真人客服嗎",
    "Can you put a real human on?", "can someone real help me", "hand me off to an agent", "pass me to a colleague",
    "forward me to a human agent", "can you escalate my ticket to a manager?", "I'd like someone to call me back",
    "please call me back", "anyone human there?", "are there any real people I can talk to?", "get me a manager",
    "someone from your staff please", "I don't want to talk to a bot", "I'm tired of talking to robots",
    "I need someone to help me with my order",
    "让你们主管跟我说", "不想跟机器人聊", "找個真人同我講", "请给我安排一个客服", "安排专员联系我", "能不能来个人",
    "有沒有真人可以講話", "有真人可以聊聊吗", "客服在吗", "你好，客服在吗？", "谢谢，转人工",
    "需要人工介入", "让你们经理来", "叫老板出来", "人工客服在线吗", "申请人工",
    "is there anyone human I can speak with", "I'd rather deal with a real person", "let me talk to your boss",
    "Is a person available to chat?", "are any agents available right now?", "is anyone available to talk",
    "can I deal with a human instead", "is somebody real there", "any real person here?", "is a human there",
    "Anybody real I can chat with?", "are there any humans around", "is there an agent available",
    "I prefer dealing with humans", "get your boss", "人呢", "打电话给我", "请回电", "人在哪", "打给我", "给我回个电话",
)  # fmt: skip
NONE: Final = (
    "Can people look in through the blinds?", "Can a person help assemble it?", "Is my mail read by a person?",
    "Will a consultant help me in the store?", "let people read my review", "people needed to lift it?",
    "The driver was looking for people", "human touch sensor lamp", "switch to a team account",
    "does the camera let me talk to people", "Is the chair reviewed by people?", "Can a person handle it alone?",
    "I'm fed up with this machine", "Can people join your newsletter without an account?",
    "Was this made by a real person or a machine?", "Is the mannequin human size?", "Do you sell human hair wigs?",
    "My agent will pick it up for me", "Who is your manager?", "Does a person have to sign for the parcel?",
    "I spoke to someone yesterday and they said Friday", "Can I send it as a gift to another person?",
    "Do you ship to an agent in China?", "No, I don't need a person", "Can someone else collect my order?",
    "Is your support team nice", "Can I talk to my neighbour about getting the parcel", "I am a real person",
    "a human wrote this", "someone stole my parcel", "the delivery agent was rude",
    "Will a person deliver it on Sunday?", "does the warranty cover a live-in agent", "人工皮革可以清洗吗",
    "这是人工做的吗", "经理说可以退货", "客服几点上班", "你们客服电话是多少", "人工费多少", "我跟客服说过了",
    "不用转人工", "这个是真人模特吗", "真人拍摄的照片吗", "客服昨天说三天到", "不需要人工",
    "Can the agent at the post office hold it?", "I want a person-sized mirror",
    "Who do I talk to about sizes at the shop in Berlin?", "Do you have a showroom with staff?",
    "I talked to a human yesterday, thank you", "does someone need to be home", "Do you offer human resources desks",
    "thanks, no human needed", "i don't need an agent", "how is a complaint handled by a manager",
    "would a person of 120 kg be OK on it", "what help do I get from the staff when I collect",
    "do you like talking to people?", "I like talking to you", "the sales person told me it was oak",
    "How long does it take to get an answer from support?", "你们人工组装吗", "人工费怎么算", "送货员是真人吗",
    "客服的工作时间", "这款是人工缝制", "店长推荐的是哪款", "专员上门安装多少钱", "我昨天找了客服",
    "人工打磨的木头吗", "真人兔子毛吗", "转运要多久", "Does the lamp come with a human-readable manual?",
    "I was connected to someone but the line dropped when asking about delivery",
    "Is the manager's special still on?", "Our team needs 12 desks", "Is the support beam included?",
    "The person at the store was helpful", "How do I connect the speaker to the TV", "Can I switch to the blue one",
    "I need a chair for a tall person", "which person do I address the return label to",
    "do I need to talk to an agent to return something", "I want to talk about my order",
    "can a human fit in the box", "Do agents get a discount?", "who is the person in the picture",
    "Can staff use the employee discount online", "人工草坪可以放室外吗", "我朋友是客服", "经理同意退款了",
    "真人大小的玩偶", "客服电话几点开始", "可以转寄吗", "转账付款行吗", "人工智能音箱有吗",
    "让人工智能音箱来一首歌", "I am not a robot, where is my order?", "Can someone else sign for my package?",
    "Could someone call this parcel mine by mistake?", "Do you have sizes S M L X in red?",
    "我接专员的电话没人理",
    "I don't want to talk to a person", "I do not want to speak with an agent", "I'd rather not talk to a person",
    "no need to connect me to an agent", "please don't transfer me to a human",
    "Do I have to talk to a person to return it?", "do i need to speak to an agent first",
    "Should I talk to a representative about this?", "If I want to talk to a person, when are you open?",
    "which person designed this?", "Did a real person pack my parcel?", "Are you a person or a bot?",
    "Am I talking to a human?", "is this a real person", "I talked to a person yesterday",
    "I was told to talk to an agent of the courier", "the person at the door took my parcel",
    "I need a person-sized blanket", "I want a human hair brush", "I need a personal invoice", "my agent says hi",
    "Can another person pick up my order?", "Can I send it to another person?",
    "Which people work in the Hamburg shop?", "do you have a customer service", "what does human mean",
    "how many people fit on the sofa", "do you support apple pay", "Can I contact you?",
    "I want to return it without talking to a person", "人工智能是什么？", "这是人工做的吗", "人工服务费多少钱",
    "需要人工安装吗", "不用转人工", "我不想转人工", "不要给我转人工", "别转人工", "我不需要人工客服", "你是真人吗",
    "是不是人工回答", "人工客服几点上班？", "这是真人模特吗", "我想找真人模特拍的照片", "如果转人工要等多久？",
    "需要人工吗", "我们三个人一起买有优惠吗", "", "   ", "?!",
    "I don't want a person", "no human please", "not an agent", "I don't need live support", "do you have live chat",
    "what does the operator do", "is the customer service good", "不要客服", "有没有真人模特", "yes", "可以", "好的",
    "> I want to talk to a person\nWhere is my parcel?",
    "will a person call me before delivery?",
    "have someone else sign for it", "can another human wear it", "when can I meet your designer", "换个人收货可以吗",
    "I want someone to call me before delivery", "I need somebody to help me carry it upstairs",
    "call me when it ships", "don't call me", "how do I escalate", "give me staff discount", "find me a manager desk",
    "I need someone to sign for it", "I don't like the robot vacuum", "someone from the team told me to wait",
    "should someone contact me?", "安排送货上门", "能找个人代收吗", "不要机器人吸尘器",
    "can somebody call me when the parcel arrives?", "someone please contact me when it ships", "经理椅有货吗",
    "can someone ring me before they deliver", "transfer this coupon to an agent", "hand this over to my neighbour",
    "may i have a word engraved on it", "let a human hair wig dry how", "can a member of your team install it?",
    "put a human figure on the cake?", "who can sign for it?", "找老板椅", "别用机器人吸尘器洗地毯",
    "老板你好，礼品卡怎么使用，谢谢老板", "客服在吗？我想问下可以寄到国外吗", "谢谢老板，祝生意兴隆", "谢谢客服，再见",
    "找个人帮我签收可以吗", "客服没有联系我", "we want a manager's chair", "call the person who delivers",
    "is anyone available to deliver on Sunday?", "is a person available to install it?", "is anyone there?",
    "are agents available on Sundays", "is the real person on the photo you", "送货前打电话给我", "给我打电话的是谁",
    "can I deal with the return at the shop", "快递员打电话给我了", "有人吗这个尺码穿过", "I need a boss chair",
)  # fmt: skip


@pytest.mark.parametrize("text", WISHES)
def test_a_clear_wish_for_a_person_is_detected(text: str) -> None:
    assert wants_person(text)


@pytest.mark.parametrize("text", NONE)
def test_a_message_without_a_wish_is_not_detected(text: str) -> None:
    assert not wants_person(text)


def test_shop_questions_are_left_to_the_model() -> None:
    """All questions that the FAQ was fitted and tested on, and its own, except those about contacting a person."""
    asked = [*ENGLISH_QUESTIONS, *CHINESE_QUESTIONS, *UNSEEN_QUESTIONS]
    texts = [text for text, entry in asked if "contact" not in str(entry)]
    texts += [*ENGLISH_OFF_TOPIC, *CHINESE_OFF_TOPIC, *UNSEEN_OFF_TOPIC]
    entries = [entry for ranking in FaqIndex.load(None)._rankings.values() for entry in ranking.entries]
    texts += [text for entry in entries if entry.topic != "contact" for text in (entry.question, *entry.alternatives)]
    assert len(texts) > 500
    assert [text for text in texts if wants_person(text)] == []


def test_a_long_text_is_no_plain_wish() -> None:
    longest = "I want to talk to a person. ".ljust(MAX_CHARS, "x")
    assert wants_person(longest)
    assert not wants_person(longest + "x")


PARTS = (
    *("i ", "want ", "to ", "talk ", "please ", "a ", "real ", "person"),
    *("not ", "can ", "我", "要", "人工", "不", "转", " , "),
)


@given(st.lists(st.sampled_from(PARTS), max_size=400) | st.text(max_size=300).map(list))
def test_any_text_is_judged(parts: list[str]) -> None:
    assert wants_person("".join(parts)) in {True, False}


def test_a_shop_adds_its_own_phrases() -> None:
    own = ("Beam me up", "找掌柜")
    assert [
        text for text in ("beam me up, please!", "请找掌櫃", "Beam\u00ad me up") if not wants_person(text, own)
    ] == []
    assert not wants_person("beam me up")
    assert not wants_person("don't beam me up", own)
    assert not wants_person("beam me up a coupon", own)
    assert not wants_person("please", (" ", "!"))


@pytest.mark.parametrize("piece", ["要", "转接", "好", "please ", "yes ", "ok ok "])
@pytest.mark.timeout(5)
def test_an_ambiguous_text_is_parsed_quickly(piece: str) -> None:
    for text in (piece * 20, piece * 900 + "x"):
        wants_person(text + "退")
        accepts_offer(text + "退")
