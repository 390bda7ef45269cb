"""The encoder: everything that a saved model needs and carries. Its modules import nothing else of whatwhere."""

import transformers

from .carry import AUTO_CLASSES
from .config import EncoderConfig
from .model import Encoder, EncoderPreTrainedModel
from .pair_terms import PairInputs, PairTerms
from .presets import PRESETS, SIZES, SOURCES, preset
from .registry import (
    load_scheme,
    register_bias,
    register_pair_terms,
    register_preset,
    register_rotation,
    register_table,
)
from .task_heads import (
    EncoderForMaskedLM,
    EncoderForMultipleChoice,
    EncoderForQuestionAnswering,
    EncoderForSequenceClassification,
    EncoderForTokenClassification,
)

__all__ = [
    "AUTO_CLASSES",
    "PRESETS",
    "SIZES",
    "SOURCES",
    "PairTerms",
    "Encoder",
    "EncoderConfig",
    "EncoderForMaskedLM",
    "EncoderForMultipleChoice",
    "EncoderForQuestionAnswering",
    "EncoderForSequenceClassification",
    "EncoderForTokenClassification",
    "EncoderPreTrainedModel",
    "PairInputs",
    "load_scheme",
    "preset",
    "register_bias",
    "register_pair_terms",
    "register_preset",
    "register_rotation",
    "register_table",
]

if __name__ == "whatwhere.encoder":  # not a carried copy, which transformers finds by the auto_map of its folder
    transformers.AutoConfig.register(EncoderConfig.model_type, EncoderConfig)
    for _auto, _name in AUTO_CLASSES.items():
        if _auto != "AutoConfig":
            getattr(transformers, _auto).register(EncoderConfig, globals()[_name])
