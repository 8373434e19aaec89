"""What a student has learned, step by step, as one SVG file that needs nothing else. Pure."""

from collections.abc import Sequence
from typing import Final, Literal

from ops.measure.plot_file import plot_file
from ops.measure.svg import Plot, linear
from ops.optimize.distill.steps import Step

_WIDTH: Final = 720.0
_HEIGHT: Final = 300.0
_SMOOTHED: Final = 0.9
_STYLE: Final = """\
.each { --c: light-dark(#b9cdbf, #3f5a4c); stroke-width: 1; }
.mean { --c: light-dark(#0b6a4f, #67cfa8); }
"""


def loss_plot(steps: Sequence[Step], kind: Literal["cross-entropy", "kl"]) -> str:
    """Each step's loss and its running mean over the steps."""
    losses = [step.loss for step in steps]
    title = "loss on the answers' tokens, nats: " + (
        "cross-entropy" if kind == "cross-entropy" else "KL to the teacher"
    )
    plot = Plot(
        linear("step", [float(len(steps))]), linear(title, losses), title, width=_WIDTH, height=_HEIGHT, right=90.0
    )
    plot.line([(step.step + 1.0, step.loss) for step in steps], "each", "")
    plot.line([(at + 1.0, value) for at, value in enumerate(running_mean(losses))], "mean", "running mean")
    return plot_file(plot.text(), width=_WIDTH, height=_HEIGHT, style=_STYLE)


def running_mean(values: Sequence[float]) -> list[float]:
    """The exponential mean, without its lean towards zero at the start."""
    means: list[float] = []
    total = weight = 0.0
    for value in values:
        total, weight = _SMOOTHED * total + value, _SMOOTHED * weight + 1
        means.append(total / weight)
    return means
