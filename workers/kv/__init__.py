"""Keys and values (KV) of computed tokens: named, encoded, stored, and loaded if that is faster than computing them."""
