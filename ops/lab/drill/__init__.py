"""A drill: cause one limited fault after another on your own fleet while questions are being asked, and report the
result."""
