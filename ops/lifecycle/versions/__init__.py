"""`replyline versions`: the registry of model versions for people."""
