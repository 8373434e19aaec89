"""Examine a version before its first customer: its files, its golden prompts, the evaluation and guard questions."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, json
from msgspec.structs import replace
from rich.console import Console

from ops.evaluation.judging.result import Judged
from shared.errors import ModelError, SettingsError, VersionError
from shared.nouns import counted
from shared.process.clock import wire_unix_ms
from shared.settings import Settings
from shared.versions.registry import Checked, Registry
from shared.versions.store import StoredVersion, open_version
from shared.versions.version import Version
from shared.wire.lanes import CHAMPION

_QUICK_QUESTIONS: Final = 24


class Scope(Struct, frozen=True, kw_only=True):
    """The questions of a check.

    Attributes:
        quick: ask a sample only
        questions: the questions' file; None for that of the setting `model.questions`
        faq: the FAQ's file; None for the default of `replyline eval`
    """

    quick: bool = False
    questions: Path | None = None
    faq: Path | None = None

    @property
    def whole(self) -> bool:
        """Return whether the named set is asked, at its full size."""
        return not self.quick and self.questions is None and self.faq is None


async def check(settings: Settings, registry: Registry, version: Version, scope: Scope, *, author: str) -> Checked:
    """Return what was found. A version whose files or golden prompts fail is asked no questions.

    Raises `SettingsError` if this machine's engine cannot be asked or the whole set is too small, `ServiceError` if no
    separate system can be started, `VersionError` if the version is not in this machine's store, which says nothing of
    it.
    """
    checked = Checked(revision=version.id, author=author, unix_ms=round(wire_unix_ms()), whole=scope.whole)
    try:
        stored = open_version(settings.model, version.id, expected=version)
        numbers, failure = _golden(_of_version(settings, stored), stored)
        if failure is not None:
            return replace(checked, failures=(failure,), numbers=numbers)
        judged = await _judged(_of_version(settings, stored), stored, scope)
    except ModelError as error:
        if isinstance(error, VersionError) and error.reason == "not in this store":
            raise
        return replace(checked, failures=(str(error),))
    return verdict_of(replace(checked, numbers=numbers), judged, registry, settings.model.least_right)


def verdict_of(checked: Checked, judged: Sequence[Judged], registry: Registry, least_right: float) -> Checked:
    """Return a check with its answers judged against the floor, and against the champion's check if that asked the same
    questions. A check of the whole set fails if the champion was not checked with the whole set. A question that occurs
    several times counts once. Raises `SettingsError` if the whole set is too small to judge by. Pure."""
    from ops.lifecycle.checking.figures import LEAST_QUESTIONS, below_floor, different, outcomes_of, shares_of, worse

    judged = different(judged)
    if len(judged) < LEAST_QUESTIONS and checked.whole:
        few = counted(len(judged), "different question")
        raise SettingsError(f"{few} cannot show a loss of five points; name a set of at least {LEAST_QUESTIONS}")
    outcomes = outcomes_of(judged)
    digest = hashlib.sha256(json.encode([one.question for one in judged])).hexdigest()
    failures = below_floor(outcomes, least_right)
    champion = registry.state.aliases.get(CHAMPION, checked.revision)
    theirs = registry.check(champion)
    if champion != checked.revision and theirs is not None and theirs.questions_sha256 == digest:
        failures += worse(outcomes, theirs.outcomes)
    elif champion != checked.revision and checked.whole:
        failures.append(f"the champion was asked other questions; first run: replyline versions check {champion}")
    numbers = checked.numbers | shares_of(outcomes)
    return replace(checked, failures=tuple(failures), numbers=numbers, questions_sha256=digest, outcomes=outcomes)


def _golden(settings: Settings, stored: StoredVersion) -> tuple[dict[str, float], str | None]:
    """Ask the golden prompts of this machine's engine; return the agreement, and why it is too little. Raises
    `ModelError` if the engine cannot load the version."""
    from workers.engine.greedy import answer_greedily
    from workers.engine.load_model import load_model

    model = load_model(settings)
    try:
        asked = [answer_greedily(model.engine, [g.prompt_ids], len(g.output_ids))[0] for g in stored.golden.prompts]
    finally:
        model.engine.close()
    return {"golden": round(stored.golden.agreement(asked), 3)}, stored.golden.failure(asked)


async def _judged(settings: Settings, stored: StoredVersion, scope: Scope) -> Sequence[Judged]:
    from ops.evaluation.options import EvaluationOptions
    from ops.evaluation.program import judged_system

    questions = scope.questions or settings.model.questions
    options = EvaluationOptions(
        split="held_out" if questions is None else "all",
        model_dir=stored.path,
        policy="model",  # what the FAQ answers by itself says nothing of a version
        questions=questions,
        faq=scope.faq,
        limit=_QUICK_QUESTIONS if scope.quick else None,
    )
    return await judged_system(settings, options, Console(stderr=True))


def _of_version(settings: Settings, stored: StoredVersion) -> Settings:
    """Return the settings of a worker that serves the version alone."""
    prompt = stored.version.system_prompt or settings.worker.system_prompt
    # Outside the store: in it the fake engine's answers depend on the folder's name, and the golden prompts' do not.
    alone = {"dir": stored.path, "versions_dir": stored.path}
    return settings.model_copy(
        update={
            "model": settings.model.model_copy(update=alone),
            "worker": settings.worker.model_copy(update={"system_prompt": prompt}),
        }
    )
