"""Change the model version that a worker serves, while it serves."""
