"""The configuration keys of reading longer texts and of copies of models that do, read without loading torch."""

from pydantic import Field

from ..evaluation.evaluation_keys import EvaluationKeys
from ..run.settings import StrictConfig
from ..training.training_keys import CorpusKeys

# Ways to read on: as the model is, by its formula, by nine methods for a table, by two for rotations.
CHOICES = tuple("as-it-is formula sinusoidal fourier cyclic learned decay rotation linear nearest mds ntk yarn".split())


class LengthKeys(EvaluationKeys):
    """The keys of reading texts longer than in training."""

    KNOWN = {"methods": ("method", CHOICES), "adapt": ("part to adapt", ("none", "network", "table", "all"))}

    corpus: str = Field(
        "python-docs",
        description="Text with long documents, as for `study`. Choose one that no model was trained on.",
    )
    field: str = Field("text", description=CorpusKeys.model_fields["field"].description)
    document: str = Field("auto", description=CorpusKeys.model_fields["document"].description)
    to: int = Field(1024, ge=64, description="Tokens of a text.")
    documents: int = Field(
        32, ge=10, description="Documents that are measured, an excerpt behind the first quarter of each."
    )
    methods: list[str] = Field(
        default_factory=list,
        description="Ways to read on, with commas, each with each of --windows and --adapt, those that OUT was begun "
        "with included: as-it-is, formula, sinusoidal, fourier, cyclic, learned, decay, rotation, linear, nearest, "
        "mds, ntk, yarn.",
        json_schema_extra={"default": "all that a model has"},
    )
    points: str | None = Field(
        None,
        description="For mds: table with a row of coordinates for each of --to positions (.npy), such as "
        "tables/NAME-mds.npy of `geometry` for a corpus with longer texts.",
        json_schema_extra={"metavar": "<path>"},
    )
    windows: list[int] = Field(
        [0],
        description="Tokens on each side that a token looks at, of models of this package, with commas; 0 for all.",
    )
    adapt: list[str] = Field(
        ["none"],
        description="What a short training on further documents changes: none, network (of the method `learned`), "
        "table (the position table alone), all; with commas.",
    )
    steps: int = Field(
        60,
        ge=10,
        description="Steps of that training, of 8 texts each; its rate is 0.001 (table, network: 0.004) for 128 "
        "columns, less for more.",
    )


class CopyConfig(StrictConfig):
    """Settings of a copy of a model that reads longer texts."""

    model: str = Field(description="Folder of a model: of ours, BERT, RoBERTa, GPT-2 ...; or `reference`.")
    length: int = Field(ge=2, description="Tokens that the copy reads, special ones included.")
    method: str | None = Field(
        None,
        description="Of a learned table: sinusoidal, fourier, cyclic, learned, decay (the notes'), rotation, linear, "
        "nearest, mds. Of RoPE: linear, ntk, yarn.",
        json_schema_extra={"default": "cyclic; RoPE needs nothing"},
    )
    components: int | None = Field(
        None,
        ge=1,
        description="Frequencies of fourier and rotation.",
        json_schema_extra={"default": "a sixteenth of the positions, at most 16"},
    )
    points: str | None = Field(
        None,
        description="Of mds: .npy file with a row of coordinates for each of LENGTH positions (of a longer corpus).",
        json_schema_extra={"metavar": "<path>"},
    )
    as_written: bool = Field(
        False, description="The equation for the rows of the model, too, which otherwise stay as they are."
    )
    window: int | None = Field(
        None,
        ge=1,
        description="Tokens on each side that a token looks at in the copy, for example half of the trained length; of "
        "models of this package.",
        json_schema_extra={"default": "all"},
    )
