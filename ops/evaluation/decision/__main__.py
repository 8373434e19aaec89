"""Train the decision again: `python -m ops.evaluation.decision` writes shared/faq/decision/decision.json.

It needs the prepared embeddings (`replyline model prepare`), some minutes of one core, and nothing else. It prints the
bounds with their n and alpha, and what the decision does on the held-out halves; `--measure` prints only the latter.
"""

import sys

import msgspec
from rich.console import Console

from ops.evaluation.decision.corpora import corpora
from ops.evaluation.decision.examples import examples_of
from ops.evaluation.decision.measuring import measure
from ops.evaluation.decision.training import train
from ops.model.embeddings import with_prepared_embeddings
from shared.errors import SettingsError
from shared.faq.answer_policy import AnswerPolicy
from shared.faq.decision.features import BY_TERMS, BY_VECTORS
from shared.faq.decision.packaged import PACKAGED, Decisions, decider
from shared.faq.embedder import Embedder
from shared.settings import load_settings


def main() -> None:
    """Train, write and print. Raises `SettingsError` without embeddings."""
    console = Console(width=120)
    embed = Embedder.named_by(with_prepared_embeddings(load_settings()).faq)
    if embed is None:
        raise SettingsError("the embeddings are not prepared; run: replyline model prepare")
    if "--measure" not in sys.argv:
        examples = [example for corpus in corpora() for example in examples_of(corpus, embed)]
        decisions = Decisions(terms=train(examples, BY_TERMS), vectors=train(examples, (*BY_TERMS, *BY_VECTORS)))
        for name, decision in (("terms", decisions.terms), ("vectors", decisions.vectors)):
            for language, bound in decision.bounds.items():
                console.print(f"{name} {language}: bound {bound.logit:.3f} for alpha {bound.alpha:g} on n = {bound.n}")
        PACKAGED.write_bytes(msgspec.json.encode(decisions))
        decider.cache_clear()
    for name, searched in (("terms alone", None), ("terms and embeddings", embed)):
        console.rule(name)
        measure(corpora(), AnswerPolicy(languages=()), searched, console)


if __name__ == "__main__":
    main()
