"""The costs of a virtual engine's step: a table measured on a CPU, one for a GPU, or a worker's own file. Pure."""

from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from ops.traces.mixes import PROFILES, Promise
from shared.errors import SettingsError
from shared.nouns import counted
from workers.schedule.costs import CostTable

Profile = Literal["cpu", "gpu"]

_STEP_OVERHEAD_MS: Final = 0.2  # for planning, detokenizing and publishing; measured with the CPU engine


class EngineCosts(Struct, frozen=True, kw_only=True):
    """The laws of `workers/schedule/costs.py` with fixed coefficients, and the cost of a step in addition to its calls.

    `profile` says which of the product's deadlines fit this machine, `promised` what an operator promises instead.
    """

    name: str
    source: str
    profile: Profile
    table: CostTable
    step_overhead_ms: float = _STEP_OVERHEAD_MS
    promised: Promise | None = None

    @property
    def promise(self) -> Promise:
        return self.promised or PROFILES[self.profile]

    def times(self, share: float) -> "EngineCosts":
        """Return the costs of an engine whose calls take `share` of the time."""
        laws = {name: getattr(self.table, name) * share for name in CostTable.__struct_fields__ if "_ms" in name}
        return msgspec.structs.replace(self, table=msgspec.structs.replace(self.table, **laws))

    def decode_ms(self, rows: int, context: int) -> float:
        """Return the time of one decode call. `context` is the sum of the tokens in its rows' slots."""
        table = self.table
        return table.decode_ms + table.decode_ms_per_row * rows + table.decode_ms_per_context_token * context

    def prefill_ms(self, tokens: int, *, past: int = 0, rows: int = 1) -> float:
        """Return the time of one prefill call. `tokens` is the sum over all rows, including padding."""
        table = self.table
        attended = past + tokens / (2 * rows)
        return (
            table.prefill_ms
            + table.prefill_ms_per_token * tokens
            + table.prefill_ms_per_past_token * past
            + table.prefill_ms_per_token_pair * tokens * attended
        )


CPU, GPU = (
    msgspec.json.decode(Path(__file__).with_name(name).read_bytes(), type=EngineCosts)
    for name in ("cpu.json", "gpu.json")
)
KNOWN: Final = {costs.name: costs for costs in (CPU, GPU)}


def read_costs(text: str, profile: Profile | None = None) -> EngineCosts:
    """Return the costs for `cpu`, `gpu`, or a file written by a worker's calibration. Raises `SettingsError`."""
    costs = KNOWN[text] if text in KNOWN else _read(text)
    if profile is not None:
        costs = msgspec.structs.replace(costs, profile=profile)
    return costs


def _read(text: str) -> EngineCosts:
    path = Path(text)
    try:
        table = msgspec.json.decode(path.read_bytes(), type=CostTable)
    except OSError as error:
        raise SettingsError(f"--costs {text}: {error.strerror}; use cpu, gpu or a worker's cost file") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"--costs {text}: not a worker's cost file ({error}); use cpu, gpu or a worker's"
        ) from error
    if table.decode_ms + table.decode_ms_per_row <= 0 or table.prefill_ms_per_token <= 0:
        raise SettingsError(f"--costs {text}: a decode row and a prompt token must take time")
    key = table.key
    source = f"{path.name}: {key.engine}, {key.model} {key.precision}, {counted(key.threads, 'thread')}, {key.cpu}"
    return EngineCosts(name=path.stem, source=source, profile="cpu", table=table)
