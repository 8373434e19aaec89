"""An edge's link to its centre: how long it takes, the FAQ that comes over it, the journal that goes back."""
