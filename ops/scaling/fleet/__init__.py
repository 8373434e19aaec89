"""A fleet of workers in virtual time, with cold starts and whoever decides how many there are."""
