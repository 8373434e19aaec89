"""How many workers there are: planned, forecast, decided while they serve, and simulated."""
