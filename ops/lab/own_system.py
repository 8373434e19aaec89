"""The settings of the system that a command of the laboratory starts."""

from rich.console import Console

from ops.command_line import settings_of
from ops.model.terminal import ensure_engine
from shared.settings import Settings


def settings_of_own_system(url: str | None = None) -> Settings:
    """Return the settings of the system that a bench starts, with its model prepared. With a `url` it starts no
    system."""
    if url is not None:
        return Settings()
    settings = settings_of("bench")
    ensure_engine(settings, Console(stderr=True))
    return settings
