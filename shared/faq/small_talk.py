"""Recognise greetings, thanks, anger, a cry for help and the like by their words or signs alone; and the reply. Pure.

A text is small talk if nothing else is in it: "Hi, thanks! How do I return a lamp?" is a question. The reply is one
fixed line, in the text's language: polite, short, and true of a machine.
"""

import re
import unicodedata
from typing import Final, Literal

from shared.faq import Language, detect_language
from shared.faq.words.fold import fold, plain

MAX_CHARS: Final = 80
"""What is longer says something."""

Kind = Literal["who", "urgent", "upset", "puzzled", "goodbye", "thanks", "greeting", "noted"]
IN_NEED: Final[frozenset[Kind]] = frozenset(("urgent", "upset", "puzzled"))
"""Who writes this may need a person."""

# The first kind that occurs is the one that is answered: "ok thanks, bye" is a farewell.
_ENGLISH: Final[dict[Kind, str]] = {
    "who": r"(?:who|what) are you|whats your name|what is your name|what can you (?:do|help (?:me )?with)"
    r"|are you (?:an? )?(?:real )?(?:bot|chatbot|robot|human|ai|machine|person|real)"
    r"|am i (?:talking|speaking|chatting) (?:to|with) (?:an? )?(?:real )?(?:bot|robot|human|machine|person)",
    "goodbye": r"(?:good )?bye(?: bye)?|goodbye|see (?:you|ya)(?: later| soon| around)?|cya|good night|take care"
    r"|farewell|have a (?:nice|good|great|lovely) (?:day|evening|night|one|weekend)",
    "thanks": r"(?:many |no )?thanks?(?: you)?(?: (?:so|very) much| a lot| a bunch| again)?"
    r"(?: for (?:your|the|all your) (?:help|time|answer|reply)| for helping(?: me)?)?"
    r"|thankyou|thx|tysm|ty|cheers|much appreciated|i appreciate (?:it|that)"
    r"|(?:that|this|it) (?:helps|helped|was (?:very |really )?helpful)(?: a lot)?|(?:very|so|really) helpful",
    "urgent": r"(?:i )?(?:need )?help(?: me)?|sos|urgent|emergency|mayday",
    "upset": r"wtf|ffs|gr{2,}|a+rgh+|omg|(?:you are |youre |youre so |so |its |this is |thats )?(?:useless|ridiculous"
    r"|frustrating|unacceptable|a joke|bullshit|terrible|awful)|(?:stupid|useless|dumb|bad) (?:bot|robot|machine)"
    r"|i(?: a)?m (?:so |very |really )?(?:angry|annoyed|upset|frustrated|mad|furious)|fuck(?: you| off)?|shit|damn",
    "puzzled": r"huh|pardon(?: me)?|eh|what(?: do you mean| does (?:that|this|it) mean)?|come again"
    r"|(?:please )?(?:say|repeat)(?: (?:that|it|this))?(?: again)?"
    r"|(?:sorry )?i (?:dont|do not|didnt|did not) (?:understand|get)(?: (?:you|that|it|this))?|im confused",
    "greeting": r"hi|hello|hey|heya|hiya|howdy|greetings|good (?:morning|afternoon|evening|day)"
    r"|how (?:are|r) (?:you|u)(?: doing)?(?: today)?|how(?:s| is) (?:it going|your day)|whats up|nice to meet you"
    r"|(?:is )?any(?:one|body) (?:there|here)|are you there",
    "noted": r"yes|yeah|yep|yup|(?:yes )?please(?: do)?|go ahead"
    r"|ok|okay|k|alright|all right|great|perfect|good|nice|cool|awesome|fine|got it|i see|understood|sure"
    r"|wonderful|excellent|super|lovely|no|nope|never ?mind|nothing else|(?:ha){2,}|lol|funny"
    r"|nice one|good (?:one|job|bot)"
    r"|(?:thats|that is|that was) (?:all|it|everything|great|good|fine|funny)"
    r"(?: i (?:wanted|needed)(?: to (?:know|ask))?)?",
}
_ENGLISH_FILLER: Final = r"there|so|oh|ah|well|and|then|now|everyone|all|guys|team|friend|again|very|really"
_CHINESE: Final[dict[Kind, str]] = {
    "who": r"[你您]是(?:谁|什么|人吗|(?:机器人|真人|人工智能|人工|ai)(?:吗|么|还是(?:真人|人|机器人))?)"
    r"|[你您]叫什么(?:名字)?|[你您](?:能|会|可以)(?:做|干|帮我做)?(?:些)?(?:什么|啥)",
    "goodbye": r"再见|拜拜|回见|晚安|下次见|祝[你您](?:生活|工作|一切)?(?:愉快|顺利)",
    "thanks": r"(?:非常|十分|太|很)?(?:谢谢|多谢|感谢|谢了)"
    r"(?:[你您]的?(?:帮助|解答|回答)?)?|辛苦了?|麻烦了",
    "urgent": r"救命|求救|求助|救救我|(?:请)?帮帮我|帮我|急{2,}|很急|好急|十万火急|紧急|在线等|sos",
    "upset": r"气死(?:我)?了?|(?:真|太|好)?(?:垃圾|差劲|坑人|过分|离谱|没用|气人|生气|失望|烦人)"
    r"|什么(?:鬼|玩意)|烦死(?:我|人)?了?"
    r"|无语|太(?:差|烂|慢|坑)|滚|妈的|他妈的|[你您]有病",
    "puzzled": r"什么意思|啥意思|啥|什么|(?:没|看|听|我)?不(?:懂|明白|理解)|没(?:看|听)(?:懂|明白|清)"
    r"|(?:请)?再说一(?:遍|次)|什么情况",
    "greeting": r"[你您](?:最近)?(?:好吗?|过得(?:怎么样|好吗))|(?:今天|最近)[你您]?(?:过得)?(?:怎么样|好吗)"
    r"|嗨|哈[喽啰罗]|早上好|早安|上午好|中午好|下午好|晚上好"
    r"|在[吗么]|在不在|有人在?[吗么]|hello|hi",
    "noted": r"好[的吧滴嘞]?|可以|是|对|要|需要"
    r"|嗯+|哦+|明白|知道|清楚|了解|收到|没问题|没事|不用|没有?(?:别的|其他)?(?:问题)?了|行|ok"
    r"|哈哈+|(?:真|挺|好)?(?:有意思|有趣|好笑|不错|厉害)|太?(?:棒|好|赞)|(?:我)?就(?:想)?(?:问|知道)?这些",
}
_CHINESE_FILLER: Final = r"[啊呀哈呢啦了哦的那就先亲吧我都]"

_SAID: Final[dict[Kind, dict[Language, str]]] = {
    "who": {
        "en": "I am this shop's automated assistant, and I answer from its help pages. What would you like to know?",
        "zh": "我是本店的自动助手，依据帮助中心的内容回答。请问您想了解什么？",
    },
    "urgent": {
        "en": "I am here to help. Please tell me in a few words what has happened.",
        "zh": "我来帮您。请用一两句话告诉我发生了什么。",
    },
    "upset": {
        "en": "I am sorry about that. Please tell me in a few words what has gone wrong.",
        "zh": "非常抱歉给您带来不便。请用一两句话告诉我出了什么问题。",
    },
    "puzzled": {
        "en": "I am not sure what you mean. What would you like to know? Please ask me in a few words.",
        "zh": "我不太明白您的意思。请用一两句话告诉我您想了解什么。",
    },
    "goodbye": {"en": "Goodbye, and thank you for your visit.", "zh": "再见，感谢您的光临。"},
    "thanks": {
        "en": "You're welcome! Is there anything else you would like to know?",
        "zh": "不客气！还有其他问题吗？",
    },
    "greeting": {"en": "Hello! What can I help you with?", "zh": "您好！请问有什么可以帮您？"},
    "noted": {"en": "All right. Ask me whenever you have another question.", "zh": "好的。有其他问题，随时问我。"},
}

# What a text without words says. Any other picture is taken for approval.
_SIGNS: Final[dict[Kind, re.Pattern[str]]] = {
    "urgent": re.compile("[🆘🚨🛟]|[!！]{2}"),
    "upset": re.compile("[😡🤬😠👿💢🖕💩😤👎😭😢😞😔😣😖😫😩🙁☹💔🤮🙄😒🤦]|[:;=]'?-?[(\\[<]"),
    "noted": re.compile("[:;=]'?-?[)\\]]"),
    "puzzled": re.compile("[?？¿❓❔⁉🤔😕🤷]"),
    "thanks": re.compile("[🙏❤♥💕💖💗💐🌹😍🥰😘🤗]"),
    "greeting": re.compile("👋"),
}
_NO_LETTERS: Final = re.compile(r"[^\w]+|_+")


_END: Final[dict[Language, str]] = {"en": " ", "zh": ""}  # of a piece
_PIECE: Final[dict[Language, re.Pattern[str]]] = {
    "en": re.compile(rf"(?:{'|'.join(_ENGLISH.values())}|{_ENGLISH_FILLER}){_END['en']}"),
    "zh": re.compile(rf"(?:{'|'.join(_CHINESE.values())}|{_CHINESE_FILLER}){_END['zh']}"),
}
_KINDS: Final[dict[Language, dict[Kind, re.Pattern[str]]]] = {
    "en": {kind: re.compile(rf"\b(?:{words})\b") for kind, words in _ENGLISH.items()},
    "zh": {kind: re.compile(words) for kind, words in _CHINESE.items()},
}


def small_talk(text: str) -> Kind | None:
    """Return the kind of a text that is nothing but small talk; None where anything is asked."""
    text = plain(text)
    if len(text) > MAX_CHARS:
        return None
    folded = fold(text).replace("'", "")
    language = detect_language(text)
    words = _NO_LETTERS.sub("" if language == "zh" else " ", folded).strip()
    if not words:
        return _meaning_of_signs(text)
    if not is_pieces_only(words + _END[language], _PIECE[language]):
        return None
    return next((kind for kind, pattern in _KINDS[language].items() if pattern.search(words)), None)


def _meaning_of_signs(text: str) -> Kind | None:
    """Return what a text without words says: the first that occurs; signs that stand for nothing else ask something."""
    if not text.strip():
        return None
    for kind, signs in _SIGNS.items():
        if signs.search(text):
            return kind
    return "noted" if any(unicodedata.category(char) == "So" for char in text) else "puzzled"


def is_pieces_only(words: str, piece: re.Pattern[str]) -> bool:
    """Return whether a text is pieces, one behind the other, and nothing else. Each place is begun once: a pattern of
    repeated pieces would try all the ways in which 哈哈哈哈 or 好的好的 can be cut, twice as many for each one more."""
    reached = {0}
    for start in range(len(words)):
        if start in reached and piece.match(words, start):
            reached |= {stop for stop in range(start + 1, len(words) + 1) if piece.fullmatch(words, start, stop)}
    return len(words) in reached


def courtesy(kind: Kind, language: Language) -> str:
    """Return the reply to small talk."""
    return _SAID[kind][language]
