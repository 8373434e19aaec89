"""Find what slows a running system down: from its metrics, with the evidence and the remedy (docs/runbooks)."""
