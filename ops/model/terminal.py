"""Prepare a model at the terminal, with a progress bar."""

import os
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from ops.model.embedding_files import prepare_embeddings
from ops.model.embeddings import PREPARABLE
from ops.model.prepare import DEFAULT_MAX_LENGTH, DEFAULT_MODEL, DEMO_ADAPTER, DEMO_MODEL, prepare_model
from shared.errors import SettingsError
from shared.faq.entries import LANGUAGES
from shared.model.folder import MANIFEST, NATIVE, ModelFolder, Precision
from shared.settings import CPU_ENGINES, Settings
from shared.wire.messages import Language
from workers.engine.native.build import Built, Recipe, ensure_built, find_built
from workers.engine.unusable import Unusable


def prepare_with_progress(
    directory: Path,
    precision: Precision,
    source: Path | None,
    console: Console,
    *,
    adapter: Path | None = None,
    languages: tuple[Language, ...] | None = None,
    max_length: int = DEFAULT_MAX_LENGTH,
) -> ModelFolder:
    """Call `prepare_model` with a progress bar, and print a line at the end. Raises `ModelError`."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("model", total=1.0)
        folder = prepare_model(
            directory,
            precision,
            source=source,
            adapter=adapter,
            languages=languages,
            max_length=max_length,
            progress=lambda step, fraction: bar.update(task, description=step, completed=fraction),
            on_unreached=lambda line: console.print(line, soft_wrap=True, highlight=False),
        )
    console.print(f"model ready: {folder.path}")
    return folder


def prepare_installed_embeddings(directory: Path, console: Console) -> None:
    """Call `prepare_embeddings` for each installed distribution, and print a line. Raises `ModelError`."""
    for source in PREPARABLE:
        if source.is_installed():
            console.print(f"embeddings ready: {prepare_embeddings(directory, source)}")


def ensure_model(directory: Path, console: Console) -> None:
    """Prepare the demo's model, or the default model, if that is the configured one and is missing or outdated. Other
    models must be prepared by hand."""
    adapters = {f"{DEMO_MODEL}-int8": DEMO_ADAPTER, f"{DEFAULT_MODEL}-int8": None}
    whole = all((directory / name).is_file() for name in (MANIFEST, NATIVE))
    if not whole and directory.name in adapters:
        prepare_with_progress(directory.parent, "int8", None, console, adapter=adapters[directory.name])


def ensure_engine(settings: Settings, console: Console, model_dir: Path | None = None) -> None:
    """Prepare what a CPU engine needs: the model at `model_dir` (default: the settings'), and the native library.
    Raises `ModelError`."""
    if settings.worker.engine in CPU_ENGINES:
        ensure_model(model_dir or settings.model.dir, console)
    if settings.worker.engine == "native":
        ensure_library(settings, console)


def ensure_library(settings: Settings, console: Console) -> bool:
    """Build the native engine's library unless it exists, and print its description, or the reason why it cannot be
    built."""
    directory, recipe = settings.worker.native_library_dir, Recipe()
    if isinstance(find_built(directory, recipe), Built):
        return True
    built = ensure_built(directory, recipe, os.environ)
    if isinstance(built, Unusable):
        console.print(f"native engine: {built.reason}; onnx is used until then", soft_wrap=True)
        return False
    console.print(f"native engine ready: {built.describe()}", soft_wrap=True)
    return True


def adapter_of(option: str | None, source: Path | None) -> Path | None:
    """Return the adapter for `--adapter`. Without the option and without a source it is the demo's."""
    if option is None:
        return DEMO_ADAPTER if source is None else None
    return None if option == "none" else Path(option)


def languages_of(option: str | None) -> tuple[Language, ...] | None:
    """Return the languages for `--languages`. Raises `SettingsError` for a language that the FAQ does not support."""
    if option is None:
        return None
    wanted = [part.strip() for part in option.split(",")]
    found = tuple(language for language in LANGUAGES if language in wanted)
    if set(wanted) != set(found):
        raise SettingsError(f"--languages {option}: write some of {','.join(LANGUAGES)}")
    return found
