"""The compose file and the image keep what is promised of them; no engine is needed to check it."""

import re
import tomllib
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.model.embeddings import WORDLLAMA
from shared.settings import Settings, describe
from workers.kv import cache
from workers.serving import capacity

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DOCKERFILE = (ROOT / "ops" / "docker" / "Dockerfile").read_text()
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CADDYFILE = (ROOT / "ops" / "docker" / "Caddyfile").read_text()
ONE_SHOT = {"topics", "model", "model-gpu", "secret"}
GATEWAYS = sorted(name for name in SERVICES if name.startswith("gateway"))
GPU_WORKERS = sorted(name for name, service in SERVICES.items() if "devices" in str(service.get("deploy")))
OBSERVABILITY = {name for name, service in SERVICES.items() if "observability" in service.get("profiles", ())}


def _settings_of(service: dict[str, Any]) -> dict[str, str]:
    given = service.get("environment", {}).items()
    return {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value)) for name, value in given if "REPLYLINE_" in name}


def _duration_s(text: str) -> float:
    assert re.fullmatch(r"\d+s", text), f"{text} is not in seconds"
    return float(text.removesuffix("s"))


def test_the_services_are_those_of_the_layout() -> None:
    """Kafka, two Redis, the jobs, two gateways behind one port, two workers; every other service starts only on
    request."""
    plain = {name for name, service in SERVICES.items() if "profiles" not in service} - ONE_SHOT
    assert plain == {"kafka", "redis", "redis-kv", "gateway-0", "gateway-1", "proxy", "worker", "rollout"}
    assert "profiles" in SERVICES["model-gpu"]
    assert {"prometheus", "grafana"} <= OBSERVABILITY
    assert SERVICES["worker"]["deploy"]["replicas"] == 2


def test_each_gateway_has_a_reply_partition_of_its_own_and_all_have_one_secret() -> None:
    """Otherwise they would receive each other's answers, and a client could not continue at the other one."""
    settings = [_settings_of(SERVICES[name]) for name in GATEWAYS]
    partitions = [given["REPLYLINE_GATEWAY__REPLY_PARTITION"] for given in settings]
    assert len(set(partitions)) == len(GATEWAYS) >= 2
    (secret,) = {given["REPLYLINE_GATEWAY__CURSOR_SECRET_FILE"] for given in settings}
    for name, mode in (*((gateway, "ro") for gateway in GATEWAYS), ("secret", "")):
        mounts = dict(mount.split(":", 1) for mount in SERVICES[name]["volumes"])
        folder, *how = mounts["secrets"].split(":")
        assert str(Path(secret).parent) == folder
        assert how == ([mode] if mode else [])
    assert secret in SERVICES["secret"]["command"][0]
    others = SERVICES.keys() - set(GATEWAYS) - {"secret"}
    assert not [name for name in others for mount in SERVICES[name].get("volumes", []) if mount.startswith("secrets:")]


def test_workers_search_by_the_embeddings_that_the_model_service_prepares_where_it_can() -> None:
    """Their package has no wheel for every machine: a worker without them serves, and says so."""
    for worker, model in (("worker", "model"), ("worker-gpu", "model-gpu")):
        settings, command = _settings_of(SERVICES[worker]), SERVICES[model]["command"]
        prepared = Path(command[command.index("--dir") + 1]) / WORDLLAMA.name
        assert settings["REPLYLINE_FAQ__EMBEDDINGS_DIR"] == str(prepared)
        assert settings["REPLYLINE_FAQ__EMBEDDINGS_MISSING"] == "terms"
        assert model in SERVICES[worker]["depends_on"]


def test_the_proxy_knows_every_gateway_and_asks_each_on_its_port_for_operators() -> None:
    """A gateway missing there receives no client. Customers reach only the other port."""
    named = re.findall(r"^\t\treverse_proxy (.+) \{$", CADDYFILE, re.MULTILINE)
    given = [_settings_of(SERVICES[name]) for name in GATEWAYS]
    (asked,) = re.findall(r"^\thealth_port (\d+)$", CADDYFILE, re.MULTILINE)
    for each, kind, scheme in zip(named, ("HTTP_PORT", "GRPC_PORT", "PORT"), ("", "h2c://", ""), strict=True):
        ports = [settings[f"REPLYLINE_GATEWAY__{kind}"] for settings in given]
        assert each.split() == [f"{scheme}{name}:{port}" for name, port in zip(GATEWAYS, ports, strict=True)]
        assert asked not in ports
    assert {settings["REPLYLINE_GATEWAY__METRICS_PORT"] for settings in given} == {asked}
    assert "\n\thealth_uri /ready\n" in CADDYFILE
    assert SERVICES["proxy"]["depends_on"].keys() == set(GATEWAYS)


def test_prometheus_and_grafana_are_given_files_that_exist_and_fit_each_other() -> None:
    """Nothing is written by hand in Grafana: its source, its dashboards and the rules come from this repository."""
    given = [mount.split(":") for name in OBSERVABILITY for mount in SERVICES[name].get("volumes", ())]
    bound = {target: source for source, target, *how in given if source.startswith("./") and how == ["ro"]}
    assert all((ROOT / source).exists() for source in bound.values())
    prometheus = yaml.safe_load((ROOT / bound["/etc/prometheus/prometheus.yml"]).read_text())
    assert [bound[path] for path in prometheus["rule_files"]] == ["./ops/alerts/rules.yml"]
    scraped = {job["job_name"]: job for job in prometheus["scrape_configs"]}
    assert scraped.keys() == {"gateway", "worker", "rollout"}
    provisioning = "/etc/grafana/provisioning"
    (source,) = yaml.safe_load((ROOT / bound[f"{provisioning}/datasources/replyline.yml"]).read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]
    (provider,) = yaml.safe_load((ROOT / bound[f"{provisioning}/dashboards/replyline.yml"]).read_text())["providers"]
    assert bound[provider["options"]["path"]] == "./ops/dashboards/json"
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (ROOT / bound[str(home.parent)] / home.name).is_file()


def test_a_gateway_that_is_stopped_remains_a_target_and_every_worker_is_one() -> None:
    """Docker's DNS forgets who is stopped: only a target that is named is seen to be down."""
    prometheus = yaml.safe_load((ROOT / "ops" / "docker" / "prometheus.yml").read_text())
    scraped = {job["job_name"]: job for job in prometheus["scrape_configs"]}
    (named,) = scraped["gateway"]["static_configs"]
    ports = {name: SERVICES[name]["environment"]["REPLYLINE_GATEWAY__METRICS_PORT"] for name in GATEWAYS}
    assert named["targets"] == [f"{name}:{port}" for name, port in ports.items()]
    (found,) = scraped["worker"]["dns_sd_configs"]
    assert found["names"] == ["worker"]
    assert SERVICES["worker-gpu"]["networks"]["inner"]["aliases"] == ["worker"]
    ports = {SERVICES[name]["environment"]["REPLYLINE_WORKER__METRICS_PORT"] for name in ("worker", "worker-gpu")}
    assert ports == {found["port"]}


def test_one_service_leads_rollouts_and_its_page_is_checked_and_scraped() -> None:
    service = SERVICES["rollout"]
    command, port = service["command"], service["command"][-1]
    assert command == ["rollout", "run", "--metrics-host", "0.0.0.0", "--metrics-port", port]
    assert f":{port}/ready" in service["healthcheck"]["test"][-1]
    prometheus = yaml.safe_load((ROOT / "ops" / "docker" / "prometheus.yml").read_text())
    [targets] = [
        job["static_configs"][0]["targets"] for job in prometheus["scrape_configs"] if job["job_name"] == "rollout"
    ]
    assert targets == [f"rollout:{port}"]


def test_one_service_on_request_removes_what_was_learned_from_erased_conversations() -> None:
    service = SERVICES["learn"]
    assert (service["profiles"], service["command"]) == (["learn"], ["learn", "follow"])
    folder = service["environment"]["REPLYLINE_FAQ__PATH"]
    assert service["volumes"] == [f"./faq:{folder}"]


def test_a_gateway_sheds_before_the_kernel_ends_it() -> None:
    """Its memory's budget is its container's limit less a tenth, as docs/security.md has it."""
    for name in GATEWAYS:
        limit = int(SERVICES[name]["deploy"]["resources"]["limits"]["memory"].removesuffix("m"))
        assert int(_settings_of(SERVICES[name])["REPLYLINE_GATEWAY__MEMORY_BUDGET_MIB"]) == int(limit * 0.9)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_comes_back_or_is_a_job_that_ends_and_has_no_more_rights_than_it_needs(name: str) -> None:
    """Its health is known within seconds. Not root, no privileges, no capabilities, a pinned image; limits of memory,
    processor and processes; only Kafka's image, which writes its configuration, may write to its root."""
    service = SERVICES[name]
    if name in ONE_SHOT:
        assert service["restart"].startswith("on-failure:")
        assert "healthcheck" not in service
    else:
        health = service["healthcheck"]
        assert health["test"][0] == "CMD"
        assert _duration_s(health["timeout"]) < _duration_s(health["interval"]) <= 10
        assert service["restart"] == "unless-stopped"
    assert service["user"] not in {"root", "0", "0:0"}
    assert not service.get("privileged", False)
    assert service["cap_drop"] == ["ALL"]
    assert service.get("cap_add", []) == (["NET_BIND_SERVICE"] if name == "proxy" else [])
    assert "no-new-privileges:true" in service["security_opt"]
    assert service.get("read_only", False) is (name != "kafka")
    assert service["deploy"]["resources"]["limits"].keys() == {"memory", "cpus", "pids"}
    assert "build" in service or re.search(r":v?\d+\.\d+\.\d+", service["image"])


def test_dependencies_exist_and_have_the_right_condition() -> None:
    """Jobs must have ended well, services must be healthy."""
    for service in SERVICES.values():
        for dependency, how in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if dependency in ONE_SHOT else "service_healthy"
            assert how["condition"] == wanted


def test_every_variable_is_a_setting_with_an_allowed_value(tmp_path: Path) -> None:
    """A misspelt variable would stop the process: all are known, and the settings accept them."""
    secret = tmp_path / "cursor"
    secret.write_text("s3cret" * 6)
    known = {variable for variable, *_ in describe()}
    for service in SERVICES.values():
        given = _settings_of(service)
        assert given.keys() <= known
        values: dict[str, dict[str, str]] = {}
        for variable, value in given.items():
            group, name = variable.removeprefix("REPLYLINE_").lower().split("__")
            values.setdefault(group, {})[name] = str(secret) if name == "cursor_secret_file" else value
        Settings.model_validate(values)
    assert set(re.findall(r"REPLYLINE_[A-Z_]+", DOCKERFILE)) <= known


def test_shutdown_may_take_longer_than_the_drain() -> None:
    """A gateway or worker that drains is not killed in the middle of it; nor a worker, without Kafka, before it has
    written what it keeps."""
    settings = Settings()
    for gateway in GATEWAYS:
        assert _duration_s(SERVICES[gateway]["stop_grace_period"]) > settings.gateway.drain_s
    broker_s = 2 * settings.kafka.request_timeout_ms / 1_000  # what was begun is finished, what is done committed
    for worker in ("worker", "worker-gpu"):
        grace_s = _duration_s(SERVICES[worker]["stop_grace_period"])
        assert grace_s > capacity._LEAVE_S + broker_s + settings.worker.drain_s + 2 * cache._CLOSE_S


def test_what_is_published_and_checked_is_what_is_served() -> None:
    """The page is on PORT, 8080 without it; the healthchecks ask the ports that the settings name."""
    (listens,) = re.findall(r"^:(\d+) \{$", CADDYFILE, re.MULTILINE)
    assert SERVICES["proxy"]["ports"] == [f"${{ADDRESS:-127.0.0.1}}:${{PORT:-8080}}:{listens}"]
    for name, process in ((name, "WORKER" if name == "worker" else "GATEWAY") for name in (*GATEWAYS, "worker")):
        port = SERVICES[name]["environment"][f"REPLYLINE_{process}__METRICS_PORT"]
        assert f":{port}/ready" in SERVICES[name]["healthcheck"]["test"][-1]
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    local = re.compile(r"(\$\{ADDRESS:-127\.0\.0\.1\}|127\.0\.0\.1):")
    assert all(local.match(port) for ports in published.values() for port in ports)


def test_customers_reach_the_proxy_and_the_proxy_the_gateways_and_nothing_else() -> None:
    """Kafka, Redis and the workers are on a network without a way in or out."""
    networks = {name: set(service["networks"]) for name, service in SERVICES.items()}
    internal = {name for name, network in COMPOSE["networks"].items() if network and network["internal"]}
    assert internal == {"edge", "inner"}
    assert networks["proxy"] == {"outside", "edge"}
    assert {name for name in SERVICES if "edge" in networks[name]} == {"proxy", *GATEWAYS}
    published = {name for name, service in SERVICES.items() if "ports" in service}
    fetches = {"model", "model-gpu"}
    assert {name for name in SERVICES if "outside" in networks[name]} == published | fetches
    for name in ("kafka", "redis", "redis-kv", "worker", "worker-gpu", "topics", "rollout", "learn"):
        assert networks[name] == {"inner"}


def test_what_must_not_be_lost_is_in_a_redis_that_does_not_evict_and_kv_in_one_that_does() -> None:
    """Below each container's limit, so that the kernel does not end it."""
    policies = {"redis": "noeviction", "redis-kv": "allkeys-lru"}
    for name, policy in policies.items():
        command, limits = SERVICES[name]["command"], SERVICES[name]["deploy"]["resources"]["limits"]
        assert command[command.index("--maxmemory-policy") + 1] == policy
        most = command[command.index("--maxmemory") + 1]
        assert int(most.removesuffix("mb")) < int(limits["memory"].removesuffix("m"))
    for name in ("worker", "worker-gpu", *GATEWAYS):
        given = _settings_of(SERVICES[name])
        assert given["REPLYLINE_REDIS__URL"] == "redis://redis:6379/0"
        assert given["REPLYLINE_KV_REDIS__URL"] == "redis://redis-kv:6379/0"
        assert policies.keys() <= SERVICES[name]["depends_on"].keys()


def test_the_gateways_believe_the_proxy_of_whom_it_speaks_for() -> None:
    """Docker gives its networks private addresses; else all customers would share one client's units."""
    for name in GATEWAYS:
        trusted = list(map(ip_network, _settings_of(SERVICES[name])["REPLYLINE_GATEWAY__TRUSTED_PROXIES"].split(",")))
        for address in ("172.18.0.5", "192.168.16.3", "10.0.0.4", "fd00::5"):
            assert any(ip_address(address) in network for network in trusted)
        assert not any(ip_address("198.51.100.7") in network for network in trusted)


def test_volumes_are_declared_and_the_model_is_written_by_one_service() -> None:
    """Only the job that prepares it may write the model's folder."""
    mounts = [(name, mount) for name, service in SERVICES.items() for mount in service.get("volumes", [])]
    sources = {mount.split(":")[0] for _, mount in mounts}
    assert {source for source in sources if not source.startswith("./")} == COMPOSE["volumes"].keys()
    writers = [name for name, mount in mounts if mount.startswith("models:") and not mount.endswith(":ro")]
    assert writers == ["model", "model-gpu"]
    read_from = Path(SERVICES["worker"]["environment"]["REPLYLINE_MODEL__DIR"])
    assert SERVICES["model"]["command"] == ["model", "prepare", "--dir", str(read_from.parent)]
    assert read_from.name == Settings().model.dir.name
    on_gpu = Path(SERVICES["worker-gpu"]["environment"]["REPLYLINE_MODEL__DIR"])
    command = SERVICES["model-gpu"]["command"]
    assert command[:4] == SERVICES["model"]["command"]
    assert on_gpu.name.endswith(f"-{command[-1]}")


def test_the_image_is_built_from_the_lock_and_does_not_run_as_root() -> None:
    """Pinned base, hashes required, a numeric user as the last one."""
    assert re.search(r"^ARG PYTHON_IMAGE=python:\d+\.\d+\.\d+-slim", DOCKERFILE, re.MULTILINE)
    assert "--require-hashes -r requirements/image.txt" in DOCKERFILE
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == [SERVICES["gateway-0"]["user"]]


@pytest.mark.parametrize("name", GPU_WORKERS)
def test_the_image_of_a_gpus_worker_has_the_engine_that_it_names(name: str) -> None:
    """From its own lock, by hash, with what the engine's extra asks for; and a GPU whose health can be read."""
    service = SERVICES[name]
    engine = _settings_of(service)["REPLYLINE_WORKER__ENGINE"]
    assert service["build"]["args"] == {"GPU_ENGINE": engine}
    assert service["image"] != SERVICES["worker"]["image"]
    assert "COPY requirements/${GPU_ENGINE:-image}.txt requirements/" in DOCKERFILE
    assert '--require-hashes -r "requirements/${GPU_ENGINE}.txt"' in DOCKERFILE
    locked = set()
    for lock in ("image", engine):
        locked |= set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / f"{lock}.txt").read_text(), re.MULTILINE))
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][engine]
    assert {re.split(r"[<>=;\[ ]", line)[0] for line in extra} <= locked
    assert "nvidia-ml-py" in locked
    assert "utility" in service["environment"]["NVIDIA_DRIVER_CAPABILITIES"].split(",")
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])


def test_each_worker_of_the_gpu_profiles_has_a_gpu_of_its_own() -> None:
    """By name: `count: 1` is the first of the host for each of them."""
    profiles = {
        profile: {name for name, service in SERVICES.items() if profile in service.get("profiles", ())} - ONE_SHOT
        for profile in ("gpu", "gpus")
    }
    assert profiles == {"gpu": {"worker-gpu"}, "gpus": set(GPU_WORKERS)}
    devices = [SERVICES[name]["deploy"]["resources"]["reservations"]["devices"][0] for name in GPU_WORKERS]
    named = [name for device in devices for name in device["device_ids"]]
    assert len(set(named)) == len(named) == len(GPU_WORKERS) >= 2


def test_the_image_copies_every_package() -> None:
    """One that is added to the distribution is added to the image."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    copied = set(re.findall(r"^COPY (\w+) \1$", DOCKERFILE, re.MULTILINE))
    assert copied == packages
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in packages} <= set(ignore)
