"""What holds a running system up: read from its numbers, named with the evidence, and what to do (docs/runbooks)."""
