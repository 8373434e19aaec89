"""Keep docstrings, comments and help texts readable: `python -m tests.wording` (part of `make check`)."""
