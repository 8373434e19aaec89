"""The native CPU engine: a decoder's whole step in C, for any mix of decode rows and prompt chunks.

`build` compiles `source/` on the machine that runs it → `library` loads it and chooses a kernel → `engine` computes
with a prepared folder's `model.native`, which `weights` maps.
"""
