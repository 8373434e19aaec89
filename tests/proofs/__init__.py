"""What the promises of whole capabilities cost and keep, each a table: doors, lifecycle, elastic."""
