"""whatwhere: text encoders that keep meaning apart from position, and instruments that show what position does."""

from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from . import geometry
from .encoder import Encoder, EncoderConfig, EncoderForMaskedLM, preset

__version__ = "0.1.0"
__all__ = ["Encoder", "EncoderConfig", "EncoderForMaskedLM", "geometry", "preset"]

AutoConfig.register(EncoderConfig.model_type, EncoderConfig)
AutoModel.register(EncoderConfig, Encoder)
AutoModelForMaskedLM.register(EncoderConfig, EncoderForMaskedLM)
