"""A model version that a worker may load: find its folder, in the store or at `model.dir`, read its manifest and golden
prompts, and predict the memory that it needs."""

from dataclasses import dataclass

from shared.model.folder import Manifest, ModelFolder
from shared.process.hardware import available_memory
from shared.settings import CPU_ENGINES, Settings
from shared.versions.golden import GoldenSet
from shared.versions.store import open_version
from shared.versions.version import Version
from shared.wire.fields import Revision
from workers.engine import short_revision
from workers.engine.fake import FAKE_REVISION
from workers.engine.memory_plan import MemoryPlan, cpu_memory_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A version that may be loaded. `settings` are the worker's, with the version's folder and system prompt.
    `manifest` has no value for the fake engine, which has no files. `registered` is True for a version of the registry,
    False for the model in `model.dir`."""

    revision: Revision
    registered: bool
    settings: Settings
    manifest: Manifest | None = None
    golden: GoldenSet | None = None

    def memory_plan(self) -> MemoryPlan | None:
        """Return the plan of the version's memory, with the memory that is free now; None if that is unknown or on
        another device. Engines for GPUs plan theirs when they load."""
        available_bytes = available_memory()
        worker = self.settings.worker
        if self.manifest is None or available_bytes is None or worker.engine not in CPU_ENGINES:
            return None
        return cpu_memory_plan(worker, self.manifest, available_bytes)


def open_candidate(
    settings: Settings, revision: Revision | None, *, expected: Version | None = None, verify: bool
) -> Candidate:
    """Return a version of the registry from the store; without a `revision` the model at `model.dir`. `expected` is
    the registry's document of it, if that is known. `verify`: the files' sha256 are compared too. Raises `ModelError`,
    `SettingsError`."""
    if revision is None:
        if settings.worker.engine == "fake":
            return Candidate(revision=FAKE_REVISION, registered=False, settings=settings)
        manifest = ModelFolder.open(settings.model.dir, verify=verify).manifest
        name = short_revision(manifest.revision)
        return Candidate(revision=name, registered=False, settings=settings, manifest=manifest)
    model = settings.model.model_copy(update={"dir": settings.model.versions_dir / revision})
    if settings.worker.engine == "fake":
        return Candidate(revision=revision, registered=True, settings=settings.model_copy(update={"model": model}))
    stored = open_version(settings.model, revision, expected=expected, verify=verify)
    prompt = stored.version.system_prompt
    worker = settings.worker.model_copy(update={} if prompt is None else {"system_prompt": prompt})
    return Candidate(
        revision=revision,
        registered=True,
        settings=settings.model_copy(update={"model": model, "worker": worker}),
        manifest=stored.folder.manifest,
        golden=stored.golden,
    )
