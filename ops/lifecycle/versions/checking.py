"""Examine a version before its first customer: its files, its golden prompts, the evaluation and guard questions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from shared.errors import ModelError
from shared.process.clock import wire_unix_ms
from shared.settings import Settings
from shared.versions.registry import Checked, Registry
from shared.versions.store import StoredVersion, open_version
from shared.versions.version import Version
from shared.wire.fields import Revision

_QUICK_QUESTIONS: Final = 24


class Scope(Struct, frozen=True, kw_only=True):
    """The questions of a check: `quick` takes a sample; `questions` and `faq` None are as for `replyline eval`."""

    quick: bool = False
    questions: Path | None = None
    faq: Path | None = None


async def check(settings: Settings, registry: Registry, version: Version, scope: Scope, *, author: str) -> Checked:
    """Return what was found. Of a version whose files or golden prompts fail nothing is asked.

    Raises `SettingsError` where this machine's engine cannot be asked, `ServiceError` where no system of its own can be
    started.
    """
    from ops.lifecycle.versions.figures import failures

    numbers: dict[str, float] = {}
    try:
        stored = open_version(settings.model, version.id, expected=version)
        failed = _golden(_of_version(settings, stored), stored, numbers)
        if not failed:
            numbers |= await _evaluated(_of_version(settings, stored), stored, scope)
            failed = failures(numbers, champions_figures(registry, version.id))
    except ModelError as error:
        failed = [str(error)]
    now = round(wire_unix_ms())
    return Checked(revision=version.id, author=author, unix_ms=now, failures=tuple(failed), numbers=numbers)


def champions_figures(registry: Registry, revision: Revision) -> Mapping[str, float]:
    """Return the figures that a version is held against: of the champion's last check, else of its card. None for the
    champion itself."""
    champion = registry.state.aliases.get("champion")
    if champion is None or champion == revision or champion not in registry.versions:
        return {}
    checked = registry.checks.get(champion)
    measured = {} if checked is None else checked.numbers
    return registry.versions[champion].version.card.evaluations | measured


def _golden(settings: Settings, stored: StoredVersion, numbers: dict[str, float]) -> list[str]:
    """Ask the golden prompts of this machine's engine. Raises `ModelError` where it cannot load the version."""
    from workers.engine.greedy import answer_greedily
    from workers.engine.load_model import load_model

    model = load_model(settings)
    try:
        asked = [answer_greedily(model.engine, [g.prompt_ids], len(g.output_ids))[0] for g in stored.golden.prompts]
    finally:
        model.engine.close()
    numbers["golden"] = round(stored.golden.agreement(asked), 3)
    failure = stored.golden.failure(asked)
    return [] if failure is None else [failure]


async def _evaluated(settings: Settings, stored: StoredVersion, scope: Scope) -> dict[str, float]:
    from ops.evaluation.commands import EvaluationOptions
    from ops.evaluation.program import judged_system
    from ops.lifecycle.versions.figures import figures_of

    options = EvaluationOptions(
        model_dir=stored.path,
        policy="model",  # what the FAQ answers by itself says nothing of a version
        questions=scope.questions,
        faq=scope.faq,
        limit=_QUICK_QUESTIONS if scope.quick else None,
    )
    return figures_of(await judged_system(settings, options))


def _of_version(settings: Settings, stored: StoredVersion) -> Settings:
    """Return the settings of a worker that serves the version alone."""
    prompt = stored.version.system_prompt or settings.worker.system_prompt
    # In no store: the fake engine answers by its folder's name there, which golden prompts were written without.
    alone = {"dir": stored.path, "versions_dir": stored.path}
    return settings.model_copy(
        update={
            "model": settings.model.model_copy(update=alone),
            "worker": settings.worker.model_copy(update={"system_prompt": prompt}),
        }
    )
