"""What is promised, while processes are killed: a load, a ledger that knows every request, faults drawn from a seed.

    schedule P    seed → faults                     client    a session that survives its sockets
    hop P         where a fault is put              proxy     a bad network; weather: which one
    questions P   seed → what is asked              load      all the clients, in a thread of their own
    ledger P      what clients did and heard        fleet     processes that are killed and started again
    verdict P     what of it must not be            rights    the only right texts
    story P       one request's whole story         run       all of them together
    table P       a run in numbers
    menu P        each fault: what must hold, whom it wakes        listing, tools  the menu, and what it lacks here
    strikes       who carries out which fault       member    a gateway or a worker
    gates         proxies before Kafka and Redis    addresses P   where these are found
    noise P       what nobody honest sends          noisemaker    sends it
    cores         who had no core to run on
    hangs         a worker whose engine hangs
    clocks        a process whose clock is wrong    drill, drill_table P, prometheus  faults until their alerts fire

P = pure. docs/reliability.md says what is checked and what that does not prove.
"""
