"""Check the system's promises while processes are killed: a load, a ledger of every request, faults drawn from a seed.

schedule P    seed → faults                     client    a session that survives its sockets
strikes       applies each fault                proxy     a bad network
questions P   seed → questions                  load      all the clients, in a separate thread
ledger P      what clients sent and received    fleet     processes that are killed and started again
verdict P     the broken promises               shipped   the only right texts
story P       one request's whole story         run       all of them together
table P       a run in numbers
gates         proxies before Kafka and Redis    member    a gateway or a worker
hangs         a worker whose engine hangs or crashes    noisemaker    sends invalid traffic
clocks        a process whose clock is wrong

P = pure. docs/reliability.md describes the checks and what they do not prove.
"""
