"""What will be asked some minutes from now, and how sure that is."""
