"""What is promised, while processes are killed: a load, a ledger that knows every request, faults drawn from a seed.

    schedule P    seed → faults                     client    a session that survives its sockets
    questions P   seed → what is asked              proxy     a bad network
    ledger P      what clients did and heard        load      all the clients, in a thread of their own
    verdict P     what of it must not be            fleet     processes that are killed and started again
    story P       one request's whole story         rights    the only right texts
    table P       the run in numbers                run       all of them together

P = pure. docs/reliability.md says what is checked and what that does not prove.
"""
