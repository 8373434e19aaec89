"""The shipped proxies route each path that a gateway serves to the port that serves it, and no other path."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from starlette.routing import BaseRoute, Mount

from gateway.__main__ import GatewayProcess
from gateway.frontends.paths import plain_path
from gateway.frontends.static import StaticFiles
from shared.model.tokenizer import open_tokenizer
from shared.settings import Settings

ROOT: Final = Path(__file__).parents[3]
CADDYFILE: Final = (ROOT / "ops" / "docker" / "Caddyfile").read_text()
DOORS: Final = yaml.safe_load((ROOT / "ops" / "k8s" / "replyline" / "files" / "doors.yaml").read_text())


def settings_of_every_door(folder: Path) -> Settings:
    """Return settings with which a gateway opens each door that it has."""
    for name in ("cursor", "token", "secret"):
        (folder / name).write_text("s3cret" * 8)
    chatwoot = {"url": "https://desk.example", "token_file": folder / "token", "secret_file": folder / "secret"}
    gateway = {"http_port": 1, "grpc_port": 2, "cursor_secret_file": folder / "cursor"}
    groups: dict[str, Any] = {"chatwoot": chatwoot, "gateway": gateway, "worker": {"engine": "fake"}}
    return Settings.model_validate(groups)


def paths_of(routes: list[BaseRoute], above: str = "") -> set[str]:
    found: set[str] = set()
    for route in routes:
        path = above + getattr(route, "path", "")
        # An application that shows no routes may serve each path below.
        below = list(route.routes) if isinstance(route, Mount) else []
        found |= paths_of(below, path) if below else {f"{path}/{{path}}" if isinstance(route, Mount) else path}
    return found


@pytest.fixture
async def doors(tmp_path: Path) -> Any:
    settings = settings_of_every_door(tmp_path)
    return GatewayProcess(settings, open_tokenizer("fake", settings.model.dir))._doors


def caddys(matcher: str) -> set[str]:
    """Return the paths of one of its matchers, each without the suffix `/*`, which matches all subpaths."""
    (line,) = re.findall(rf"^\t@{matcher} path (.+)$", CADDYFILE, re.MULTILINE)
    return {path.removesuffix("/*") for path in line.split()}


async def test_each_path_over_http_is_routed_and_no_prefix_is_dead(doors: Any) -> None:
    served = paths_of(doors._http.app.routes)
    served |= {path.removeprefix("/v1") for path in served if plain_path(path.removeprefix("/v1")) == path}
    prefixes = {f"/{path.split('/')[1]}" for path in served}
    assert {"/v1", "/ai-sdk", "/channels", "/edge", "/openapi.json"} <= prefixes
    assert prefixes == set(DOORS["http"])
    assert prefixes == caddys("http")
    below = {prefix for prefix in prefixes if any(path.startswith(f"{prefix}/") for path in served)}
    assert {f"{prefix}/*" for prefix in below} == set(re.findall(r"/[\w-]+/\*", CADDYFILE.partition("@grpc")[0]))


async def test_each_grpc_service_is_routed(doors: Any) -> None:
    door = doors._grpc
    services = {f"/{handler.service_name()}" for handler in (door._own_service(), *door._probes.handlers())}
    assert services == set(DOORS["grpc"])
    assert services == caddys("grpc")


def test_no_page_has_the_prefix_of_a_door() -> None:
    pages = {"/ws", *StaticFiles()._pages}
    taken = [page for page in pages for prefix in (*DOORS["http"], *DOORS["grpc"]) if page.startswith(prefix)]
    assert taken == []
