"""Measure today's answer policy on the held-out halves of all sets: `python -m ops.evaluation.decision`.

The FAQ decides and no model is asked, so it takes seconds. It needs the prepared embeddings (`replyline model
prepare`).
"""

from rich.console import Console

from ops.evaluation.decision.corpora import corpora
from ops.evaluation.decision.measuring import measure
from ops.model.embeddings import with_prepared_embeddings
from shared.errors import SettingsError
from shared.faq.answer_policy import AnswerPolicy
from shared.faq.embedder import Embedder
from shared.settings import load_settings


def main() -> None:
    """Print the shares. Raises `SettingsError` without embeddings."""
    settings = with_prepared_embeddings(load_settings())
    embed = Embedder.named_by(settings.faq)
    if embed is None:
        raise SettingsError("the embeddings are not prepared; run: replyline model prepare")
    console = Console(width=120)
    policy = AnswerPolicy.of(settings.answers, languages=None, most=settings.worker.grounding_entries, handoff=True)
    for name, searched in (("terms alone", None), ("terms and embeddings", embed)):
        console.rule(name)
        measure(corpora(), policy, searched, console)


if __name__ == "__main__":
    main()
