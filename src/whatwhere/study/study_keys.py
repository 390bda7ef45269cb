"""The configuration keys of study, geometry, heads and spectra: type, range, default and help of each.

Nothing here loads torch, because the command line makes its options of these classes. `StudyConfig` and
`GeometryConfig` add checks that load torch; `HeadsConfig` and `SpectraConfig` are complete here.
"""

import re
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ..corpus.paths import check_corpus
from ..models.preset_table import check_preset
from ..run.settings import StrictConfig
from ..training.training_keys import MODEL_HELP, CorpusKeys, PretrainKeys, SchemeKeys

ALL_PRESETS = "all"
# Keys of a training that a study decides itself, and what to give instead.
CHOSEN_BY_STUDY = {"preset": "Give models", "seed": "Give seeds, their number", "tokens": "Give steps or minutes"}
_NAMED = re.compile(r"([^=/:]+)=(.+)")  # NAME=SPEC, no slash or colon in the name


class StudyKeys(CorpusKeys, SchemeKeys):
    """The keys of a comparison of presets on one corpus."""

    models: list[str] = Field(
        ["dstg", "ap", "rp", "rope"],
        description="Presets to compare, with commas; `all` stands for all presets that the list does not name. All "
        "train by the recipe (masking, schedule, Adam) of the first one: dstg, or tupe for BERT's block; --set "
        "recipe=NAME chooses. stderr names what else they differ in. A finished study can gain more.",
    )
    size: str = Field("tiny", description=PretrainKeys.model_fields["size"].description)
    recipe: Literal["dstg", "tupe"] = Field(
        "dstg",
        description="Paper whose training defaults apply to all models.",
        json_schema_extra={"default": "the first model's"},
    )
    match: Literal["parameters", "operations"] | None = Field(
        None,
        description="parameters or operations (of a forward pass, per token): change the feed-forward widths of the "
        "other models so that they cost what the first one does.",
        json_schema_extra={"default": "as they are"},
    )
    variants: dict[str, dict[str, Any]] = Field(
        {},
        description="Models of your own by name: {preset: NAME, and PretrainConfig keys}, for `models` to take. "
        "Variants of --set are added to a file's.",
    )
    widths: dict[str, int] = Field({}, description="intermediate_size of single models; `match` fills it in.")
    seeds: int = Field(
        1,
        ge=1,
        description="Training seeds per model; --out STUDY --seeds 3 adds those that a finished study lacks.",
    )
    steps: int | None = Field(
        None,
        ge=1,
        description="Optimizer steps per model.",
        json_schema_extra={"default": "the recipe's of the size: tiny 625, small 2500, paper 70000 (tupe: 1000000)"},
    )
    minutes: float | None = Field(
        None,
        gt=0,
        description="Minutes for everything, from text to report, on this machine, instead of steps; they become steps "
        "once, by timing; stderr says how many steps they buy, and whether these are enough to learn anything.",
    )
    at_once: int | None = Field(
        None,
        ge=1,
        description="Models trained and looked into at once, which share the cores; 1: one after the other.",
        json_schema_extra={"default": "one a core; one where trainings are short or run on a GPU"},
    )
    training: dict[str, Any] = Field({}, description="PretrainConfig keys for every model.")
    probe_windows: int = Field(
        500,
        ge=10,
        description="Held-out windows that the probes and all other analyses of windows read.",
        json_schema_extra={"default": "500; 250 at size tiny"},
    )
    probe_splits: int = Field(
        5,
        ge=2,
        description="Random splits of the documents that are probed.",
        json_schema_extra={"option": "--splits"},
    )
    all_analyses: bool = Field(
        True,
        description="All analyses: heads, attention, sentences, ablations, controls, the corpus too; False: probes, "
        "position tables, the shift of positions.",
    )
    ablation_windows: int = Field(
        32,
        ge=8,
        description="Held-out windows whose loss is measured under ablations.",
        json_schema_extra={"default": "32; 16 at size tiny"},
    )
    texts: int = Field(
        2, ge=0, description="Held-out windows in the explorer, beside a text that repeats itself; 0: no explorer."
    )

    # A setting of one variant leaves the other variants of the file.
    KEYS_MERGED_BY_NAME: ClassVar[tuple[str, ...]] = ("variants",)

    @classmethod
    def keys_below(cls) -> list[str]:
        """Return the keys of a training and the fields of an encoder, which are given as training.KEY."""
        keys = [
            *PretrainKeys.keys_below(),
            *(key for key in PretrainKeys.model_fields if key not in {*cls.model_fields, *CHOSEN_BY_STUDY}),
        ]
        return [f"training.{key}" for key in keys]

    @model_validator(mode="before")
    @classmethod
    def _refuse_keys_of_trainings(cls, values: dict[str, Any]) -> dict[str, Any]:
        for key in values:
            if key in CHOSEN_BY_STUDY:
                raise ValueError(f"{key} of a training is chosen by the study. {CHOSEN_BY_STUDY[key]}.")
            if key not in cls.model_fields and key in PretrainKeys.model_fields:
                advice = f"Give training.{key}, for example --set training.{key}=..."
                raise ValueError(f"{key} is a key of the trainings. {advice}")
        return values

    @model_validator(mode="after")
    def _refuse_two_budgets(self) -> Self:
        if self.steps is not None and self.minutes is not None:
            raise ValueError(f"Give steps or minutes, one of them; got steps={self.steps}, minutes={self.minutes}.")
        return self

    @classmethod
    def check_existence(cls, values: dict[str, Any]) -> None:
        super().check_existence(values)
        if values.get("scheme") is not None:  # which may register presets
            return
        variants = values.get("variants") or {}
        for name in values.get("models") or ():
            if name != ALL_PRESETS and name not in variants:
                check_preset(str(name), str(values.get("size") or "tiny"))


class HeadsConfig(StrictConfig):
    """Settings of `whatwhere heads`: the model, what the model reads, and how much of it."""

    model: str = Field(description=MODEL_HELP)
    corpus: str | None = Field(
        None,
        description="Text, as for `study`, or a folder of windows (the corpus/ of a run or study), whose held-out part "
        "is read; both by the model's own tokenizer.",
        json_schema_extra={"default": "the windows of the model's own run, else a part of python-docs"},
    )
    field: str = Field("text", description=CorpusKeys.model_fields["field"].description)
    windows: int = Field(500, ge=10, description="Held-out windows of full length to read; DSTG takes 500.")
    length: int | None = Field(
        None,
        ge=8,
        description="Tokens of a window, [CLS] and [SEP] included; if given, windows are made anew of the text in "
        "--corpus, else of python-docs, never of the run's text. A --corpus of windows must have this length.",
        json_schema_extra={
            "default": "as the model's own windows; without any, the length that it was trained on (not ours: the "
            "most it reads), at most 512"
        },
    )
    ablate: int = Field(
        0,
        ge=0,
        description="Windows whose masked-language loss is measured again and again, each time with one term (of all "
        "blocks, of one, of one head) or one stream taken out, averaged or shuffled. 0: none.",
    )


class SpectraConfig(StrictConfig):
    """Settings of `whatwhere spectra`: the position tables to measure."""

    sources: list[str] = Field(
        description="A .npy file (positions, width), a model folder (ours, BERT, ALBERT, RoBERTa, ELECTRA, GPT-2, ViT; "
        "safetensors only), a study folder (all its models), a model's name on the Hub, or `reference`, the model that "
        "comes with the package."
    )
    words: bool = Field(False, description="Measure word tables too: their shares and N50.")


class GeometryKeys(SchemeKeys):
    """The keys of a geometry run: the corpora, how to count them, and what to measure on them."""

    corpora: list[str] = Field(
        ["python-docs"],
        min_length=1,
        description="Text, as for `study`; NAME=SPEC gives it a name without / or :; may be given again, and several "
        "are compared.",
        json_schema_extra={"option": "--corpus", "repeat": True},
    )
    field: list[str] = Field(
        ["text"],
        description="Field of the text in tables and JSON lines; one for all corpora or one each.",
        json_schema_extra={"repeat": True},
    )
    phrases: bool = Field(
        False,
        description="Put a document that stands inside a longer one (a phrase of a sentence) into the longer one's "
        "group; keeps all texts in memory.",
    )
    document: str = Field("auto", description=CorpusKeys.model_fields["document"].description)
    tokenizer: str | None = Field(
        None,
        description="Vocabulary file, tokenizer or model folder, Hub name, `reference`, words or characters.",
        json_schema_extra={"default": "the first --model's, else a WordPiece trained on the corpora"},
    )
    vocab_size: int | None = Field(
        None,
        ge=8,
        description="Entries of a tokenizer that is made from the corpora.",
        json_schema_extra={"default": "4,096 pieces, 50,000 words"},
    )
    positions: int = Field(128, ge=3, description="Positions to count, special tokens not among them.")
    align: Literal["start", "relative"] = Field(
        "start",
        description="start: position from the start of a document; relative: its place in --positions equal parts.",
    )
    protocol: Literal["default", "paper"] = Field(
        "default", description="default, or paper: GEOM's own, with all positions, smoothed, nothing corrected."
    )
    min_support: float = Field(
        500, ge=1, description="Tokens that a position needs to be kept."
    )  # geometry.MIN_SUPPORT, whose import would load scipy
    groups: int = Field(32, ge=2, description="Groups of documents that are left out in turn for intervals.")
    splits: int = Field(10, ge=1, description="Random splits into two halves, for the corrected distances.")
    intervals: bool = Field(
        True, description="95 % intervals, a pass for each group of documents, which take most of the time."
    )
    smacof: bool = Field(True, description="Tables of least stress beside classical MDS.")
    width: int = Field(768, ge=2, description="Width of the encodings compared.")
    heads: int = Field(12, ge=1, description="Heads of ALiBi.")
    dims: list[int] = Field(
        [16, 32, 64, 128, 256, 512, 768], description="Widths d of the curve of stress, with commas."
    )
    ranks: list[int] = Field([1, 2, 3, 7], description="Ranks of the MDS tables.")
    rank: int | None = Field(
        None,
        ge=1,
        description="Rank of the table that is written.",
        json_schema_extra={"default": "the rank of least stress on held-out documents"},
    )
    tables: list[str] = Field(
        [],
        description="A further table: .npy, model folder, Hub name or `reference`. Row 0 is [CLS]'s unless --set "
        "first_row=0; may be given again.",
        json_schema_extra={"option": "--table", "repeat": True},
    )
    first_row: int | None = Field(
        None,
        ge=0,
        description="Row of position 0 in further tables.",
        json_schema_extra={"default": "1, after [CLS], and 0 for GPT-2, OPT and others without [CLS]"},
    )
    models: list[str] = Field(
        [],
        description="Folder of a model, or `reference`: separation of its table at every checkpoint, and GEOM's "
        "conditions H1 and H3; may be given again.",
        json_schema_extra={"option": "--model", "repeat": True},
    )
    seed: int = Field(0, description="Seed of random halves and the random table.")
    workers: int | None = Field(
        None,
        ge=1,
        description="Processes that count.",
        json_schema_extra={"default": "one a core for large corpora"},
    )

    @field_validator("corpora", "field", "tables", "models", "dims", "ranks", mode="before")
    @classmethod
    def _make_list(cls, value: Any, info: ValidationInfo) -> Any:
        """Make a list of one value, or of numbers with commas."""
        are_numbers = info.field_name in ("dims", "ranks")
        if are_numbers and isinstance(value, str) and re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", value):
            return [int(number) for number in value.split(",")]
        return value if isinstance(value, list | tuple) else [value]

    @classmethod
    def check_existence(cls, values: dict[str, Any]) -> None:
        super().check_existence(values)
        for spec in values.get("corpora") or ():
            check_corpus(name_and_corpus(spec)[1])


def name_and_corpus(spec: str) -> tuple[str | None, str]:
    """Split NAME=SPEC into the name and the corpus; the name of SPEC alone is None."""
    match = None if Path(spec).exists() else _NAMED.fullmatch(spec)
    return (match[1], match[2]) if match else (None, spec)
