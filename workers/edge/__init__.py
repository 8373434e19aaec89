"""The connection of an edge (a Replyline near the customers) to its centre: the measured round trip, the FAQ that is
fetched, and the answers and erasures that are sent back."""
