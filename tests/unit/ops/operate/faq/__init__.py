"""Reading a shop's pages as FAQ entries."""
