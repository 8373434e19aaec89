"""One deterministic world: real gateways and workers, their network, Kafka, Redis and customers, in virtual time, from
one seed (docs/testing.md)."""
