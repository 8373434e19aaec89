"""The number of workers that are wanted now: decided by what is asked, published for whoever starts and ends them."""
