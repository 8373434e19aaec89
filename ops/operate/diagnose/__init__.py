"""Find what slows a running system down: read from its numbers, named with the evidence, and what to do
(docs/runbooks)."""
