"""Training: one loop, exact checkpoints, and the recipes on top of them."""
