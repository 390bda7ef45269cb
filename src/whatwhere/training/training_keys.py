"""The configuration keys of trainings: name, type, range, default and help of each, read without loading torch.

The command line makes its options of these classes. The settings that a training uses extend them with the checks that
need torch; `LoopConfig` needs none, so a training uses it as it stands here.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from ..corpus.paths import check_corpus, check_table
from ..models.preset_table import check_preset, encoder_fields
from ..run.reference import check_model_name
from ..run.settings import Count, Share, StrictConfig

OpenShare = Annotated[float, Field(gt=0, lt=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]
BUDGET_KEYS = ("steps", "tokens", "minutes")  # a pretraining takes one of them
MODEL_HELP = (
    "A model folder: of pretrain, finetune or a study, or any encoder of transformers (safetensors); a Hub name; or "
    "`reference`, the one that comes with the package (a folder of that name here is ./reference)."
)


class SchemeKeys(StrictConfig):
    """The key of every configuration that may name an own scheme."""

    scheme: str | None = Field(
        None,
        description="Python file that registers a part of a scheme, or a preset, of your own (examples/kerple.py). "
        "It is run.",
        json_schema_extra={"metavar": "<path>"},
    )

    @classmethod
    def _read(cls, path: Path) -> dict[str, Any]:
        """Read a file of settings; a scheme is looked for beside that file first."""
        values = super()._read(path)
        if isinstance(scheme := values.get("scheme"), str):
            path_beside = path.parent / scheme
            values["scheme"] = str(path_beside) if path_beside.is_file() else scheme
        return values

    @classmethod
    def check_existence(cls, values: dict[str, Any]) -> None:
        super().check_existence(values)
        if values.get("scheme") is not None:
            check_scheme_file(values["scheme"])


def check_scheme_file(path: str | Path) -> None:
    """Refuse a scheme that is no Python file.

    Raises:
        ValueError: there is no such file, or its name does not end in .py.
    """
    file = Path(path)
    if file.suffix != ".py" or not file.is_file():
        raise ValueError(f"The scheme {path} is no Python file that exists. See examples/kerple.py for one.")


class CorpusKeys(StrictConfig):
    """The keys of a text and of how it becomes windows of token ids."""

    corpus: str = Field(
        "python-docs",
        description="Text: python-docs (docstrings of the installed packages, nothing to download), a file or folder "
        "(.txt .jsonl .json .parquet .tsv .csv, also .gz .xz .zst .bz2), hub:NAME[:CONFIG], synthetic:repeat, "
        "synthetic:three-regimes.",
    )
    field: str = Field("text", description="Field of the text in tables and JSON lines.")
    document: str = Field(
        "auto", description="What a document of a text file is: auto, file, blank-line, line or heading."
    )
    tokenizer: str | None = Field(
        None,
        description="Vocabulary file, tokenizer folder, Hub name, `reference`, words or characters.",
        json_schema_extra={"default": "train a WordPiece on the corpus; bert-base-uncased at --size paper"},
    )
    vocab_size: int = Field(
        4096,
        ge=16,
        description="Entries of a tokenizer that is made from the corpus.",
        json_schema_extra={"default": "4096; 8192 at --size small"},
    )
    newline_token: bool = Field(True, description="Line breaks become [NL] tokens.")
    length: int = Field(
        128,
        ge=4,
        description="Tokens of a window, [CLS] and [SEP] included.",
        json_schema_extra={"default": "128; 256 at --size small, 512 at paper"},
    )
    join: Literal["none", "isolate", "run-on"] = Field(
        "run-on",
        description="How documents fill windows: none, a window has one document; isolate, several that do not see "
        "each other; run-on, one stream of text.",
        json_schema_extra={"default": "run-on; none for python-docs, which has enough documents for that"},
    )
    pieces: Literal["auto", "first", "all"] = Field(
        "auto",
        description="Pieces of a document that does not run on: first (as DSTG's code truncates), all, or auto (first "
        "where that is enough text).",
    )
    held_out: OpenShare = Field(0.05, description="Share of the documents kept from training.")
    workers: Count | None = Field(
        None, description="Processes that tokenise.", json_schema_extra={"default": "one a core"}
    )

    @classmethod
    def check_existence(cls, values: dict[str, Any]) -> None:
        super().check_existence(values)
        if values.get("corpus") is not None:
            check_corpus(values["corpus"])


class LoopConfig(StrictConfig):
    """The settings of the training loop itself; pretraining and fine-tuning extend it.

    A class of a file `*_keys.py` that needs no torch to be checked is called Config; one that is completed elsewhere
    (`PretrainKeys` by `PretrainConfig`) is called Keys.
    """

    seed: NonNegativeInt = Field(0, description="Seed of weights, masks and order.")
    steps: Count | None = Field(None, description="Budget in optimizer steps.")
    batch_size: Count = Field(
        32,
        description="Windows (fine-tuning: rows) of an optimizer step, all processes and micro-batches together.",
    )
    accumulate: Count = Field(1, description="Micro-batches into which the batch of a step is divided.")
    learning_rate: PositiveFloat = Field(
        4e-3, description="Peak learning rate; the keys *_learning_rate_scale multiply it for their parameters."
    )
    warmup_steps: NonNegativeInt = Field(100, description="Steps of the linear warm-up, at most half of all steps.")
    schedule: Literal["cosine", "linear", "trapezoid"] = Field(
        "cosine",
        description="Course of the learning rate after the warm-up; trapezoid: constant for 70 % of those steps, then "
        "linear.",
    )
    minimum_learning_rate_ratio: Share = Field(0.1, description="Learning rate at the end, as a share of the peak.")
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw", description="muon: Muon for the hidden matrices, AdamW for all else."
    )
    muon_scale: Literal["adamw", "spectral"] = Field(
        "adamw",
        description="Size of Muon's updates: adamw, entries as large as AdamW's; spectral, √max(1, rows/columns) times "
        "orthogonal.",
    )
    matrix_learning_rate_scale: PositiveFloat = Field(
        1.0, description="Learning rate of the hidden matrices, as a multiple of learning_rate."
    )
    matrix_steps: Count | None = Field(
        None,
        description="Steps that matrix_learning_rate_scale is meant for: a training of more steps, N, takes "
        "√(matrix_steps / N) of it.",
    )
    embedding_learning_rate_scale: PositiveFloat = Field(
        1.0, description="Learning rate of the word embeddings, as a multiple of learning_rate."
    )
    table_learning_rate_scale: NonNegativeFloat = Field(
        1.0,
        description="Learning rate of the position table and of learned vectors of distances (of relative=product they "
        "count as biases), as a multiple of learning_rate; 0 freezes them, with the map of table_width and TUPE's "
        "vectors of [CLS].",
    )
    bias_learning_rate_scale: PositiveFloat = Field(
        1.0,
        description="Learning rate of relative-bias tables and other small numbers of a bias, as a multiple of "
        "learning_rate; at sizes tiny and small DSTG's recipe has 10.",
    )
    betas: tuple[Beta, Beta] = Field((0.9, 0.95), description="AdamW's decay rates of the two moments.")
    epsilon: PositiveFloat = Field(1e-8, description="AdamW's epsilon.")
    weight_decay: NonNegativeFloat = Field(
        0.01, description="Weight decay of matrices at each step, times the learning rate."
    )
    embedding_weight_decay: NonNegativeFloat = Field(0.0, description="Weight decay of the word embeddings.")
    table_weight_decay: NonNegativeFloat = Field(
        0.0, description="Weight decay of position tables and vectors of distances."
    )
    bias_weight_decay: NonNegativeFloat = Field(
        0.0, description="Weight decay of all that bias_learning_rate_scale covers."
    )
    clip: PositiveFloat = Field(1.0, description="Largest norm of the gradient.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="Floating-point type of the passes; auto: bf16 where the hardware is faster with it."
    )
    backend: Literal["sdpa", "eager", "flex_attention"] = Field("sdpa", description="Attention backend.")
    sharding: Literal["none", "full"] = Field(
        "none", description="full: each of several processes keeps one shard of the model (FSDP2)."
    )
    deterministic: bool = Field(
        False,
        description="Use torch's deterministic kernels alone, on CUDA too; stop with an error where there is none.",
    )
    checkpoint_every: Count = Field(
        500, description="Steps between checkpoints, besides 0, checkpoint_steps and the last."
    )
    checkpoint_steps: list[NonNegativeInt] | None = Field(
        None, description="Steps of further checkpoints.", json_schema_extra={"default": "1, 3, 10, 30, 100, ..."}
    )
    checkpoint_minutes: PositiveFloat = Field(
        10.0,
        description="Minutes between additional checkpoints, each replacing the one before.",
    )
    validate_every: Count = Field(100, description="Steps between validations.")
    log_every: Count = Field(10, description="Steps between log lines.")
    trackers: list[str] = Field([], description="Trackers of accelerate, for example tensorboard.")


class PretrainKeys(LoopConfig, CorpusKeys, SchemeKeys):
    """The keys of a pretraining."""

    steps: Count | None = Field(
        None, description="Budget in optimizer steps.", json_schema_extra={"default": "the recipe's of the size"}
    )
    preset: str = Field(
        "dstg",
        description="Which encoder (whatwhere presets lists them), trained by its recipe: dstg 20 % masked, all "
        "[MASK], a constant rate for 70 % of the steps after the warm-up, then linear to a tenth (paper: cosine); tupe "
        "(BERT's block) 15 %, 80-10-10, linear to 0.",
    )
    size: str = Field("tiny", description="tiny, small or paper: widths, layers and positions.")
    recipe: Literal["dstg", "tupe"] = Field(
        "dstg",
        description="Paper whose training defaults apply.",
        json_schema_extra={"default": "the preset's"},
    )
    model: dict[str, Any] = Field({}, description="Fields of the encoder that override the preset's.")
    tokens: Count | None = Field(None, description="Budget in training tokens, padding included.")
    minutes: PositiveFloat | None = Field(
        None,
        description="Budget in minutes of training, turned into steps once, by timing; stderr says first how many "
        "steps they buy.",
    )
    mask_rate: OpenShare = Field(0.2, description="Share of the tokens that is predicted.")
    masking: Literal["all", "80-10-10"] = Field(
        "all", description="What replaces a token to predict: all, always [MASK]; 80-10-10, as BERT."
    )
    shift: bool = Field(
        True,
        description="Add a random offset to the positions of each window (of each text with join=isolate) that is "
        "shorter than the position table (DSTG 3.3). Schemes with position_draws draw theirs instead.",
    )
    subset: bool = Field(
        False,
        description="Instead of a shift, draw a sorted random sample of positions, one for each token of a text.",
    )
    first_length: Annotated[int, Field(ge=4)] | None = Field(
        None,
        description="Length curriculum: windows are first cut into pieces of this many tokens; the length doubles in "
        "equal stages of the steps up to whole windows; a piece keeps its positions.",
    )
    entropy_weight: NonNegativeFloat = Field(
        0.0,
        description="Weight of a penalty on heads that look at many distances by position and at few by meaning, as in "
        "an earlier code of DSTG's authors (0.01 there); it is part of the training loss that is logged.",
    )
    validation_windows: Count = Field(256, description="Held-out windows of a validation.")
    language: str = Field("und", pattern="^[a-z]{2,3}$", description="Language of the text (ISO 639), for the card.")
    pooling: Literal["mean", "semantic"] = Field(
        "mean",
        description="Columns that make a text's vector in sentence-transformers: mean, all columns; semantic, "
        "the columns of the semantic stream.",
    )

    @model_validator(mode="after")
    def _refuse_two_budgets(self) -> Self:
        budgets = [key for key in BUDGET_KEYS if getattr(self, key) is not None]
        if len(budgets) > 1:
            raise ValueError(f"Give one budget of {', '.join(BUDGET_KEYS)}; got {' and '.join(budgets)}.")
        return self

    @classmethod
    def keys_below(cls) -> list[str]:
        """Return the fields of the encoder, which are given as model.FIELD."""
        return [f"model.{name}" for name in encoder_fields() if name not in cls.model_fields]

    @classmethod
    def check_existence(cls, values: dict[str, Any]) -> None:
        super().check_existence(values)
        if values.get("scheme") is None:  # else the scheme may register it
            check_preset(str(values.get("preset") or "dstg"), str(values.get("size") or "tiny"))


class FinetuneKeys(LoopConfig, SchemeKeys):
    """The keys of a fine-tuning for sequence classification."""

    steps: Count | None = Field(None, description="Budget in optimizer steps, instead of epochs.")
    start: str = Field(description=f"{MODEL_HELP} Its weights, configuration and tokenizer are taken.")
    from_scratch: bool = Field(False, description="Take configuration and tokenizer of START, weights anew.")
    model: dict[str, Any] = Field({}, description="Fields of the encoder that override the folder's, e.g. dropout.")
    data: str = Field(
        description="Labelled table to train on, with a header: .tsv, .csv, .jsonl or .json, also .gz .xz .zst .bz2.",
        json_schema_extra={"metavar": "<path>"},
    )
    dev: str = Field(
        description="Labelled table of the same columns, on which the accuracy is measured.",
        json_schema_extra={"metavar": "<path>"},
    )
    text: str = Field("sentence", description="Name of the column of --data and --dev that holds the text.")
    text_pair: str | None = Field(None, description="Name of the column that holds a second text, for tasks on pairs.")
    label: str = Field(
        "label",
        description="Name of the column that holds the class of each row: a word, such as `good`, or a whole number. "
        "Different values are different classes.",
    )
    length: int = Field(
        ge=4,
        description="Most tokens of a row, special ones included; longer rows are cut, and a line counts them.",
        json_schema_extra={"default": "the trained length, at most 128"},
    )
    epochs: PositiveFloat | None = Field(
        None, description="Budget in passes over the data.", json_schema_extra={"default": "3"}
    )

    @model_validator(mode="after")
    def _refuse_two_budgets(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise ValueError(f"Give one budget, steps or epochs; got steps={self.steps} and epochs={self.epochs:g}.")
        return self

    @classmethod
    def check_existence(cls, values: dict[str, Any]) -> None:
        super().check_existence(values)
        if values.get("start") is not None:
            check_model_name(values["start"])
        for key in ("data", "dev"):
            if values.get(key) is not None:
                check_table(Path(values[key]))
