"""Write a version's golden prompts by asking an engine of this machine."""

from typing import Final

from shared.versions.golden import Golden, GoldenSet
from workers.engine.greedy import answer_greedily, until_end
from workers.engine.load_model import LoadedModel

_TOKENS: Final = 24
_QUESTIONS: Final = (
    "How long do I have to return an order?",
    "Where is my parcel?",
    "Which size of jacket do I need?",
    "Can I pay by invoice?",
    "Write the numbers from one to ten.",
    "Thank you, that was all.",
    "退货期限是多久？",
    "我的包裹在哪里？",
)


def golden_prompts(model: LoadedModel, system_prompt: str) -> GoldenSet:
    """Return what the model answers greedily, one prompt after the other. A prompt that a slot cannot hold loses its
    beginning."""
    template, info = model.template, model.info
    most = info.max_length - _TOKENS
    golden = []
    for question in _QUESTIONS:
        messages = (*template.message("system", system_prompt), *template.message("user", question))
        prompt = (*template.start, *messages, *template.answer)[-most:]
        [answer] = answer_greedily(model.engine, [prompt], _TOKENS)
        golden.append(Golden(prompt_ids=prompt, output_ids=tuple(until_end(answer, info.stop_token_ids))))
    return GoldenSet(engine=info.name, prompts=tuple(golden))
