"""What the type checker refuses needs no test: mypy's errors within mutants, for mutmut's `type_check_command`.

mutmut ends where an error lies outside a mutant. One does where a mutant of an attribute changes what it is inferred to
be: such an error tells nothing of a mutant, and is left out.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import libcst
from mutmut.mutation.file_mutation import MutatedMethodsCollector

# In a copy for mutants much is unused and unreachable.
_MYPY = ("-m", "mypy", "--output", "json", "--no-warn-unused-ignores", "--no-warn-unreachable")


def main() -> None:
    said = subprocess.run([sys.executable, *_MYPY, *sys.argv[2:]], capture_output=True, text=True, check=False)
    errors: defaultdict[Path, list[dict[str, Any]]] = defaultdict(list)
    for line in said.stdout.splitlines():
        if line.strip():
            error = json.loads(line)
            errors[Path(error["file"]).absolute()].append(error)
    for path, of_file in errors.items():
        collector = MutatedMethodsCollector(path)
        libcst.MetadataWrapper(libcst.parse_module(path.read_text())).visit(collector)
        for error in of_file:
            if any(each.line_number_start <= error["line"] <= each.line_number_end for each in collector.found_mutants):
                sys.stdout.write(json.dumps(error) + "\n")


if __name__ == "__main__":
    main()
