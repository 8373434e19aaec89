"""What went wrong before, kept by its symptoms, with what helped."""
