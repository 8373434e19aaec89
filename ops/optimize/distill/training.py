"""Learning, step by step: AdamW on what LoRA adds, from answers (cross-entropy) or from a teacher (KL).

What is learned depends on the recipe and the lessons alone: a run that was ended and went on from its last checkpoint
ends with the numbers of one that was not (on the same machine, with as many threads).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import torch
from msgspec import Struct
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as everyone calls it

from ops.optimize.distill.batches import learning_rate, plan_batches
from ops.optimize.distill.decoder import LowRank, TrainedDecoder
from ops.optimize.distill.examples import Lesson
from ops.optimize.distill.steps import Recipe, Step
from ops.optimize.distill.tensors import write_tensors
from shared.errors import ModelError
from workers.graph.sources.safetensors import metadata_of, tensors_of

_PROGRESS: Final = "progress"
_MOMENTS: Final = ("exp_avg", "exp_avg_sq")


class _Kept(Struct, frozen=True, kw_only=True):
    """What a checkpoint says of itself."""

    recipe: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """`ids` `[B, T]`; `wanted` `[B, T]` marks the tokens behind which `targets` `[N]` are to come."""

    ids: Tensor
    wanted: Tensor
    targets: Tensor

    @classmethod
    def of(cls, lessons: Sequence[Lesson], device: torch.device) -> "Batch":
        width = max(len(lesson.ids) for lesson in lessons)
        ids = np.zeros((len(lessons), width), np.int64)
        wanted = np.zeros((len(lessons), width), bool)
        for row, lesson in enumerate(lessons):
            ids[row, : len(lesson.ids)] = lesson.ids
            wanted[row, lesson.start - 1 : len(lesson.ids) - 1] = True
        targets = np.concatenate([np.asarray(lesson.ids[lesson.start :], np.int64) for lesson in lessons])
        return cls(*(torch.from_numpy(values).to(device) for values in (ids, wanted, targets)))


class Training:
    """A student in the making. `student` has its `low_rank`; `teacher` is None for cross-entropy."""

    def __init__(
        self, recipe: Recipe, student: TrainedDecoder, lessons: Sequence[Lesson], teacher: TrainedDecoder | None = None
    ) -> None:
        self.recipe = recipe
        self.steps: list[Step] = []
        self._student = student
        self._teacher = teacher
        self._lessons = lessons
        lengths = [len(lesson.ids) for lesson in lessons]
        self.batches = plan_batches(lengths, tokens=recipe.batch_tokens, epochs=recipe.epochs, seed=recipe.seed)
        if student.low_rank is None:
            student.low_rank = LowRank.fresh(
                student.architecture, rank=recipe.rank, alpha=recipe.alpha, seed=recipe.seed, device=student.device
            )
        self.low_rank = student.low_rank
        self._optimizer = torch.optim.AdamW(self.low_rank.parameters(), weight_decay=recipe.weight_decay)

    def run(self) -> Iterator[Step]:
        """The steps that are still to do, each as it is done."""
        while len(self.steps) < len(self.batches):
            yield self._step()

    def _step(self) -> Step:
        recipe, number = self.recipe, len(self.steps)
        rate = learning_rate(
            number,
            steps=len(self.batches),
            peak=recipe.learning_rate,
            warmup=max(1, round(recipe.warmup_share * len(self.batches))),
        )
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        batch = Batch.of([self._lessons[index] for index in self.batches[number]], self._student.device)
        loss, agreement = self._loss(batch)
        self._optimizer.zero_grad()
        loss.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(self.low_rank.parameters(), recipe.clip))
        if not np.isfinite(norm):
            raise ModelError(
                f"step {number}: the gradient is {norm}, so nothing more can be learned; lower --learning-rate"
            )
        self._optimizer.step()
        step = Step(
            step=number,
            loss=round(float(loss.detach()), 6),
            agreement=round(agreement, 4),
            learning_rate=rate,
            gradient_norm=round(norm, 4),
            tokens=len(batch.targets),
        )
        self.steps.append(step)
        return step

    def _loss(self, batch: Batch) -> tuple[Tensor, float]:
        """The loss, and the share of tokens that the student would choose as its example (or teacher) has them."""
        logits = self._student.logits(batch.ids, batch.wanted)
        if self._teacher is None:
            wanted = batch.targets
            loss = F.cross_entropy(logits, batch.targets)
        else:
            with torch.no_grad():
                taught = F.log_softmax(self._teacher.logits(batch.ids, batch.wanted), -1)
            wanted = taught.argmax(-1)
            loss = F.kl_div(F.log_softmax(logits, -1), taught, log_target=True, reduction="batchmean")
        return loss, float((logits.detach().argmax(-1) == wanted).float().mean())

    def save(self, path: Path) -> None:
        """Write what `resume` goes on from, whole or not at all."""
        tensors: dict[str, Any] = {}
        for name, parameter in self._named():
            tensors[name] = parameter.detach().cpu().numpy()
            for moment, value in self._optimizer.state.get(parameter, {}).items():
                if moment in _MOMENTS:
                    tensors[f"{name}.{moment}"] = value.cpu().numpy()
        kept = _Kept(recipe=self.recipe.digest, steps=tuple(self.steps))
        write_tensors(path, tensors, {_PROGRESS: msgspec.json.encode(kept).decode()})

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint. Raises `ModelError` where it is damaged or of another recipe."""
        try:
            kept = msgspec.json.decode(metadata_of(path).get(_PROGRESS, ""), type=_Kept)
        except msgspec.MsgspecError as error:
            raise ModelError(f"{path} is no checkpoint of a training ({error}); begin without --resume") from error
        if kept.recipe != self.recipe.digest:
            raise ModelError(
                f"{path} was begun with other examples, models or options; give the same, or begin without --resume"
            )
        tensors = tensors_of(path)
        with torch.no_grad():
            for name, parameter in self._named():
                read: Callable[[str], Tensor] = lambda key: torch.from_numpy(tensors[key].read().copy())  # noqa: E731
                parameter.copy_(read(name))
                if kept.steps:
                    moments = {moment: read(f"{name}.{moment}").to(parameter.device) for moment in _MOMENTS}
                    self._optimizer.state[parameter] = {"step": torch.tensor(float(len(kept.steps))), **moments}
        self.steps = list(kept.steps)

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        for part, tensors in (("down", self.low_rank.down), ("up", self.low_rank.up)):
            for name, tensor in tensors.items():
                yield f"{name}.{part}", tensor
