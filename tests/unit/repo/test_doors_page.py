"""docs/doors.md: its lines for other people's clients are those that `make doors` runs."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_each_clients_line_is_its_programs() -> None:
    (block,) = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "doors.md").read_text(), re.DOTALL)
    lines = [re.split(r" {2,}|(?<=\)) ", line, maxsplit=1)[1].strip() for line in block.splitlines()]
    programs = [path.read_text() for path in (ROOT / "tests" / "proofs" / "doors" / "clients").glob("*.[pm]*")]
    assert lines
    assert [line for line in lines if not any(line in program for program in programs)] == []
