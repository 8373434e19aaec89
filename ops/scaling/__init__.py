"""The number of workers: planned, forecast, decided while they serve, and simulated."""
