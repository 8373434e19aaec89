"""Every promise of docs/reliability.md tried whole, and `reliability.json` written of what was found.

    promises P   which there are, their figures, and what tries each     programs   runs tests, chaos and benches
    rows P       what a test, or a result's JSON, says of a promise      __main__   all of them, table and exit status

P = pure.
"""
