"""A drill: one bounded fault after another on a fleet of one's own, asked all the while, with a report."""
