"""The forms of a model that the matrix compares: what was done to each, and why others are not measured. Pure."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

FP32: Final = "fp32"
INT8: Final = "int8"
ONNX: Final = "int8, onnx"
PRUNED: Final = "int8, pruned"
HEADS: Final = "int8, a third of the heads removed"
TAUGHT: Final = "int8, pruned and distilled"
STUDENT: Final = "int8, a student of half the size"
EXPERTS: Final = "int8, experts"
AS_WIDE: Final = "int8, as wide as two experts"
LOOKUP: Final = " + lookup"

NOT_MEASURED: Final = {
    TAUGHT: "distilling needs torch; prepare the result as docs/models.md says, and add --taught",
    STUDENT: "no student of that size has been trained; with one, add --student",
    "4 bits": "no adapter can be merged into them, so they do not answer the shop's questions",
    "2:4 sparsity": "only a GPU's tensor cores skip the zeros",
    "TensorRT's INT8 and FP8 of the MLP": "needs a GPU",
    "a draft model": "no model with this vocabulary is much smaller",
    "llama.cpp's divergence at as many bytes": "its logits are not read",
    "answers in deadline with lookup, in virtual time": "the simulated worker looks nothing up",
}
"""What is not measured, and why. `--taught` and `--student` name the folders of the first two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A prepared folder, the engine that computes it, and whether tokens are looked up.

    Attributes:
        name: what was done to the model.
        engine: the engine.
        folder: the prepared folder.
        bases: the forms that its figures are divided by.
        looks_up: several tokens of an answer are looked up and verified in a step.
        answers: the shop's questions are asked of it, and its predictions compared with fp32's.
    """

    name: str
    engine: Literal["onnx", "native"]
    folder: Path
    bases: tuple[str, ...] = ()
    looks_up: bool = False
    answers: bool = True

    def with_lookup(self) -> "Form":
        """Return the same model with tokens looked up: its texts, agreement and memory are those without."""
        bases = tuple(dict.fromkeys((self.name, *self.bases)))
        return Form(
            name=self.name + LOOKUP, engine=self.engine, folder=self.folder, bases=bases, looks_up=True, answers=False
        )


def forms_of(folders: dict[str, Path]) -> list[Form]:
    """Return the forms of the prepared folders, by their names; a name without a folder has none."""
    engines: dict[str, tuple[Literal["onnx", "native"], tuple[str, ...]]] = {
        FP32: ("onnx", ()),
        ONNX: ("onnx", (FP32,)),
        INT8: ("native", (FP32,)),
        HEADS: ("native", (INT8,)),
        PRUNED: ("native", (INT8, FP32)),
        TAUGHT: ("native", (INT8, FP32)),
        STUDENT: ("native", (INT8, FP32)),
        AS_WIDE: ("native", ()),
        EXPERTS: ("native", (AS_WIDE,)),
    }
    forms: list[Form] = []
    for name, (engine, bases) in engines.items():
        if (folder := folders.get(name)) is None:
            continue
        random = name in {EXPERTS, AS_WIDE}
        forms.append(Form(name=name, engine=engine, folder=folder, bases=bases, answers=not random))
        if engine == "native" and not random and name != HEADS:
            forms.append(forms[-1].with_lookup())
    return forms
