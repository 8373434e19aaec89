"""`replyline bench compare`: compare two results of `--json`, and decide whether the second is worse."""

from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from ops.lab.load.figures.comparison import Result, compared, differences, rows_of, worst
from ops.lab.load.options import CompareOptions
from ops.lab.load.pages.comparison import CompareFacts, compare_page
from ops.measure.runner import markdown, write_html
from shared.errors import SettingsError

REGRESSION_STATUS: Final = 1


def read_result(path: Path) -> Result:
    """Read a result. Raises `SettingsError` with a one-line message."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}; use a file written with `--json`") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path}: is not a comparable result ({error}); make one: replyline bench, bench traffic or replay, "
            "with --json FILE"
        ) from None


def bench_compare(options: CompareOptions, command: str, console: Console) -> int:
    """Print the table and return the exit status: 1 for a regression. Raises `SettingsError`."""
    before, after = read_result(options.first), read_result(options.second)
    unlike = differences(before.environment, after.environment)
    for told in unlike:
        console.print(f"different conditions: {told}", soft_wrap=True, highlight=False)
    rows = compared(before.samples, after.samples, tolerance=options.tolerance)
    print(markdown(*rows_of(rows, options.first.name, options.second.name)))
    verdict = worst(rows)
    requests = f"{len(before.samples.in_time)} and {len(after.samples.in_time)} requests"
    print(f"{verdict} ({requests}; differences up to {options.tolerance:.0%}, or due to chance, are ignored)")
    if options.html_path is not None:
        told_all = CompareFacts(
            first=options.first.name,
            second=options.second.name,
            before=before,
            after=after,
            rows=rows,
            verdict=verdict,
            unlike=unlike,
            tolerance=options.tolerance,
            command=command,
        )
        write_html(options.html_path, compare_page(told_all), console)
    return REGRESSION_STATUS if verdict == "regression" else 0
