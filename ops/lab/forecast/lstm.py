"""An LSTM, which other projects use for forecasts, under the same rule: quantiles by pinball loss, trained again and
again on past values alone.

It is only measured (`replyline forecast`): `make` of models.py does not offer it. Needs the extra `torch`.
"""

from functools import partial
from typing import Any, Final

import numpy as np

from ops.scaling.forecast.features import Vector
from ops.scaling.forecast.forecaster import Forecaster
from ops.scaling.forecast.regressed import Regressed
from ops.scaling.forecast.regression import Predict
from shared.errors import SettingsError
from shared.process.extras import install_command

LSTM: Final = "lstm"
SEEDS: Final = (1, 2, 3)
_SEQUENCE: Final = 36
_REFIT_EVERY: Final = 288
_EPOCHS: Final = 12  # with more it learns the past by heart
_BATCH: Final = 128
_HIDDEN: Final = 24


def torch_is_there() -> bool:
    """Return whether the extra is installed."""
    try:
        _torch()
    except SettingsError:
        return False
    return True


def make_lstm(seed: int, *, bin_s: float) -> Forecaster:
    """Return a new forecaster. Raises `SettingsError` without torch."""
    _torch()

    def fits(quantile: float) -> Any:
        return partial(_fit, quantile=quantile, seed=seed)

    return Regressed(f"{LSTM}-{seed}", fits, bin_s=bin_s, every=_REFIT_EVERY, lags=range(1, _SEQUENCE + 1))


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise SettingsError(f"--model {LSTM} needs torch; type: {install_command('torch')}") from None
    return torch


def _fit(rows: Vector, targets: Vector, quantile: float, seed: int) -> Predict:
    """Train on all rows. The last differences are the LSTM's input; the layers after it get its output and the other
    features."""
    torch = _torch()
    torch.manual_seed(seed)
    mean, scale = rows.mean(axis=0), rows.std(axis=0) + 1e-6
    unit = float(np.std(targets)) + 1e-6

    def tensors(raw: Vector) -> tuple[Any, Any]:
        scaled = torch.tensor((raw - mean) / scale, dtype=torch.float32)
        return scaled[:, 1 : _SEQUENCE + 1].flip(1).unsqueeze(2), scaled[:, _SEQUENCE + 1 :]

    lstm = torch.nn.LSTM(1, _HIDDEN, batch_first=True)
    head = torch.nn.Sequential(
        torch.nn.Linear(_HIDDEN + rows.shape[1] - _SEQUENCE - 1, _HIDDEN), torch.nn.ReLU(), torch.nn.Linear(_HIDDEN, 1)
    )

    def net(sequence: Any, beside: Any) -> Any:
        return head(torch.cat([lstm(sequence)[0][:, -1], beside], dim=1))[:, 0]

    sequences, besides = tensors(rows)
    wanted = torch.tensor(targets / unit, dtype=torch.float32)
    optimizer = torch.optim.AdamW([*lstm.parameters(), *head.parameters()], lr=3e-3, weight_decay=1e-2)
    for _ in range(_EPOCHS):
        for batch in torch.randperm(len(wanted)).split(_BATCH):
            off = wanted[batch] - net(sequences[batch], besides[batch])
            loss = torch.maximum(quantile * off, (quantile - 1) * off).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def predict(row: Vector) -> float:
        with torch.no_grad():
            return float(net(*tensors(row[None]))[0]) * unit

    return predict
