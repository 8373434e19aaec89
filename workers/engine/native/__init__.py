"""The native CPU engine: C sources, compiled on the machine that they run on."""
