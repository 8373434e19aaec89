"""The guard's cost is measured on the same answers with the guard and without."""

from rich.console import Console

from ops.evaluation.guard_cost import measure
from shared.settings import Settings, WorkerSettings
from workers.loading import load_model


def test_both_rounds_of_a_pair_are_measured() -> None:
    settings = Settings(worker=WorkerSettings(engine="fake", slots=2))
    model = load_model(settings)
    cost = measure(model, settings, Console(quiet=True), batch=2, rounds=2, new_tokens=6)
    assert len(cost.ratios) == 2
    assert min(*cost.ratios, cost.ratio, cost.on_tok_s, cost.off_tok_s, cost.us_per_token, cost.us_per_answer) > 0
    assert 1 < cost.held_tokens_p50 <= cost.held_tokens_p99 <= 7, "six tokens, and what their end releases"
    assert cost.replaced_share == 0, "letters alone state nothing"
