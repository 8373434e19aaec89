"""One worker in virtual time: the scheduler and the admission that serve, with an engine of known costs."""
