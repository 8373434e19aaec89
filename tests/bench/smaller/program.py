"""`replyline optimize matrix`: smaller and faster forms of the demo's model, alone and combined, in one table.

The missing forms are prepared first. Each round measures every form in turn: the closed loop of `bench speculation`,
the time of a prompt, and a process for memory and start. Then fp32's answers are compared with each form's predictions,
and a separate system with each form is asked the packaged English questions.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from msgspec import Struct
from rich.console import Console

from ops.evaluation.judging.result import Judged
from ops.evaluation.options import EvaluationOptions
from ops.evaluation.program import judged_system
from ops.lab.optimize.options import PruneOptions
from ops.lab.optimize.prune.program import prune
from ops.lab.texts.calibration_set import KINDS
from ops.model.prepare import DEMO_ADAPTER, prepare_model
from shared.errors import SettingsError
from shared.model.folder import ModelFolder
from shared.settings import PREFIX, Settings
from tests.bench.cell import FAILED, Bench, Figures, standing
from tests.bench.engines.agreement import Forced, compared, fixed_prompts
from tests.bench.engines.experts import agreement, config_of, write
from tests.bench.memory import measured as measured_memory
from tests.bench.smaller.forms import (
    AS_WIDE,
    EXPERTS,
    FP32,
    HEADS,
    INT8,
    NOT_MEASURED,
    ONNX,
    PRUNED,
    STUDENT,
    TAUGHT,
    Form,
    forms_of,
)
from tests.bench.smaller.table import FIRST_TEXT, MEMORY, ROWS, START, Answered, Found, Predicted, page, rows_of, speed
from tests.bench.speculation import ClosedLoop, shop_prompts, with_worker
from tests.support.rows import Rows
from workers.engine import PrefillChunk, Sampling
from workers.engine.load_model import LoadedModel, load_model
from workers.prompt.conversation import Prompt

_LAYERS: Final = 4  # of the experts' example
_LENGTH: Final = 1_024
_FULL_LENGTH: Final = 512  # of the slots whose memory is measured
_FIRST_TOKENS: Final = 100
_REPEATS: Final = 5
_GREEDY: Final = Sampling()


class MatrixOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline optimize matrix`.

    Attributes:
        models: the folder of the prepared forms.
        answers: answers that each closed loop gives.
        prompts: prompts of each kind of text whose predictions are compared.
        questions: English questions asked of each form; None: all.
        taught: the folder of the pruned model after `optimize distill`.
        student: the folder of a student.
        rows_path: the file of the rows.
    """

    models: Path
    answers: int
    prompts: int
    questions: int | None
    taught: Path | None
    student: Path | None
    rows_path: Path | None


async def measure_matrix(settings: Settings, bench: Bench, options: MatrixOptions, console: Console) -> None:
    """Raises `SettingsError`, `ModelError`, `ServiceError`."""
    with tempfile.TemporaryDirectory(prefix="replyline-matrix-") as name:
        scratch = Path(name)
        folders = await asyncio.to_thread(_prepared, options, scratch, console)
        subject = _Subject(with_worker(settings, slots=max(ROWS), max_length=_LENGTH), options)
        forms = forms_of(folders)
        cells = [standing(form.name, partial(subject.measure, form), bases=form.bases) for form in forms]
        measured = await bench.run(cells, console, answers=options.answers)
        found = Found(
            forms=forms,
            measured={one.name: one for one in measured},
            experts=await asyncio.to_thread(agreement, scratch / "experts", ModelFolder.open(folders[EXPERTS])),
            missing={each: why for each, why in NOT_MEASURED.items() if each not in folders},
        )
        console.print("comparing predictions", markup=False)
        found.predicted = await asyncio.to_thread(subject.predicted, [form for form in forms if form.answers])
        subject.close()
        for form in forms:
            if form.answers:
                console.print(f"asking {form.name}", markup=False)
                found.answered = {**found.answered, form.name: await _answered(settings, form, options, console)}
    print(page(found))
    rows = Rows(options.rows_path)
    for row in rows_of(found):
        rows.found(row.row, figure=row.figure, target=row.target, holds=row.holds)


def _prepared(options: MatrixOptions, scratch: Path, console: Console) -> dict[str, Path]:
    """Return each form's folder, by its name; prepare what is missing. Raises `ModelError`, `SettingsError`."""
    models = options.models
    demo = partial(prepare_model, models, adapter=DEMO_ADAPTER)
    int8 = demo("int8").path
    given = {TAUGHT: options.taught, STUDENT: options.student}
    check_vocabularies([folder for folder in given.values() if folder is not None], int8)
    folders = {FP32: demo("fp32").path, INT8: int8, ONNX: int8}
    sizes: dict[str, dict[str, Any]] = {PRUNED: {"texts": 4}, HEADS: {"kv_groups": 2}}
    for name, size in sizes.items():
        source = models / name.rpartition(", ")[2].replace(" ", "-")
        if not (source / "config.json").is_file():
            prune(PruneOptions(out=source, **size), console)
        folders[name] = prepare_model(models, "int8", source=source, languages=("en",)).path
    for name, experts in ((EXPERTS, True), (AS_WIDE, False)):
        source = scratch / ("experts" if experts else "as-wide")
        write(source, config_of(_LAYERS, experts=experts))
        folders[name] = prepare_model(scratch / "models", "int8", source=source).path
    return folders | {name: folder for name, folder in given.items() if folder is not None}


def check_vocabularies(folders: Sequence[Path], demo: Path) -> None:
    """Raise `SettingsError` for a model whose predictions cannot be compared with the demo's model's."""
    wanted = ModelFolder.open(demo).manifest.architecture.vocab_size
    for folder in folders:
        found = ModelFolder.open(folder).manifest.architecture.vocab_size
        if found != wanted:
            raise SettingsError(
                f"{folder}: has {found} tokens, the demo's model {wanted}; name a model with the same vocabulary"
            )


@dataclass(slots=True)
class _Subject:
    """The loaded models, by engine and folder, the prompts, and each model's answers without lookup."""

    settings: Settings
    options: MatrixOptions
    models: dict[tuple[str, Path], LoadedModel] = field(default_factory=dict)
    prompts: list[Prompt] = field(default_factory=list)
    texts: dict[tuple[str, Path], list[list[int]]] = field(default_factory=dict)

    async def measure(self, form: Form, number: int) -> Figures:
        """Return one round's figures of a form. Raises `ServiceError`."""
        del number
        figures = await asyncio.to_thread(self._measured, form)
        if form.looks_up:
            return figures
        env = {
            f"{PREFIX}WORKER__ENGINE": form.engine,
            f"{PREFIX}MODEL__DIR": str(form.folder),
            f"{PREFIX}WORKER__SLOTS": str(max(ROWS)),
            f"{PREFIX}WORKER__MAX_LENGTH": str(_FULL_LENGTH),
        }
        memory = await measured_memory(env)
        return {**figures, MEMORY: memory.full_mib, START: memory.load_s}

    def _measured(self, form: Form) -> dict[str, float | None]:
        model, key = self._model(form), (form.engine, form.folder)
        settings = with_worker(self._settings(form), speculation="own" if form.looks_up else "off")
        figures: dict[str, float | None] = {}
        differing = 0
        for rows in ROWS:
            run = ClosedLoop(settings, model, rows)
            run.answer(self.prompts)
            figures[speed(rows)] = run.tokens / run.seconds
            if form.engine == "native":  # float products of ONNX Runtime depend on the number of rows
                texts = self.texts.setdefault(key, run.texts)
                differing += sum(one != other for one, other in zip(texts, run.texts, strict=True))
        if not form.looks_up:
            figures[FIRST_TEXT] = 1e3 * median(_first_text_s(model) for _ in range(_REPEATS))
        return figures | {FAILED: float(differing)}

    def predicted(self, forms: Sequence[Form]) -> dict[str, dict[str, Predicted]]:
        """Return each form's predictions over fp32's answers, by kind of text."""
        engines: dict[str, Any] = {form.name: self._model(form).engine for form in forms}
        original = engines.pop(FP32)
        folder = ModelFolder.open(next(form.folder for form in forms if form.name == FP32))
        found: dict[str, dict[str, Predicted]] = {}
        for kind in KINDS:
            prompts = fixed_prompts(folder, self.options.prompts, (kind,))
            for name, forced in compared(original, engines, prompts).items():
                found.setdefault(name, {})[kind] = _predicted(forced)
        return found

    def close(self) -> None:
        for model in self.models.values():
            model.engine.close()
        self.models.clear()

    def _settings(self, form: Form) -> Settings:
        settings = with_worker(self.settings, engine=form.engine)
        return settings.model_copy(update={"model": settings.model.model_copy(update={"dir": form.folder})})

    def _model(self, form: Form) -> LoadedModel:
        key = (form.engine, form.folder)
        if key not in self.models:
            self.models[key] = load_model(self._settings(form))
            if not self.prompts:
                self.prompts = shop_prompts(self.settings, self.models[key], self.options.answers)
        return self.models[key]


def _first_text_s(model: LoadedModel) -> float:
    """Return the seconds of a prompt's call, which gives the answer's first token."""
    ids = [token % model.tokenizer.vocab_size for token in range(300, 300 + _FIRST_TOKENS)]
    begun_s = time.perf_counter()
    model.engine.prefill([PrefillChunk(slot=0, past=0, token_ids=ids, sampling=_GREEDY)])
    return time.perf_counter() - begun_s


def _predicted(forced: Forced) -> Predicted:
    return Predicted(same=sum(forced.same), places=len(forced.same), nats=sum(forced.nats) / len(forced.nats))


async def _answered(settings: Settings, form: Form, options: MatrixOptions, console: Console) -> Answered:
    """Ask a separate system with this form. Raises `ServiceError`, `ConnectFailed`."""
    asking = EvaluationOptions(split="all", language="en", model_dir=form.folder, limit=options.questions)
    return counted(await judged_system(with_worker(settings, engine=form.engine), asking, console))


def counted(judged: Sequence[Judged]) -> Answered:
    """Return the counts of judged answers."""

    def right(some: Sequence[Judged]) -> int:
        return sum(one.verdict.right for one in some)

    by_model = [one for one in judged if one.given.by_model]
    held_out = [one for one in judged if one.question.split == "held_out"]
    sku = [one for one in judged if one.question.kind == "sku"]
    return Answered(
        asked=len(judged),
        right=right(judged),
        invented=sum(bool(one.verdict.invented) for one in judged),
        by_model=len(by_model),
        by_model_right=right(by_model),
        held_out=len(held_out),
        held_out_right=right(held_out),
        sku=len(sku),
        sku_right=right(sku),
    )
