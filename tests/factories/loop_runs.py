"""Small trainings for tests of the loop: their settings and windows."""

from pathlib import Path

from whatwhere.corpus import Windows
from whatwhere.training.corpus_settings import prepare_windows
from whatwhere.training.pretrain_settings import PretrainConfig

SETTINGS = {"length": 32, "vocab_size": 300, "batch_size": 8, "workers": 1, "precision": "fp32", "warmup_steps": 5}


def config_of(corpus_file: Path, **values) -> PretrainConfig:
    return PretrainConfig.parse({**SETTINGS, "corpus": str(corpus_file), "model": {"num_hidden_layers": 2}, **values})


def windows_of(corpus_file: Path, folder: Path) -> Windows:
    config = PretrainConfig.parse({**SETTINGS, "corpus": str(corpus_file), "steps": 1})
    return prepare_windows(config, folder / "corpus", progress=False)
