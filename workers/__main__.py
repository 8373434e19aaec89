"""The worker process, started by `replyline worker`: load a model and build a worker around it."""

import asyncio
import faulthandler
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from shared.errors import SettingsError
from shared.process.hardware import usable_cores
from shared.process.lifetime import BAD_INPUT_STATUS, Stopped, fail, run_until_signal, until_stopped
from shared.process.tasks import abandon
from shared.settings import FaqSettings, Settings, WorkerSettings, load_settings
from shared.sockets.listening import ListenAddress
from shared.telemetry.logs import configure_logs, get_logger
from shared.telemetry.status import Drain, Readiness, serve_status
from shared.wire.lanes import SHADOW
from workers.engine.load_model import LoadedModel
from workers.engine.upstream.model import UpstreamModel, upstream_model
from workers.schedule.costs import CostModel
from workers.schedule.streams import PRIOR_DECODE, PRIOR_PREFILL
from workers.serving.calibration import BUDGET_S, costs_key, load_or_calibrate, table_path
from workers.serving.engine_thread import EngineThread, left_behind
from workers.serving.watchdog import LEAVE_S, LOAD_S, limited
from workers.versions.beginning import choices, load_first, remember_last_served
from workers.versions.candidate import Candidate

if TYPE_CHECKING:
    from shared.faq.live import LiveFaq
    from workers.process import WorkerProcess


async def serve(settings: Settings, stop: asyncio.Event, hangup: asyncio.Event | None = None) -> None:
    """Serve until `stop` is set.

    Args:
        settings: the process's settings.
        stop: set to stop.
        hangup: set at each SIGHUP.

    Raises:
        Stopped: `stop` was set before the worker was built.
    """
    hangup = hangup or asyncio.Event()
    draining = Drain()
    readiness = Readiness({"engine": lambda: "the model is loading"}, optional=frozenset({"version"}), drain=draining)
    async with await serve_status(ListenAddress.of_settings("worker", settings.worker, "metrics_port"), readiness):
        process = await until_stopped(stop, _build(settings, hangup, draining))
        process.tell(readiness)
        await process.run(stop)


async def _build(settings: Settings, hangup: asyncio.Event, draining: Drain) -> "WorkerProcess":
    """Load the model and the FAQ, and build the process around them."""
    reading = asyncio.create_task(asyncio.to_thread(_read_faq, settings.faq))
    candidate: Candidate | None = None
    model: LoadedModel | UpstreamModel
    try:
        if settings.worker.engine == "upstream":
            model = upstream_model(settings)
        else:
            candidate, model = await _load(settings)
        faq = await reading  # before the engine is measured, which wants the cores for itself
    finally:
        abandon(reading)
    if isinstance(model, UpstreamModel):
        costs = CostModel(decode=PRIOR_DECODE, prefill=PRIOR_PREFILL)
    else:
        costs = await _known_costs(settings.worker, model)
    from workers.process import WorkerProcess

    return WorkerProcess(settings, candidate, model, costs, faq, hangup=hangup, draining=draining)


async def _load(settings: Settings) -> tuple[Candidate, LoadedModel]:
    revisions = await choices(settings, "replyline-worker")
    with limited(LOAD_S):
        candidate, model = await EngineThread(lambda: load_first(settings, revisions)).ended()
    remember_last_served(settings.worker, candidate.revision if candidate.registered else None)
    info = model.info
    get_logger().info("engine_loaded", engine=info.computed_by, model=info.model, precision=info.precision)
    return candidate, model


def _read_faq(settings: FaqSettings) -> "LiveFaq":
    """Read the FAQ, a second of CPU time, on a thread while the engine is loaded. Raises `SettingsError`."""
    from workers.process import read_faq  # imports all that `WorkerProcess` needs

    return read_faq(settings)


async def _known_costs(worker: WorkerSettings, model: LoadedModel) -> CostModel:
    """Return the costs of a model whose engine is idle."""
    info = model.info
    key = costs_key(info, threads=worker.threads or usable_cores())
    # The fake engine's costs are scripted at each start; a shadow's depend on what other processes leave it.
    own = info.name == "fake" or worker.lane == SHADOW
    kept = None if own else table_path(worker.costs_dir, info.name, key)
    try:
        with limited(BUDGET_S + worker.step_limit_s + LEAVE_S):
            costs, how = await asyncio.to_thread(load_or_calibrate, kept, key, model.engine)
    except Exception:  # not a cancellation: its thread still uses the engine
        model.engine.close()
        raise
    get_logger().info("costs_known", how=how, decode_ms=round(costs.decode_ms(info.num_slots, 0), 2))
    return costs


# The engine's thread needs the interpreter after every step; with Python's default interval of 5 ms it would wait half
# a step for the loop's thread.
_SWITCH_INTERVAL_S = 0.0005
_SHADOW_NICE = 19  # a shadow uses only idle CPU time


def main() -> int:
    try:
        settings = load_settings()
    except SettingsError as error:
        return fail(str(error), BAD_INPUT_STATUS)
    configure_logs(settings.log, process="worker")
    if settings.worker.lane == SHADOW:
        os.setpriority(os.PRIO_PROCESS, 0, _SHADOW_NICE)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    faulthandler.enable()  # an engine is native code: if it crashes, stderr names the signal and the call

    async def serve_until(stop: asyncio.Event) -> None:
        hangup = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.set)
        try:
            await serve(settings, stop, hangup)
        except Stopped:  # loading cannot be interrupted, and building a GPU's plans may take minutes
            get_logger().info("worker_stopped", cause="asked to end before the model was loaded")
            logging.shutdown()
            os._exit(0)

    status = run_until_signal(serve_until)
    if left_behind():
        get_logger().error("engine_left_behind", cause="its last step did not end")
        logging.shutdown()
        os._exit(status or 1)
    return status


if __name__ == "__main__":
    sys.exit(main())
