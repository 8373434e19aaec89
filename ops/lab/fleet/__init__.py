"""A fleet of workers in virtual time, with cold starts and a scaler that decides their number."""
