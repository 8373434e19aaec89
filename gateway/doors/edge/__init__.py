"""The door of edges: the signed FAQ, the turns that they answered, and the erasures on either side."""
