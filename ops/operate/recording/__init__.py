"""Recorded traffic: `replyline record` writes requests to a file, `replyline replay` sends them again."""
