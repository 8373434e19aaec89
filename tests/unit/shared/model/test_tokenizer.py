"""Text round-trips through token ids and never yields a special token."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ModelError
from shared.model.tokenizer import BYTE_LEVEL_SPECIALS, Tokenizer, bpe_definition, byte_level_definition

TOKENIZER = Tokenizer.byte_level()


@given(st.text())
def test_bytes_round_trip(text: str) -> None:
    ids = TOKENIZER.encode_text(text)
    assert TOKENIZER.decode_bytes(ids) == text.encode()
    assert b"".join(TOKENIZER.token_bytes(token_id) for token_id in ids) == text.encode()
    assert TOKENIZER.count(text) == len(ids) == len(text.encode())


@given(st.lists(st.one_of(st.text(max_size=5), st.sampled_from(BYTE_LEVEL_SPECIALS)), max_size=6))
def test_special_tokens_in_text_stay_text(parts: list[str]) -> None:
    text = "".join(parts)
    ids = TOKENIZER.encode_text(text)
    assert not {TOKENIZER.special_id(name) for name in BYTE_LEVEL_SPECIALS} & set(ids)
    assert TOKENIZER.decode_bytes(ids) == text.encode()


def test_special_tokens_have_ids_and_no_bytes() -> None:
    assert [TOKENIZER.special_id(name) for name in BYTE_LEVEL_SPECIALS] == [0, 1, 2]
    assert TOKENIZER.token_bytes(1) == b""
    assert TOKENIZER.decode_bytes([1, *TOKENIZER.encode_text("hi"), 2]) == b"hi"
    assert TOKENIZER.vocab_size == 259


def test_merges_and_added_words_are_used() -> None:
    tokens = ["<|end|>", "a", "b", "ab", "Ġ", "1", "2", "12", "你好"]
    definition = bpe_definition(
        tokens, merges=[("a", "b"), ("1", "2")], special_ids=[0], added_ids=[8], split_digits=True
    )
    tokenizer = Tokenizer(definition)
    assert tokenizer.encode_text("ab 12你好") == [3, 4, 5, 6, 8]
    assert tokenizer.decode_bytes([8, 3]) == "你好ab".encode()


def test_threads_may_share_a_tokenizer() -> None:
    texts = [f"text {number} " * 20 for number in range(200)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(TOKENIZER.encode_text, texts)) == [TOKENIZER.encode_text(text) for text in texts]


def test_an_unknown_special_token_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="no special token"):
        TOKENIZER.special_id("<|nobody|>")


@pytest.mark.parametrize(
    "definition", [b"", b"[]", b"{}", b'{"added_tokens": [], "model": {"type": "?", "vocab": {}}}']
)
def test_a_damaged_definition_names_the_remedy(definition: bytes) -> None:
    with pytest.raises(ModelError, match="replyline model prepare"):
        Tokenizer(definition)


def test_a_missing_file_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="replyline model prepare"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    "text", ["How do I return an item? " * 3_000, "退货" * 20_000, " " * 50_000, "x" * 4_097, "", "a"]
)
def test_a_long_text_is_counted_in_pieces(text: str) -> None:
    """The library's memory for one encoding would stay with the process."""

    class Watched(Tokenizer):
        def encode_text(self, text: str) -> list[int]:
            lengths.append(len(text))
            return super().encode_text(text)

    lengths, whole = list[int](), Tokenizer.byte_level().encode_text(text)
    assert Watched(byte_level_definition()).count(text) == len(whole)
    assert sum(lengths) == len(text)
    assert max(lengths, default=0) <= 4_096
