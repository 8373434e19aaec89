"""A hook of mkdocs (`make docs`): README is the first page, and a link to a file of the checkout becomes its name."""

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = {"README.md": "index.md"} | {name: name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")}
"""Pages of the checkout's root, and their names on the site."""
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_PICTURE: Final = re.compile(r"(src|srcset)=\"docs/")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead each link to the site's page; replace one to another file by its text. A missing file raises."""
    uri = page.file.src_uri
    at_root = uri in PAGES.values()
    folder = ROOT if at_root else (ROOT / "docs" / uri).parent

    def led(found: re.Match[str]) -> str:
        text, path, anchor = found[1], found[2], found[3] or ""
        if "://" in path or path.startswith("mailto:"):
            return found[0]
        target = (folder / path).resolve(strict=True).relative_to(ROOT)
        if target.parts[0] == "docs" and len(target.parts) > 1 and (ROOT / target).is_file():
            return f"[{text}]({_from(uri)}{target.relative_to('docs')}{anchor})"
        if str(target) in PAGES:
            return f"[{text}]({_from(uri)}{PAGES[str(target)]}{anchor})"
        return text

    return _PICTURE.sub(r'\1="', _LINK.sub(led, markdown))


def _from(uri: str) -> str:
    return "../" * uri.count("/")
