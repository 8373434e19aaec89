"""Every setting of every process, in one frozen object, read once.

From the environment (`REPLYLINE_` and two underscores a level: `REPLYLINE_GATEWAY__PORT=8080`) and, below it, from a
TOML file (`REPLYLINE_CONFIG`, else `replyline.toml` in the working directory). A value out of range stops the
process: exit status 2 and a line a variable.
"""

from shared.settings.answers import FaqSettings
from shared.settings.listing import by_question, describe
from shared.settings.load_settings import load_settings
from shared.settings.promise import PromiseSettings
from shared.settings.settings import PREFIX, Settings
from shared.settings.telemetry import LogSettings
from shared.settings.worker import CPU_ENGINES, SYSTEM_PROMPT, KvSettings, WindowKind, WorkerSettings

__all__ = [
    "CPU_ENGINES",
    "PREFIX",
    "SYSTEM_PROMPT",
    "FaqSettings",
    "KvSettings",
    "LogSettings",
    "PromiseSettings",
    "Settings",
    "WindowKind",
    "WorkerSettings",
    "by_question",
    "describe",
    "load_settings",
]
