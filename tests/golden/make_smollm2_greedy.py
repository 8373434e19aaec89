"""Makes smollm2_greedy.json: transformers' own greedy decode in float32 of the weights in the default GGUF file.

    python -m venv reference && reference/bin/pip install . torch transformers gguf accelerate
    PYTHONPATH=. reference/bin/python tests/golden/make_smollm2_greedy.py MODEL.gguf

Token ids come from Replyline's tokenizer: transformers' import of the same GGUF drops the splitting of digits, so that
numbers would get ids that the model never saw. The ids agree with llama.cpp's `/tokenize` on the same file.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

from shared.model.folder import sha256_of
from shared.model.tokenizer import Tokenizer
from workers.graph.sources.gguf import GgufSource
from workers.graph.sources.opening import tokenizer_definition

NUM_TOKENS = 32
SYSTEM = "You are a friendly support agent of an online shop. Answer in one or two sentences."
QUESTIONS = (
    "What is the capital of France?",
    "How can I return a pair of shoes that does not fit?",
    "My order 4417-20395 of 12.05.2024 has not arrived. What now?",
    "你好,我的包裹在哪里?",
    "请用一句话介绍一下你自己。",
    "Compute 17 + 25.",
    "Write a haiku about the sea.",
    "¿Cuál es el horario de atención al cliente?",
    "def fibonacci(n):",
    "Do you ship to Switzerland, and how long does it take? 🚚",
    "I was charged twice: $49.90 and $49.90. Please explain.",
    "List three reasons to drink water.",
)


def main(path: Path) -> None:
    tokenizer = Tokenizer(tokenizer_definition(GgufSource.open(path)))
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    # No end token: the greedy tokens after an answer's end are as good a witness, and none may be suppressed.
    model.generation_config = transformers.GenerationConfig(
        do_sample=False, max_new_tokens=NUM_TOKENS, eos_token_id=None, pad_token_id=0
    )
    cases = []
    for question in QUESTIONS:
        prompt = chatml(tokenizer, question)
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            output = model.generate(ids, attention_mask=torch.ones_like(ids))
        cases.append({"question": question, "prompt_ids": prompt, "answer_ids": output[0, len(prompt) :].tolist()})
    facts = {
        "source_sha256": sha256_of(path),
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, float32",
    }
    head = json.dumps(facts, indent=1).removesuffix("\n}")
    rows = ",\n  ".join(json.dumps(case, ensure_ascii=False) for case in cases)
    document = f'{head},\n "cases": [\n  {rows}\n ]\n}}\n'
    Path(__file__).with_name("smollm2_greedy.json").write_text(document, encoding="utf-8")


def chatml(tokenizer: Tokenizer, question: str) -> list[int]:
    """A system turn, the question, and the opening of the answer."""
    start, end = tokenizer.special_id("<|im_start|>"), tokenizer.special_id("<|im_end|>")
    newline = tokenizer.encode_text("\n")
    prompt = []
    for role, text in (("system", SYSTEM), ("user", question)):
        prompt += [start, *tokenizer.encode_text(f"{role}\n{text}"), end, *newline]
    return [*prompt, start, *tokenizer.encode_text("assistant\n")]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
