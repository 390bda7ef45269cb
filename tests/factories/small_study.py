"""Settings of a small study: a text of some hundred sentences, models of two layers."""

VALUES = {
    "length": 32,
    "vocab_size": 300,
    "workers": 1,
    "probe_documents": 20,
    "probe_splits": 2,
    "held_out": 0.2,
    "ablation_documents": 8,
    "texts": 1,
}
TRAINING = {
    "batch_size": 8,
    "precision": "fp32",
    "model": {"num_hidden_layers": 2},
    "warmup_steps": 5,
    "checkpoint_every": 10,
}
