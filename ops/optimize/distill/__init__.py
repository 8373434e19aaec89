"""A small model learns to answer as it is shown to: by LoRA, from answers or from a larger model."""
