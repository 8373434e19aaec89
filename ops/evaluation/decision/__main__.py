"""Train the decisions again: `python -m ops.evaluation.decision` writes shared/faq/decision/decision.json.

It needs all embeddings of `PREPARABLE`, prepared (`replyline model prepare`), some minutes of one core, and nothing
else. It prints the bounds with their n and alpha, and what each decision does on the held-out halves; `--measure`
prints only the latter, with the embeddings that are prepared.
"""

import sys
from collections.abc import Mapping, Sequence

import msgspec
from rich.console import Console

from ops.evaluation.decision.corpora import corpora
from ops.evaluation.decision.examples import examples_of
from ops.evaluation.decision.measuring import measure
from ops.evaluation.decision.training import train
from ops.model.embeddings import PREPARABLE, WORDLLAMA
from shared.errors import SettingsError
from shared.faq.answer_policy import AnswerPolicy
from shared.faq.decision.features import BY_TERMS, BY_VECTORS
from shared.faq.decision.near_words import BY_WORDS
from shared.faq.decision.packaged import PACKAGED, PROBE, Decision, Decisions, Encoded, deciders
from shared.faq.embedder import Embedder
from shared.faq.vectors import Embed
from shared.settings import load_settings
from shared.wire.messages import Language


def main() -> None:
    """Train, write and print. Raises `SettingsError` without embeddings."""
    console = Console(width=120)
    folder = load_settings().model.dir.parent
    prepared = {each.name: Embedder(folder / each.name) for each in PREPARABLE if each.is_prepared(folder / each.name)}
    if "--measure" not in sys.argv:
        if missing := [each.name for each in PREPARABLE if each.name not in prepared]:
            raise SettingsError(f"embeddings are not prepared: {', '.join(missing)}; run: replyline model prepare")
        decisions = _trained(prepared)
        for name, decision in (
            ("terms", decisions.terms),
            *((each.encoder, each.decision) for each in decisions.vectors),
        ):
            for language, bound in decision.bounds.items():
                console.print(f"{name} {language}: bound {bound.logit:.3f} for alpha {bound.alpha:g} on n = {bound.n}")
        PACKAGED.write_bytes(msgspec.json.encode(decisions))
        deciders.cache_clear()
    searched: dict[str, Embedder | None] = {"terms alone": None, **prepared}
    for name, embed in searched.items():
        console.rule(name)
        measure(corpora(), AnswerPolicy(languages=()), embed, console)


def _trained(prepared: Mapping[str, Embedder]) -> Decisions:
    """Return a decision for terms alone, and one for each encoder; each by what such a search finds."""

    def fitted(embed: Embed, names: Sequence[str]) -> Decision:
        return train([example for corpus in corpora() for example in examples_of(corpus, embed)], names)

    return Decisions(
        terms=fitted(_no_vectors, BY_TERMS),
        vectors=tuple(
            Encoded(
                encoder=name, probe=_probe(embed), decision=fitted(embed, (*BY_TERMS, *BY_VECTORS, *_words_of(name)))
            )
            for name, embed in prepared.items()
        ),
    )


def _words_of(encoder: str) -> Sequence[str]:
    """Return the measures of single words if an encoder is so cheap that each word is embedded too."""
    return BY_WORDS if encoder == WORDLLAMA.name else ()


def _no_vectors(texts: Sequence[str], language: Language) -> None:
    """Embed nothing."""


def _probe(embed: Embedder) -> tuple[float, ...]:
    vectors = embed([PROBE], "en")
    assert vectors is not None, "it embeds English"
    return tuple(round(float(value), 4) for value in vectors[0])


if __name__ == "__main__":
    main()
