"""mkdocs.yml: the site's navigation has every page."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_navigation_has_every_page_but_the_decisions() -> None:
    """Decisions are reached by links; `make docs` checks these."""
    (nav,) = re.findall(r"^nav:\n(.*)", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE | re.DOTALL)
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    listed = re.findall(r"[\w/-]+\.md", nav)
    assert sorted(set(listed) - {"index.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}) == sorted(
        page for page in pages if not page.startswith("decisions/")
    )
    assert len(listed) == len(set(listed))
