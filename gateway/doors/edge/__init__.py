"""The HTTP interface that a central gateway offers to edges (gateways near the customers, docs/edge.md). Edges fetch
the signed FAQ, send the answers that they gave, and exchange erasures of conversations with the centre."""
