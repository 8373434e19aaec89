"""Preparing a model at the terminal, with a progress bar."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from ops.model import DEFAULT_MAX_LENGTH, DEFAULT_MODEL, prepare_model
from shared.model_folder import MANIFEST, ModelFolder, Precision


def prepare_with_progress(
    directory: Path,
    precision: Precision,
    source: Path | None,
    console: Console,
    *,
    max_length: int = DEFAULT_MAX_LENGTH,
) -> ModelFolder:
    """`prepare_model` with a progress bar, and a line at the end. Raises `ModelError`."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("model", total=1.0)
        folder = prepare_model(
            directory,
            precision,
            source=source,
            max_length=max_length,
            progress=lambda step, fraction: bar.update(task, description=step, completed=fraction),
        )
    console.print(f"model ready: {folder.path}")
    return folder


def ensure_model(directory: Path, console: Console) -> None:
    """Prepare the demo's model where it is what is missing; another model has to be prepared by hand."""
    if not (directory / MANIFEST).is_file() and directory.name == f"{DEFAULT_MODEL}-int8":
        prepare_with_progress(directory.parent, "int8", None, console)
