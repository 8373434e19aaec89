"""`replyline optimize quantize`: calibrate, fit, search, measure, and publish or refuse."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from ops.measure.runner import check_writable, write_json
from ops.model.numerics.answers import greedy_answers
from ops.model.numerics.evaluate import Case, Score, Yardstick, answer_case, question, text_case
from ops.model.numerics.exclusion import chosen, fewest_worst
from ops.model.numerics.plan import Left, Place, Plan, in_memory, left_option, make_plan, parse_left, weight_bytes
from ops.model.numerics.samples import collect
from ops.model.prepare import default_source, prepare_model
from ops.optimize.publish import publish
from ops.optimize.recorded_texts import recorded_texts
from ops.optimize.report import PlaceReport, Report, SearchReport, show
from ops.texts.calibration_set import KINDS, CalibrationSet, CalibrationText, calibration_set, read_texts, shares
from ops.texts.conversations import load_conversations
from ops.texts.demo_texts import demo_texts
from ops.traces.recording import is_recording, parse_recording
from shared.errors import SettingsError
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.model.tokenizer import Tokenizer
from shared.process.lifetime import fail
from workers.graph.eight_bit.grids import GRIDS, GridName
from workers.graph.sources.opening import open_source
from workers.loading import chat_template

DEMO: Final = "demo"
_ANSWER_TOKENS: Final = 32
# Of the calibration, by which is searched: the held-out texts judge once.
_SEARCH_TEXTS: Final = 36
# The search aims higher than the bound: by what two samples of texts differ. It does not aim higher than what 8-bit
# weights alone reach, less what may be chance.
_SEARCH_MARGIN: Final = 0.01
_SEARCH_ERROR: Final = 0.003
_MOST_EVALUATIONS: Final = 12
_NAMED_PLACES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeOptions:
    """`calibration` is a JSONL file, a recording or "demo"; `source` as `replyline model prepare` takes it, its float32
    model kept in `models`; `exclude` is auto, none, or `layer:matrix` of those whose activations stay as they are
    (`layer:matrix:fp16`: the weights too); `texts` are calibrated with, `held_out` of each kind measured by.
    `attention` has the weights of the projections around attention in 8 bits too, `compare` calibrates once more,
    without rare texts. `mlp` is what products become, `primitive` has the graph be for TensorRT before 10.15."""

    calibration: str
    out: Path
    source: Path | None
    models: Path
    bound: float
    exclude: str
    max_length: int
    texts: int
    held_out: int
    seed: int
    attention: bool
    compare: bool
    mlp: GridName = "int8"
    primitive: bool = False
    json_path: Path | None


def quantize(options: QuantizeOptions, console: Console) -> int:
    """Returns the exit status: 1, and nothing published, where the result is below the bound.

    Raises `SettingsError` for a calibration set or an option that will not do, `json_path` among them, `ModelError` for
    a source.
    """
    check_writable(options.json_path)
    texts = _texts(options.calibration, console)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        return _Run(options, console, bar).run(texts)


def _texts(calibration: str, console: Console) -> list[CalibrationText]:
    if calibration == DEMO:
        return demo_texts(read_entries(PACKAGED_PATH), load_conversations())
    try:
        data = Path(calibration).read_bytes()
    except OSError as error:
        raise SettingsError(
            f"--calibration {calibration}: {error.strerror}; give a JSONL file, a recording, or {DEMO}"
        ) from None
    if not is_recording(data):
        return read_texts(data, calibration)
    recording = parse_recording(data, calibration)
    if recording.broken_off:
        console.print(recording.broken_off, soft_wrap=True, highlight=False)
    return recorded_texts(recording)


class _Run:
    """What the steps share: the float32 model, as the CPU engine runs it and in memory, and how it frames a text."""

    def __init__(self, options: QuantizeOptions, console: Console, bar: Progress) -> None:
        self._options, self._console, self._bar = options, console, bar
        self._task = bar.add_task("preparing the float32 model", total=1.0)
        self._folder = prepare_model(options.models, "fp32", source=options.source)
        self._architecture = self._folder.manifest.architecture
        if options.max_length > self._architecture.max_positions:
            raise SettingsError(
                f"--max-length {options.max_length}: {self._folder.manifest.name} has "
                f"{self._architecture.max_positions} positions"
            )
        tokenizer = Tokenizer.load(self._folder.path)
        self._count = tokenizer.count
        self._template = chat_template(tokenizer, self._folder.manifest.chat_template)
        self._checkpoint = in_memory(open_source(options.source or default_source()).checkpoint)

    def run(self, texts: Sequence[CalibrationText]) -> int:
        """All steps; the exit status."""
        options = self._options
        automatic = options.exclude == "auto"
        given = "" if automatic or options.exclude == "none" else options.exclude
        left = parse_left(given, self._architecture)
        fitting = [text for text in texts if self._fits(text)]
        sets = self._sets(fitting, with_rare=True)
        plan = self._plan(sets.calibration, "calibrating")
        trials: list[SearchReport] = []
        if automatic:
            asked = _spread(sets.calibration, _SEARCH_TEXTS)
            search = Yardstick.of(self._checkpoint, self._answered(asked, "answering the search's texts"))
            trials, left = self._search(plan, search)
        said = [text_case(text, self._template) for text in sets.held_out]
        answered = self._answered(sets.held_out, "answering the held-out texts")
        held_out = Yardstick.of(self._checkpoint, [*said, *answered])
        scores = self._scores(held_out, plan, left)
        without_rare = None
        if options.compare:
            common = self._plan(self._sets(fitting, with_rare=False).calibration, "calibrating without rare texts")
            without_rare = self._scores(held_out, common, left)
        report = self._report(sets, plan, trials, left, scores, without_rare)
        show(report, self._console)
        write_json(options.json_path, report)
        return self._published(plan, report, left)

    def _fits(self, text: CalibrationText) -> bool:
        return len(question(text, self._template)) + _ANSWER_TOKENS <= self._options.max_length

    def _sets(self, texts: Sequence[CalibrationText], *, with_rare: bool) -> CalibrationSet:
        options = self._options
        return calibration_set(
            texts,
            self._count,
            name=f"--calibration {options.calibration}",
            count=options.texts,
            held_out=options.held_out,
            seed=options.seed,
            with_rare=with_rare,
        )

    def _plan(self, texts: Sequence[CalibrationText], step: str) -> Plan:
        token_ids = [text_case(text, self._template).token_ids for text in texts]
        samples = collect(self._checkpoint, token_ids, self._step(step), attention=self._options.attention)
        return make_plan(self._checkpoint, samples, self._step("fitting steps and factors"), GRIDS[self._options.mlp])

    def _answered(self, texts: Sequence[CalibrationText], step: str) -> list[Case]:
        """The float32 model's own answers to the customers among `texts`."""
        asked = [text for text in texts if text.role == "user"]
        prompts = [question(text, self._template) for text in asked]
        answers = greedy_answers(self._folder, prompts, num_tokens=_ANSWER_TOKENS, progress=self._step(step))
        return [answer_case(*case) for case in zip([text.kind for text in asked], prompts, answers, strict=True)]

    def _search(self, plan: Plan, search: Yardstick) -> tuple[list[SearchReport], dict[str, Left]]:
        """First the activations of the worst places stay as they are; where that is not enough, their weights too."""
        ranked = _ranked(plan)
        told: list[SearchReport] = []
        self._step("searching what to leave out")(0.0)

        def agreement(weights_alone: Sequence[Place], fp16: Sequence[Place]) -> float:
            left = _left(weights_alone, "weights") | _left(fp16, "fp16")
            found = search.scores(*plan.at(left))["all"].answer_agreement
            told.append(SearchReport(weights_alone=len(weights_alone), fp16=len(fp16), agreement=found))
            self._console.print(
                f"of {len(ranked)} places {len(weights_alone)} with 8-bit weights alone, {len(fp16)} in fp16: "
                f"agreement {found:.4f}"
            )
            return found

        bound = self._options.bound
        aim = min(1.0, bound + _SEARCH_MARGIN)
        best = agreement(ranked, ())
        if best >= bound:
            aim = min(aim, best - _SEARCH_ERROR)
            trials = fewest_worst(
                ranked, lambda worst: agreement(worst, ()), aim=aim, most_evaluations=_MOST_EVALUATIONS
            )
            return told, _left(ranked[: chosen(trials).excluded], "weights")
        trials = fewest_worst(
            ranked, lambda worst: agreement(ranked[len(worst) :], worst), aim=aim, most_evaluations=_MOST_EVALUATIONS
        )
        count = chosen(trials).excluded
        return told, _left(ranked[count:], "weights") | _left(ranked[:count], "fp16")

    def _scores(self, held_out: Yardstick, plan: Plan, left: Mapping[str, Left]) -> dict[str, Score]:
        self._step("measuring on the held-out texts")(0.0)
        return held_out.scores(*plan.at(left))

    def _report(
        self,
        sets: CalibrationSet,
        plan: Plan,
        trials: Sequence[SearchReport],
        left: Mapping[str, Left],
        scores: Mapping[str, Score],
        without_rare: Mapping[str, Score] | None,
    ) -> Report:
        options = self._options
        memory = weight_bytes(self._architecture, frozenset(plan.at(left)[1]))
        return Report(
            model=self._folder.manifest.name,
            mlp=options.mlp,
            seed=options.seed,
            bound=options.bound,
            calibration=options.calibration,
            calibration_texts=len(sets.calibration),
            calibration_shares=shares(sets.calibration),
            excluded=left_option(left, self._architecture),
            weights_bytes=memory,
            weights_share=memory / weight_bytes(self._architecture, frozenset()),
            scores=scores,
            scores_without_rare=without_rare,
            search=tuple(trials),
            places=tuple(
                PlaceReport(
                    layer=place.layer,
                    place=place.name,
                    error=fitted.error,
                    saturation=fitted.saturation,
                    strength=fitted.strength,
                    clip=fitted.clip,
                    step=fitted.step,
                    left={name: left[name] for name in place.linears if name in left},
                )
                for place, fitted in plan.fitted.items()
            ),
        )

    def _published(self, plan: Plan, report: Report, left: Mapping[str, Left]) -> int:
        options = self._options
        lowest = min(report.scores, key=lambda name: report.scores[name].answer_agreement)
        agreement = report.scores[lowest].answer_agreement
        if not agreement >= options.bound:
            more = _more(left, _ranked(plan))
            return fail(
                f"agreement {agreement:.4f} on the slice {lowest!r} is below --bound {options.bound}: nothing was "
                f"published; leave more out: --exclude {left_option(more, self._architecture)}",
                1,
            )
        checkpoint, rounded = plan.at(left)
        folder = publish(
            options.out,
            self._folder,
            checkpoint,
            rounded,
            report,
            max_length=options.max_length,
            primitive=options.primitive,
            progress=self._step("writing the model"),
        )
        self._console.print(f"model ready: {folder.path}")
        return 0

    def _step(self, name: str) -> Callable[[float], None]:
        self._bar.update(self._task, description=name, completed=0.0)
        return lambda fraction: self._bar.update(self._task, completed=fraction)


def _left(worst: Sequence[Place], how: Left) -> dict[str, Left]:
    return {name: how for place in worst for name in place.linears}


def _ranked(plan: Plan) -> list[Place]:
    """The place whose products err most first."""
    return sorted(plan.fitted, key=lambda place: -plan.fitted[place].error)


def _more(left: Mapping[str, Left], ranked: Sequence[Place]) -> dict[str, Left]:
    """A few of the worst places more: their activations first, and where none is left to spare, their weights."""
    rounded = [place for place in ranked if any(name not in left for name in place.linears)]
    if rounded:
        return {**_left(rounded[:_NAMED_PLACES], "weights"), **left}
    weights = [place for place in ranked if any(left[name] == "weights" for name in place.linears)]
    return {**left, **_left(weights[:_NAMED_PLACES], "fp16")}


def _spread(texts: Sequence[CalibrationText], count: int) -> list[CalibrationText]:
    """Messages of customers, the kinds taking turns."""
    by_kind = [[text for text in texts if text.kind == kind and text.role == "user"] for kind in KINDS]
    return [text for turn in zip_longest(*by_kind) for text in turn if text is not None][:count]
