"""The wheel has every file that the code reads: `package-data` matches each tracked file that is no Python."""

import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path, PurePath

import pytest

ROOT = Path(__file__).parents[3]
# Deployment and development: read from a checkout, never by an installed process.
_CHECKOUT_ONLY = ("ops/alerts/", "ops/dashboards/", "ops/docker/", "ops/k8s/", "ops/setup/")
_LISTED = subprocess.run(
    ["git", "ls-files", "gateway", "ops", "shared", "workers"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.splitlines()
DATA = [path for path in _LISTED if PurePath(path).suffix not in {".py", ".md"} and not path.startswith(_CHECKOUT_ONLY)]


@pytest.mark.parametrize("path", DATA)
def test_the_wheel_has_the_file(path: str) -> None:
    package, _, rest = path.partition("/")
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    found = [one for one in patterns[package] if fnmatch(rest, one) and one.count("/") == rest.count("/")]
    assert found, f"pyproject.toml: package-data of {package} lacks {rest}"
