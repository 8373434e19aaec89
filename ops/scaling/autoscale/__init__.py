"""How many workers there should be now: decided by what is asked, published for whoever starts and ends them."""
