"""Keys and values (KV) of tokens that were computed before: named, encoded, kept, and loaded where that is cheaper."""
