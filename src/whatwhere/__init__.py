"""whatwhere: text encoders that keep meaning apart from position, and instruments that show what position does."""

import transformers

from . import encoder, geometry
from .encoder import (
    Encoder,
    EncoderConfig,
    EncoderForMaskedLM,
    EncoderForQuestionAnswering,
    EncoderForSequenceClassification,
    EncoderForTokenClassification,
    load_scheme,
    preset,
    register_bias,
    register_preset,
    register_rotation,
    register_table,
    write_sentence_transformer,
)
from .shipped import reference

__version__ = "0.1.0"
__all__ = [
    "Encoder",
    "EncoderConfig",
    "EncoderForMaskedLM",
    "EncoderForQuestionAnswering",
    "EncoderForSequenceClassification",
    "EncoderForTokenClassification",
    "geometry",
    "load_scheme",
    "preset",
    "reference",
    "register_bias",
    "register_preset",
    "register_rotation",
    "register_table",
    "write_sentence_transformer",
]

transformers.AutoConfig.register(EncoderConfig.model_type, EncoderConfig)
for _auto, _name in encoder.AUTO_CLASSES.items():
    if _auto != "AutoConfig":
        getattr(transformers, _auto).register(EncoderConfig, getattr(encoder, _name))
