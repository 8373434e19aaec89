"""What is promised, while processes are killed: a load, a ledger that knows every request, faults drawn from a seed.

    schedule P    seed → faults                     client    a session that survives its sockets
    strikes       who carries out which fault       proxy     a bad network
    questions P   seed → what is asked              load      all the clients, in a thread of their own
    ledger P      what clients did and heard        fleet     processes that are killed and started again
    verdict P     what of it must not be            shipped   the only right texts
    story P       one request's whole story         run       all of them together
    table P       a run in numbers
    gates         proxies before Kafka and Redis    member    a gateway or a worker
    hangs         a worker whose engine hangs or crashes    noisemaker    sends what nobody honest sends
    clocks        a process whose clock is wrong

P = pure. docs/reliability.md says what is checked and what that does not prove.
"""
