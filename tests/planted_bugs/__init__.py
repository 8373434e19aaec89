"""Bugs that would break a promise, planted one at a time to see that the tests catch each: `make planted-bugs`."""
