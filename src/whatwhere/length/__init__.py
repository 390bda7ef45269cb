"""Longer texts than a model was trained on: continue its table, copy the model, measure what it does there."""
