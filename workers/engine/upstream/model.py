"""A model that runs on other servers."""

from dataclasses import dataclass

from shared.model.tokenizer import EstimatedTokenizer, Tokenizer
from shared.settings import Settings
from shared.wire.messages import Language
from workers.engine import ModelInfo


@dataclass(frozen=True, slots=True)
class UpstreamModel:
    """The model. `languages`: any, because they are unknown."""

    info: ModelInfo
    tokenizer: Tokenizer
    languages: tuple[Language, ...] | None = None


def upstream_model(settings: Settings) -> UpstreamModel:
    """Return the model that the settings name."""
    worker, upstream = settings.worker, settings.upstream
    info = ModelInfo(
        name="upstream",
        device="cpu",
        model=upstream.model or "upstream",
        revision="",
        precision="unknown",
        num_slots=worker.slots_without_gpu * len(upstream.url),
        max_length=worker.max_length,
    )
    return UpstreamModel(info, EstimatedTokenizer.byte_level())
