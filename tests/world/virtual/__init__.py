"""The machine that the world's processes run on: time, threads, TCP, clocks and randomness, all virtual."""
