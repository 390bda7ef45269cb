"""The encoder: everything a saved model needs. Imports only within this folder, so that a checkpoint can carry it along."""

from .config import EncoderConfig
from .heads import EncoderForMaskedLM
from .model import Encoder, EncoderPreTrainedModel
from .presets import PRESETS, SIZES, SOURCES, preset

__all__ = ["PRESETS", "SIZES", "SOURCES", "Encoder", "EncoderConfig", "EncoderForMaskedLM", "EncoderPreTrainedModel", "preset"]
