"""whatwhere: text encoders that keep meaning apart from position, and instruments that show what position does.

Public names load their modules when they are first used, so that the command line starts without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .auto_classes import register_with_transformers
from .version import VERSION as __version__

if TYPE_CHECKING:
    from . import encoder, geometry
    from .encoder import (
        Encoder,
        EncoderConfig,
        EncoderForMaskedLM,
        EncoderForMultipleChoice,
        EncoderForQuestionAnswering,
        EncoderForSequenceClassification,
        EncoderForTokenClassification,
        load_scheme,
        preset,
        register_bias,
        register_pair_terms,
        register_preset,
        register_rotation,
        register_table,
    )
    from .models.export import export
    from .models.predict import predict
    from .models.sentence import write_sentence_transformer
    from .report.notebook import dataframe, figures, plot
    from .run.reference import reference

__all__ = [
    "Encoder",
    "EncoderConfig",
    "EncoderForMaskedLM",
    "EncoderForMultipleChoice",
    "EncoderForQuestionAnswering",
    "EncoderForSequenceClassification",
    "EncoderForTokenClassification",
    "__version__",
    "dataframe",
    "encoder",
    "export",
    "figures",
    "geometry",
    "load_scheme",
    "plot",
    "predict",
    "preset",
    "reference",
    "register_bias",
    "register_pair_terms",
    "register_preset",
    "register_rotation",
    "register_table",
    "write_sentence_transformer",
]


def __getattr__(name: str) -> Any:
    if name == "geometry":
        return import_module(".geometry", __name__)
    if name in ("dataframe", "figures", "plot"):
        return getattr(import_module(".report.notebook", __name__), name)
    if name in ("export", "predict"):
        return getattr(import_module(f".models.{name}", __name__), name)
    if name == "write_sentence_transformer":
        return getattr(import_module(".models.sentence", __name__), name)
    if name == "reference":
        return import_module(".run.reference", __name__).reference
    if name in __all__:
        encoder = import_module(".encoder", __name__)
        import_module(".models.model_tables", __name__)  # so that a new model's table may start from another model's
        return encoder if name == "encoder" else getattr(encoder, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


register_with_transformers()
