"""`replyline bench compare`: two results of `--json` side by side, and whether the second is worse."""

from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from ops.load.commands import CompareOptions
from ops.load.figures.comparison import Result, compared, differences, rows_of, worst
from ops.load.pages.comparison import CompareFacts, compare_page
from ops.measure.runner import markdown, write_html
from shared.errors import SettingsError

REGRESSION_STATUS: Final = 1


def read_result(path: Path) -> Result:
    """Read a result. Raises `SettingsError`, one line."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}; name a file of `--json`") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path}: is no result that can be compared ({error}); make one: replyline bench, bench traffic or replay, "
            "with --json FILE"
        ) from None


def bench_compare(options: CompareOptions, command: str, console: Console) -> int:
    """Print the table; the exit status: 1 for a regression. Raises `SettingsError`."""
    before, after = read_result(options.first), read_result(options.second)
    unlike = differences(before.environment, after.environment)
    for told in unlike:
        console.print(f"not alike: {told}", soft_wrap=True, highlight=False)
    rows = compared(before.samples, after.samples, tolerance=options.tolerance)
    print(markdown(*rows_of(rows, options.first.name, options.second.name)))
    verdict = worst(rows)
    requests = f"{len(before.samples.in_time)} and {len(after.samples.in_time)} requests"
    print(f"{verdict} ({requests}; a difference is one beyond {options.tolerance:.0%} and beyond chance)")
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
