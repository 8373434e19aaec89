"""The compose file and the image keep what is promised of them; no engine is needed to check it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.settings import Settings, describe

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DOCKERFILE = (ROOT / "ops" / "docker" / "Dockerfile").read_text()
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_SHOT = {"topics", "model"}
LONG_RUNNING = SERVICES.keys() - ONE_SHOT


def _settings_of(service: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in service.get("environment", {}).items() if name.startswith("REPLYLINE_")}


def _duration_s(text: str) -> float:
    match = re.fullmatch(r"(\d+)s", text)
    assert match is not None, f"{text} is not in seconds"
    return float(match.group(1))


def test_the_services_are_those_of_the_layout() -> None:
    """Kafka, Redis, two one-shot jobs, the edge and inference."""
    assert SERVICES.keys() == {"kafka", "redis", "topics", "model", "gateway", "worker"}


@pytest.mark.parametrize("name", sorted(LONG_RUNNING))
def test_a_long_running_service_has_a_healthcheck_and_comes_back(name: str) -> None:
    """Its health is known within seconds, and a crash is not the end of it."""
    service = SERVICES[name]
    health = service["healthcheck"]
    assert health["test"][0] == "CMD"
    assert _duration_s(health["timeout"]) < _duration_s(health["interval"]) <= 10
    assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted(ONE_SHOT))
def test_a_one_shot_service_is_not_repeated_for_ever(name: str) -> None:
    """It ends; a failure is tried again a few times."""
    assert SERVICES[name]["restart"].startswith("on-failure:")
    assert "healthcheck" not in SERVICES[name]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_service_has_more_rights_than_it_needs(name: str) -> None:
    """Not root, no privileges, no capabilities, a memory limit, a pinned image."""
    service = SERVICES[name]
    assert service["user"] not in {"root", "0", "0:0"}
    assert not service.get("privileged", False)
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["deploy"]["resources"]["limits"]["memory"]
    assert "build" in service or re.search(r":\d+\.\d+\.\d+", service["image"])


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - {"kafka"}))
def test_only_kafka_writes_to_its_root_file_system(name: str) -> None:
    """Its image writes its configuration into /opt at the start; all others are read-only."""
    assert SERVICES[name]["read_only"] is True


def test_dependencies_exist_and_have_the_right_condition() -> None:
    """Jobs must have ended well, services must be healthy."""
    for service in SERVICES.values():
        for dependency, how in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if dependency in ONE_SHOT else "service_healthy"
            assert how["condition"] == wanted


def test_every_variable_is_a_setting_with_an_allowed_value() -> None:
    """A misspelt variable would stop the process: all are known, and the settings accept them."""
    known = {variable for variable, *_ in describe()}
    for service in SERVICES.values():
        given = _settings_of(service)
        assert given.keys() <= known
        values: dict[str, dict[str, str]] = {}
        for variable, value in given.items():
            group, name = variable.removeprefix("REPLYLINE_").lower().split("__")
            values.setdefault(group, {})[name] = value
        Settings.model_validate(values)
    assert set(re.findall(r"REPLYLINE_[A-Z_]+", DOCKERFILE)) <= known


def test_shutdown_may_take_longer_than_the_drain() -> None:
    """A gateway or worker that drains is not killed in the middle of it."""
    settings = Settings()
    assert _duration_s(SERVICES["gateway"]["stop_grace_period"]) > settings.gateway.drain_s
    assert _duration_s(SERVICES["worker"]["stop_grace_period"]) > settings.worker.drain_s


def test_what_is_published_and_checked_is_what_is_served() -> None:
    """The page is on PORT, 8080 without it; the healthchecks ask the ports that the settings name."""
    gateway, worker = SERVICES["gateway"], SERVICES["worker"]
    port = gateway["environment"]["REPLYLINE_GATEWAY__PORT"]
    assert gateway["ports"] == [f"${{PORT:-8080}}:{port}"]
    assert f":{port}/ready" in gateway["healthcheck"]["test"][-1]
    assert f":{worker['environment']['REPLYLINE_WORKER__METRICS_PORT']}/ready" in worker["healthcheck"]["test"][-1]
    assert all("ports" not in SERVICES[name] for name in SERVICES.keys() - {"gateway"})


def test_volumes_are_declared_and_the_model_is_written_by_one_service() -> None:
    """Only the job that prepares it may write the model's folder."""
    mounts = [(name, mount) for name, service in SERVICES.items() for mount in service.get("volumes", [])]
    assert {mount.split(":")[0] for _, mount in mounts} == COMPOSE["volumes"].keys()
    writers = [name for name, mount in mounts if mount.startswith("models:") and not mount.endswith(":ro")]
    assert writers == ["model"]
    read_from = Path(SERVICES["worker"]["environment"]["REPLYLINE_MODEL__DIR"])
    assert SERVICES["model"]["command"] == ["model", "prepare", "--dir", str(read_from.parent)]
    assert read_from.name == Settings().model.dir.name


def test_the_image_is_built_from_the_lock_and_does_not_run_as_root() -> None:
    """Pinned base, hashes required, a numeric user as the last one."""
    assert re.search(r"^ARG PYTHON_IMAGE=python:\d+\.\d+\.\d+-slim", DOCKERFILE, re.MULTILINE)
    assert "--require-hashes -r requirements/demo.txt" in DOCKERFILE
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == [SERVICES["gateway"]["user"]]


def test_the_image_copies_every_package() -> None:
    """A package that is added to the distribution is added to the image."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    copied = set(re.findall(r"^COPY (\w+) \1$", DOCKERFILE, re.MULTILINE))
    assert copied == packages
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in packages} <= set(ignore)
