"""Search by embeddings in addition to terms, with a tiny ONNX model built here that looks up each token's vector."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto, helper, numpy_helper, save_model
from tokenizers import Tokenizer, models, pre_tokenizers

from shared.conversation.turn import Turn
from shared.errors import SettingsError
from shared.faq import FaqEntry, FaqIndex
from shared.faq.embedder import POOLING_FILE, Embedder, Encoder
from shared.faq.index import SIMILARITY_WEIGHT, WHOLE_SCORE
from shared.faq.live import LiveFaq
from shared.faq.vectors import EntryVectors
from shared.settings import FaqSettings
from shared.wire.messages import Language

# Words with the same meaning have the same direction.
MEANINGS = [["<pad>"], ["refund", "gelt"], ["parcel", "pakje"], ["open", "otwarte"]]
VOCABULARY = {word: number for number, word in enumerate(word for words in MEANINGS for word in words)}


def make_model(
    folder: Path, *, pooled: bool = False, inputs: tuple[str, ...] = ("input_ids", "attention_mask")
) -> Path:
    """Write a folder as sentence-transformers exports it. If `pooled`, the model averages by itself."""
    table = np.array(
        [np.eye(len(MEANINGS))[place] * (place > 0) for place, words in enumerate(MEANINGS) for _ in words]
    )
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])]
    shape = [None, None, len(MEANINGS)]
    if pooled:
        nodes.append(helper.make_node("ReduceMean", ["last_hidden_state", "axes"], ["pooled"], keepdims=0))
        shape = [None, len(MEANINGS)]
    graph = helper.make_graph(
        nodes,
        "bag",
        [helper.make_tensor_value_info(name, TensorProto.INT64, [None, None]) for name in inputs],
        [helper.make_tensor_value_info("pooled" if pooled else "last_hidden_state", TensorProto.FLOAT, shape)],
        [
            numpy_helper.from_array(table.astype(np.float32), "table"),
            *([numpy_helper.from_array(np.array([1]), "axes")] if pooled else []),
        ],
    )
    folder.mkdir(parents=True, exist_ok=True)
    save_model(
        helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)]), folder / "model.onnx"
    )
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def pool_by(folder: Path, *modes: str) -> Path:
    """Write the pooling file like sentence-transformers, with every mode named."""
    config = {f"pooling_mode_{mode}": mode in modes for mode in ("cls_token", "mean_tokens", "max_tokens")}
    (folder / POOLING_FILE).parent.mkdir()
    (folder / POOLING_FILE).write_text(json.dumps({"word_embedding_dimension": len(MEANINGS), **config}))
    return folder


def entry(entry_id: str, question: str, *alternatives: str, language: Language = "en") -> FaqEntry:
    return FaqEntry(
        id=entry_id,
        topic="t",
        language=language,
        question=question,
        alternatives=alternatives,
        answer=f"About {entry_id}.",
    )


ENTRIES = [
    entry("money", "refund", "my refund now"),
    entry("box", "parcel", "the parcel"),
    entry("door", "open", "when open"),
]


def tabled(texts: Sequence[str], language: Language) -> np.ndarray:
    """Return the vectors of the model above, without a file."""
    assert language == "en"
    known = [[VOCABULARY[word] for word in text.split() if word in VOCABULARY] for text in texts]
    return np.array([np.eye(4)[(words[0] + 1) // 2 if words else 0] for words in known], dtype=np.float32)


@pytest.mark.parametrize("pooled", [False, True])
def test_vectors_are_unit_length_means_of_their_tokens(tmp_path: Path, pooled: bool) -> None:
    vectors = Encoder(make_model(tmp_path, pooled=pooled))(["refund refund", "refund parcel"])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0)
    assert np.allclose(vectors[1, 1:3], 2**-0.5)


def test_padding_changes_no_vector(tmp_path: Path) -> None:
    """Texts of a batch are padded to the longest; the mask excludes the padding."""
    embed = Encoder(make_model(tmp_path, inputs=("input_ids", "attention_mask", "token_type_ids")))
    alone = embed(["refund"])[0]
    assert np.array_equal(embed(["refund", "parcel " * 40, *["hours"] * 40])[0], alone)


def test_a_folder_may_select_first_token_pooling(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    texts = ["refund parcel open", "parcel refund refund", "open"]
    firsts = Encoder(folder)(["refund", "parcel", "open"])
    assert not np.allclose(Encoder(folder)(texts)[:2], firsts[:2])
    assert np.array_equal(Encoder(pool_by(folder, "cls_token"))(texts), firsts)


def test_mean_pooling_is_the_default(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    texts = ["refund parcel open", "parcel refund refund"]
    unsaid = Encoder(folder)(texts)
    assert np.array_equal(Encoder(pool_by(folder, "mean_tokens"))(texts), unsaid)


@pytest.mark.parametrize(
    ("modes", "named"), [(("max_tokens",), "max_tokens"), (("cls_token", "mean_tokens"), "cls_token, mean_tokens")]
)
def test_an_unsupported_pooling_is_refused_in_one_line(tmp_path: Path, modes: tuple[str, ...], named: str) -> None:
    with pytest.raises(SettingsError, match=f"pools by {named}; only cls_token or mean_tokens"):
        Encoder(pool_by(make_model(tmp_path), *modes))


def test_a_broken_pooling_file_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = pool_by(make_model(tmp_path))
    (folder / POOLING_FILE).write_text("[1]")
    with pytest.raises(SettingsError, match=r"1_Pooling/config\.json") as caught:
        Encoder(folder)
    assert len(str(caught.value).splitlines()) == 1


def test_each_language_has_the_encoder_of_its_own_folder(tmp_path: Path) -> None:
    make_model(tmp_path / "en")
    pool_by(make_model(tmp_path / "zh"), "cls_token")
    text, embed = ["refund parcel"], Embedder(tmp_path)
    for language in ("en", "zh"):
        vectors = embed(text, language)
        assert vectors is not None
        assert np.array_equal(vectors, Encoder(tmp_path / language)(text))


def test_one_encoder_serves_all_languages(tmp_path: Path) -> None:
    embed = Embedder(make_model(tmp_path))
    english, chinese = embed(["refund"], "en"), embed(["refund"], "zh")
    assert english is not None
    assert chinese is not None
    assert np.array_equal(english, chinese)


async def test_a_language_without_an_encoder_is_searched_by_terms_alone(tmp_path: Path) -> None:
    make_model(tmp_path / "en")
    embed = Embedder(tmp_path)
    assert embed(["退款"], "zh") is None
    entries = [*ENTRIES, entry("钱", "退款多久", language="zh")]
    index = FaqIndex(entries, embed)
    assert index.search("退款") == FaqIndex(entries).search("退款") != []
    assert await LiveFaq(FaqSettings(), embed=embed).vector_of("退款") is None


def test_a_bad_folder_of_a_language_is_named(tmp_path: Path) -> None:
    make_model(tmp_path / "en")
    (tmp_path / "zh").mkdir()
    with pytest.raises(SettingsError, match=r"/zh: holds no model\.onnx"):
        Embedder(tmp_path)


def test_a_question_without_a_common_term_finds_the_entry_of_its_meaning(tmp_path: Path) -> None:
    embed = Encoder(make_model(tmp_path))
    index = FaqIndex(ENTRIES, Embedder(tmp_path))
    for question, wanted in (("gelt", "money"), ("pakje", "box")):
        assert index.search(question) == []
        best = index.search(question, vector=embed([question])[0])[0]
        assert (best.entry.id, best.score) == (wanted, pytest.approx(SIMILARITY_WEIGHT))


@example(np.array([1, 1e-45, 1, 1], dtype=np.float32), "")
@given(arrays.arrays(np.float32, 4, elements=st.floats(0, 1, width=32)), st.sampled_from(["", "refund", "my parcel"]))
def test_a_score_combines_term_share_and_similarity(raw: np.ndarray, words: str) -> None:
    """Only the similarity above that between entries counts, and less than the term share; a score never exceeds 1, and
    0 stays 0.
    """
    raw = raw + np.array([0.1, 0, 0, 0], dtype=np.float32)  # no vector has length 0
    vector = raw / np.linalg.norm(raw)
    index = FaqIndex(ENTRIES, tabled)
    question = f"{words} zzz"
    shares = {hit.entry.id: hit.score for hit in index.search(question)}
    near = dict(
        zip(("money", "box", "door"), index._vectors["en"].similarities(vector).astype(float).tolist(), strict=True)
    )
    sums = {name: shares.get(name, 0.0) + SIMILARITY_WEIGHT * near[name] for name in near}
    hits = index.search(question, vector=vector)
    found = [hit.entry.id for hit in hits]
    assert set(found) == {name for name in sums if sums[name] > 0}
    assert all(sums[one] >= sums[other] - 1e-6 for one, other in itertools.pairwise(found))
    for hit in hits:
        assert hit.score == pytest.approx(min(sums[hit.entry.id], 1.0), abs=1e-6)


def test_an_entry_found_by_words_and_meaning_ranks_above_one_found_by_meaning(tmp_path: Path) -> None:
    embed = Encoder(make_model(tmp_path))
    hits = FaqIndex(ENTRIES[::-1], tabled).search("pakje refund", vector=embed(["pakje refund"])[0])
    assert [hit.entry.id for hit in hits] == ["money", "box"]
    assert hits[0].score >= hits[1].score > 0


def test_a_follow_up_question_is_searched_by_terms_alone(tmp_path: Path) -> None:
    """Its embedding does not contain the previous turn."""
    embed = Encoder(make_model(tmp_path))
    before = (Turn(request_id="r", user="my refund", output_text="", source="faq"),)
    index = FaqIndex(ENTRIES, tabled)
    assert index.search("why?", previous=before, vector=embed(["pakje"])[0])[0].entry.id == "money"


def test_two_questions_are_split_even_if_one_entry_is_near_both(tmp_path: Path) -> None:
    """An entry close to the whole message need not answer all of it."""
    index, vector = FaqIndex(ENTRIES, tabled), Encoder(make_model(tmp_path))(["parcel"])[0]
    assert index._vectors["en"].similarities(vector).max() > WHOLE_SCORE
    found = index.find("Is my parcel lost? What is a refund?", vector=vector)
    assert {hit.entry.id for hit in found.hits[:2]} == {"box", "money"}
    assert len(found.parts) == 2


def test_without_a_vector_hits_are_found_by_terms(tmp_path: Path) -> None:
    index = FaqIndex(ENTRIES, Embedder(make_model(tmp_path)))
    assert index.search("refund now") == FaqIndex(ENTRIES).search("refund now")


async def test_a_workers_faq_returns_the_vector_of_a_question(tmp_path: Path) -> None:
    embed = Embedder(make_model(tmp_path))
    vector = await LiveFaq(FaqSettings(), embed=embed).vector_of("parcel")
    assert vector is not None
    assert np.array_equal(vector, Encoder(tmp_path)(["parcel"])[0])


@given(arrays.arrays(np.float32, (6, 4), elements=st.floats(-1, 1, width=32)))
def test_an_identical_text_has_the_highest_similarity(raw: np.ndarray) -> None:
    raw[:, 0] += 2.0  # no vector has length 0
    units = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    vectors = EntryVectors.of([entry(str(n), "a", "b") for n in range(3)], lambda texts, _: units[: len(texts)])
    assert vectors is not None
    for place, unit in enumerate(units):
        similarities = vectors.similarities(unit)
        assert (similarities <= 1).all()
        assert similarities[place // 2] == pytest.approx(1.0, abs=1e-3)


def test_similarities_at_or_below_that_between_entries_count_nothing() -> None:
    close = np.array([[1.0, 0.0], [0.8, 0.6], [0.8, -0.6]], dtype=np.float32)
    vectors = EntryVectors.of([entry(str(n), "q") for n in range(3)], lambda texts, _: close)
    assert vectors is not None
    assert vectors.floor == pytest.approx(0.8)
    assert vectors.similarities(close[0]).tolist() == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)
    assert vectors.similarities(close[1]).tolist() == pytest.approx([0.0, 1.0, -2.6], abs=1e-6)


def test_a_paraphrase_farther_than_neighbouring_entries_are_still_counts() -> None:
    """Two of three entries are 20 degrees apart, and the question is 25 degrees from one of them."""
    angles = np.radians([0.0, 20.0, 90.0, 45.0])
    *entries, question = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    vectors = EntryVectors.of([entry(str(n), "q") for n in range(3)], lambda texts, _: np.array(entries)[: len(texts)])
    assert vectors is not None
    similarities = vectors.similarities(question)
    assert similarities.argmax() == 1
    assert similarities[1] > 0.5


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda folder: (folder / "model.onnx").unlink(), r"holds no model\.onnx"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"holds no tokenizer\.json"),
        (lambda folder: (folder / "model.onnx").write_bytes(b"no model"), "EMBEDDINGS_DIR"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "EMBEDDINGS_DIR"),
        (lambda folder: make_model(folder, inputs=("input_ids", "pixels")), "the model wants 'pixels'"),
    ],
)
def test_a_folder_without_such_a_model_is_refused_in_one_line(
    tmp_path: Path, spoil: Callable[[Path], object], complaint: str
) -> None:
    spoil(make_model(tmp_path))
    with pytest.raises(SettingsError, match=complaint) as caught:
        Embedder(tmp_path)
    assert len(str(caught.value).splitlines()) == 1
