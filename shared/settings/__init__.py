"""Every setting of every process, in one frozen object that is read once.

Settings come from the environment (`REPLYLINE_` and two underscores for each level: `REPLYLINE_GATEWAY__PORT=8080`),
then from a TOML file (`REPLYLINE_CONFIG`, else `replyline.toml` in the working directory). An invalid value stops the
process with exit status 2 and prints one line for each invalid variable.
"""

from shared.settings.answers import FaqSettings
from shared.settings.listing import by_question, describe
from shared.settings.load_settings import load_settings
from shared.settings.promise import PromiseSettings
from shared.settings.settings import PREFIX, Settings
from shared.settings.telemetry import LogSettings
from shared.settings.worker import CPU_ENGINES, SYSTEM_PROMPT, KvSettings, SpeculationKind, WindowKind, WorkerSettings

__all__ = [
    "CPU_ENGINES",
    "PREFIX",
    "SYSTEM_PROMPT",
    "FaqSettings",
    "KvSettings",
    "LogSettings",
    "PromiseSettings",
    "Settings",
    "SpeculationKind",
    "WindowKind",
    "WorkerSettings",
    "by_question",
    "describe",
    "load_settings",
]
