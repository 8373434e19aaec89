"""Write the dashboards, or see whether the files are what would be written: `python -m ops.dashboards [--check]`."""

import argparse
import sys
from pathlib import Path

from ops.dashboards.grafana.dashboard import render
from ops.dashboards.pages import PAGES

JSON_DIR = Path(__file__).parent / "json"


def wanted() -> dict[str, str]:
    """File name → text."""
    return {f"{page.name}.json": render(page) for page in PAGES}


def stale(folder: Path) -> list[str]:
    """Files that are missing, differ, or are no dashboard's any more."""
    texts = wanted()
    here = {path.name: path.read_text() for path in folder.glob("*.json")}
    return sorted(name for name in texts.keys() | here.keys() if texts.get(name) != here.get(name))


def write(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in stale(folder):
        (folder / name).unlink(missing_ok=True)
    for name, text in wanted().items():
        (folder / name).write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ops.dashboards", description="Grafana's dashboards, as JSON.")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 where a file is not current")
    if not parser.parse_args().check:
        write(JSON_DIR)
        print(f"{len(PAGES)} dashboards in {JSON_DIR}")
        return 0
    for name in stale(JSON_DIR):
        print(f"{JSON_DIR / name} is not current. Type: python -m ops.dashboards", file=sys.stderr)
    return 1 if stale(JSON_DIR) else 0


if __name__ == "__main__":
    sys.exit(main())
