"""Traffic as it was: `replyline record` writes what is asked into a file, `replyline replay` asks it again."""
