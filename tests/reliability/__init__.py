"""Every promise of docs/reliability.md tried whole, and `reliability.json` written of what was found.

    promises P   which there are, their figures, and what tries each     programs   runs tests, chaos and benches
    finders P    which tests find something of which                     rows P     what those say of a promise
    result P     reliability.json, and what of an earlier one is kept    __main__   all, table and exit status

P = pure.
"""
