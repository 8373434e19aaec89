"""Compare the answers of versions in the shadow lane, which no customer sees, with the live ones."""
