"""A vocabulary without its rare tokens still encodes every text, and the kept tokens mean what they meant."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from ops.lab.optimize.prune.vocabulary import trimmed, without_tokens
from shared.errors import SettingsError
from shared.model.tokenizer import Tokenizer, bpe_definition, byte_level_definition
from tests.support.models.fixtures import TINY, write_llama
from workers.graph.sources.opening import open_source

BYTES = list(msgspec.json.decode(byte_level_definition())["model"]["vocab"])
SPECIALS, ALPHABET = BYTES[:3], BYTES[3:]
MERGES = [("t", "h"), ("th", "e"), ("i", "n"), ("in", "g"), ("r", "e"), ("re", "t"), ("u", "r"), ("ret", "ur")]
TOKENS = [*SPECIALS, *ALPHABET, *("".join(pair) for pair in MERGES)]
WHOLE = bpe_definition(TOKENS, merges=MERGES, special_ids=range(3), split_digits=False)
ID = {token: number for number, token in enumerate(TOKENS)}


@pytest.mark.parametrize("merges", ["pairs", "texts"])
def test_used_tokens_stay_with_the_parts_they_are_merged_from(merges: str) -> None:
    document = msgspec.json.decode(WHOLE)
    if merges == "texts":
        document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
    small = trimmed(msgspec.json.encode(document), [ID["retur"]], len(BYTES) + 4)
    assert [TOKENS[number] for number in small.ids[len(BYTES) :]] == ["re", "ret", "ur", "retur"]
    tokenizer = Tokenizer(small.definition)
    assert tokenizer.encode_text("retur") == small.renumbered([ID["retur"]])
    assert len(tokenizer.encode_text("the")) == 3  # its own token is gone


def test_the_tokens_that_training_merged_first_fill_the_rest() -> None:
    small = trimmed(WHOLE, [ID["in"]], len(BYTES) + 3)
    assert [TOKENS[number] for number in small.ids[len(BYTES) :]] == ["th", "the", "in"]


@pytest.mark.parametrize("text", ["the returning thing", "日本語 – ∑", "<|im_start|>", "\x00\n"])
def test_every_text_is_encoded_and_decoded(text: str) -> None:
    tokenizer = Tokenizer(trimmed(WHOLE, [], len(BYTES) + 2).definition)
    assert tokenizer.decode_bytes(tokenizer.encode_text(text)).decode() == text
    assert tokenizer.special_id("<|im_end|>") == Tokenizer(WHOLE).special_id("<|im_end|>")


def test_the_decoder_keeps_the_rows_of_the_kept_tokens(tmp_path: Path) -> None:
    write_llama(tmp_path / "whole", TINY, seed=1)
    whole = open_source(tmp_path / "whole").checkpoint
    small = without_tokens(whole, np.array([1, 5, 300]))
    assert small.architecture.vocab_size == 3
    np.testing.assert_array_equal(small.read("embed_tokens"), whole.read("embed_tokens")[[1, 5, 300]])


def test_too_few_tokens_are_refused_with_their_number() -> None:
    with pytest.raises(SettingsError, match=rf"--vocabulary {len(BYTES)}: .* are {len(BYTES) + 1} tokens"):
        trimmed(WHOLE, [ID["th"]], len(BYTES))
