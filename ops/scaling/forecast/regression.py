"""Linear regression of a quantile, with a ridge penalty. Pure.

The quantile's loss is smoothed by a logistic kernel, so that Newton's method finds the minimum in a few steps
(convolution smoothing: He, Pan, Tan and Zhou, "Smoothed quantile regression with large-scale inference", Journal of
Econometrics 2023)."""

from collections.abc import Callable
from typing import Final

import numpy as np

from ops.scaling.forecast.features import Vector

Predict = Callable[[Vector], float]

_RIDGE: Final = 0.01  # for each row, of weights in standard deviations
_BANDWIDTH: Final = 0.1  # in standard deviations of the target
_MOST_STEPS: Final = 30
_SHORTEST_STEP: Final = 1e-3
_CONSTANT: Final = 1e-9  # a column's deviation below which it says nothing


def fit_quantile(rows: Vector, targets: Vector, quantile: float) -> Predict:
    """Fit the quantile; the first column of `rows` is 1."""
    scaled, mean, scale = _scaled(rows)
    penalty = _penalty(rows)
    width = max(_BANDWIDTH * float(np.std(targets)), 1e-3)

    def loss(weights: Vector) -> float:
        off = targets - scaled @ weights
        return float((width * np.logaddexp(0.0, -off / width) + quantile * off).sum() + weights @ penalty @ weights / 2)

    weights = np.zeros(rows.shape[1])
    weights[0] = np.quantile(targets, quantile)
    current = loss(weights)
    for _ in range(_MOST_STEPS):
        below = 1.0 / (1.0 + np.exp(np.clip((targets - scaled @ weights) / width, -50.0, 50.0)))
        gradient = scaled.T @ (below - quantile) + penalty @ weights
        curve = np.maximum(below * (1.0 - below) / width, 1e-3)
        step = np.linalg.solve((scaled * curve[:, None]).T @ scaled + penalty, gradient)
        share = 1.0
        while share > _SHORTEST_STEP and loss(weights - share * step) >= current:
            share /= 2
        before, current = current, loss(weights - share * step)
        if current >= before:
            break
        weights -= share * step
        if before - current < 1e-6 * abs(before):
            break
    return lambda row: float((row - mean) / scale @ weights)


def _scaled(rows: Vector) -> tuple[Vector, Vector, Vector]:
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    mean[0], scale[0] = 0.0, 1.0
    scale[scale < _CONSTANT] = 1.0
    return (rows - mean) / scale, mean, scale


def _penalty(rows: Vector) -> Vector:
    penalty = _RIDGE * len(rows) * np.eye(rows.shape[1])
    penalty[0, 0] = 1e-9
    return penalty
