"""Reference studies that come with the package, and the one that stands beside a run of the same size.

A reference study is two files in `reference_studies/`: `NAME.parquet`, the records that pages and ledgers read, and
`NAME.json`, its facts. `docs/results/ship.py` writes both from the folder of a study.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ..claims import CLAIMS, evaluate
from ..records.record import FORMAT, Record, read_records
from ..records.table import Table
from ..records.terms import ENCODER, RATES, is_about
from ..run.files import read_json

FOLDER = Path(__file__).parents[1] / "reference_studies"
WIKIPEDIA = "Wikipedia"  # kinds of text; any other is ""
DOCSTRINGS = "docstrings"
BETWEEN_MODELS = ("regression.", "convergence.")  # metrics whose part is another model
TEXTS = ("", "corpus")  # what stands as the model of a record about texts alone

# Fields of a configuration that say which model it is; models that differ in one are never beside each other.
SCHEME = ("preset", "absolute", "untied", "relative", "pair_terms", "rotation", "num_hidden_layers")
FIRST = ("table_start", "residual")  # the weightiest settings, by which a reference's model is chosen and told first
_NAMES = {**ENCODER, **RATES}  # what a sentence calls a setting
# Fields that follow from the corpus, the costs or the version of a library, and are compared elsewhere or not at all.
_APART = {
    *("vocab_size", "max_position_embeddings", "hidden_size", "intermediate_size"),
    *("architectures", "auto_map", "dtype", "model_type", "transformers_version"),
    *("pad_token_id", "unk_token_id", "cls_token_id", "sep_token_id", "mask_token_id"),
}
# Settings of a training that decide what its tables become.
TRAINING = (
    *("recipe", "optimizer", "learning_rate", "matrix_learning_rate_scale", "table_learning_rate_scale"),
    *("bias_learning_rate_scale", "weight_decay", "table_weight_decay", "mask_rate", "masking"),
)
_ROWS = {"run-on": "rows that run on from document to document", "isolate": "several documents in a row"}
_PIECES = {"first": "the first row of each document", "all": "all rows of each document"}


# ---- what a model and a text are ----


def settings_of(config: Mapping[str, Any], training: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the settings that matter to a model, which its reference must share or differ from in words.

    Args:
        config: of an encoder, as config.json holds it.
        training: of its training, as study.json holds it.
    """
    settings = {key: value for key, value in config.items() if key not in _APART}
    settings |= {key: value for key in TRAINING if (value := (training or {}).get(key)) is not None}
    return {key: value for key, value in settings.items() if is_about(key, config)}


def kind_of_text(corpus: str) -> str:
    """Return the kind of a corpus by its name: `DOCSTRINGS`, `WIKIPEDIA`, or "" for any other."""
    if corpus == "python-docs":
        return DOCSTRINGS
    return WIKIPEDIA if "wiki" in corpus.lower() else ""


def rows_of(join: str | None, pieces: str | None) -> str:
    """Return in words how documents were cut into rows; "" where it is not known.

    Args:
        join: none, isolate or run-on. pieces: first or all.
    """
    if join == "none":
        return _PIECES.get(pieces or "", "")
    return _ROWS.get(join or "", "")


# ---- the studies ----


@dataclass(frozen=True, eq=False)
class ReferenceStudy:
    """A study whose records come with the package.

    facts: of its JSON file: format, folder (of the study under docs/results), corpus (name, kind, rows, length,
    vocab_size), size, recipe, tokens (training tokens of a model), steps, seeds (a list), models (name ->
    `settings_of`).
    """

    name: str
    facts: Mapping[str, Any]
    records: Sequence[Record]

    @cached_property
    def table(self) -> Table:
        """Records of all its models."""
        return Table(self.records)

    @property
    def models(self) -> Mapping[str, Mapping[str, Any]]:
        """Settings of every model."""
        return self.facts["models"]

    @property
    def label(self) -> str:
        """Training tokens, text and seeds: `10.2M tokens of Wikipedia, 3 seeds`."""
        seeds = len(self.facts["seeds"])
        text = self.facts["corpus"]["kind"] or self.facts["corpus"]["name"]
        return f"{self.scale} of {text}, {seeds} seed{'' if seeds == 1 else 's'}"

    @property
    def scale(self) -> str:
        """Training tokens of a model: `10.2M tokens`."""
        return f"{self.facts['tokens'] / 1e6:.3g}M tokens"


def studies() -> tuple[list[ReferenceStudy], list[str]]:
    """Return the reference studies of this installation, and a sentence for each that is left out."""
    return _studies(FOLDER)


@cache
def _studies(folder: Path) -> tuple[list[ReferenceStudy], list[str]]:
    studies = []
    left_out = []
    for path in sorted(folder.glob("*.json")):
        try:
            studies.append(_opened(path))
        except ValueError as error:
            left_out.append(f"The reference study {path.stem} is left out: {error}")
    return studies, left_out


def _opened(path: Path) -> ReferenceStudy:
    """Open a reference study by its JSON file.

    Raises:
        ValueError: its records are of another version, damaged or missing, or a fact is.
    """
    facts = read_json(path, "Install whatwhere again.")
    version = facts.get("format") if isinstance(facts, dict) else None
    if version != FORMAT:
        raise ValueError(
            f"its records have the format {version!r}, this version reads {FORMAT!r}. Install whatwhere again."
        )
    needed = {"corpus": dict, "size": str, "tokens": int | float, "seeds": list, "models": dict}
    for key, kind in needed.items():
        if not isinstance(facts.get(key), kind):
            raise ValueError(f"{path.name} has no {key}. Install whatwhere again.")
    return ReferenceStudy(path.stem, facts, read_records(path.with_suffix(".parquet")))


# ---- beside a run ----


@dataclass(frozen=True, eq=False)
class Beside:
    """A reference study beside a run; without one the notes say why.

    models: model of the run -> model of the reference. terms: sentences on what differs: text, rows, settings; the
    page and `whatwhere claims` say the same. notes: sentences on what stands there, the terms, and what is left out.
    """

    study: ReferenceStudy | None = None
    models: Mapping[str, str] = field(default_factory=dict)
    terms: Sequence[str] = ()
    notes: Sequence[str] = ()

    @cached_property
    def table(self) -> Table:
        """Records of the reference under the names that its models have in the run."""
        return Table(_renamed(self.study.records if self.study else (), self.models))

    @cached_property
    def claims(self) -> dict[str, dict[str, Any]]:
        """Claim -> value, low, high, verdict and so_far of the reference, with its study, tokens and seeds.

        A claim about models that the run lacks is judged on the reference's own of that preset; one about every table
        on those that stand beside a model of the run.
        """
        if self.study is None:
            return {}
        verdicts = evaluate(self.table, [claim for claim in CLAIMS if claim.subjects_of])
        names = {name: name for name in self.study.models if name not in self.models}
        every = Table(_renamed(self.study.records, names | dict(self.models)))
        verdicts += evaluate(every, [claim for claim in CLAIMS if not claim.subjects_of])
        facts = self.study.facts
        place = {"study": self.study.name, "tokens": facts["tokens"], "seeds": len(facts["seeds"])}
        keys = ("value", "low", "high", "verdict", "so_far")
        return {row["id"]: {**place, **{key: row[key] for key in keys}} for row in verdicts}


def beside(facts: Mapping[str, Any], table: Table) -> Beside | None:
    """Return the reference study of a run's size, of its kind of text if there is one, else of Wikipedia.

    Args:
        facts: study.json of the run.
        table: records of the run, by which a reference study is told from itself.

    Returns:
        None where the run is no study of one corpus whose models were trained.
    """
    size = facts.get("size")
    corpus = facts.get("corpus")
    name = str(corpus.get("name") or "") if isinstance(corpus, dict) else ""
    models = _models(facts)
    if not isinstance(size, str) or not name or not models or not table.models("loss", part="validation"):
        return None
    known, left_out = studies()
    of_size = [study for study in known if study.facts["size"] == size]
    if not of_size:
        sizes = sorted({study.facts["size"] for study in known})
        sentence = f"reference studies are of size {' and '.join(sizes)}" if sizes else "there is no reference study"
        return Beside(
            notes=[*left_out, f"No reference study stands beside this run: it is of size {size}, {sentence}."]
        )
    study = max(of_size, key=lambda candidate: _rank(candidate, kind_of_text(name)))
    matched = {model: other for model, config in models.items() if (other := _closest(model, config, study))}
    if any(_same_training(table, model, study, other) for model, other in matched.items()):
        itself = f"No reference study stands beside this run: it is the reference study {study.name} itself."
        return Beside(notes=[*left_out, itself])
    if not matched:
        presets = ", ".join(sorted({str(config.get("preset")) for config in study.models.values()}))
        lacks = f"{study.name} has no model of the scheme and depth of one here; it has {presets}"
        return Beside(notes=[*left_out, f"No reference study stands beside this run: {lacks}."])
    pairs = {model: (models[model], study.models[other]) for model, other in matched.items()}
    terms = _terms(study, facts, name, pairs)
    first = f"Beside this run stands the reference study {study.name}: size {size}, {study.label}."
    absent = _listed([model for model in models if model not in matched])
    without = [f"The reference study has no model for {absent}."] if absent else []
    return Beside(study, matched, terms, [first, *terms, *without, *left_out])


def _models(facts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings of every model of a run whose configuration is recorded."""
    entries = facts.get("models")
    configs: dict[str, dict[str, Any]] = {}
    for entry in entries if isinstance(entries, list) else ():
        config = entry.get("config") if isinstance(entry, dict) else None
        if isinstance(config, dict) and entry.get("name"):
            training = entry.get("training")
            configs.setdefault(
                str(entry["name"]), settings_of(config, training if isinstance(training, dict) else None)
            )
    return configs


def _rank(study: ReferenceStudy, kind: str) -> tuple[bool, bool, float, str]:
    """The same kind of text first, then Wikipedia, then more tokens, then the later name."""
    kind_of_study = study.facts["corpus"].get("kind")
    return bool(kind) and kind_of_study == kind, kind_of_study == WIKIPEDIA, study.facts["tokens"], study.name


def _closest(model: str, config: Mapping[str, Any], study: ReferenceStudy) -> str | None:
    """Return the reference's model of the same scheme and depth that differs least: in its start, its residual, the
    number of other settings, its name."""
    # A field that is younger than the study is "none" there.
    candidates = [
        name
        for name, other in study.models.items()
        if all(config.get(key, "none") == other.get(key, "none") for key in SCHEME)
    ]

    def distance(name: str) -> tuple[bool, bool, int, bool]:
        apart = _differing(config, study.models[name])
        return "table_start" in apart, "residual" in apart, len(apart), name != model

    return min(candidates, key=distance, default=None)


def _differing(config: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the settings that both have and that differ, the weightiest first."""
    keys = [*FIRST, *sorted((set(config) & set(other)) - set(FIRST))]
    return [key for key in keys if key in config and key in other and config[key] != other[key]]


def _same_training(table: Table, model: str, study: ReferenceStudy, other: str) -> bool:
    """Whether a model of the run ended with the very losses of the reference's."""
    place = {"metric": "loss", "part": "validation"}
    ours = {(r.seed, r.step, r.value) for r in table.rows(model=model, **place) if r.step}
    theirs = {(r.seed, r.step, r.value) for r in study.records if r.model == other and r.metric == "loss" and r.step}
    return bool(ours & theirs)


def _renamed(records: Iterable[Record], models: Mapping[str, str]) -> list[Record]:
    """Return records of texts and of some models under other names; a model may have several.

    models: new name -> name in the records. What is said of a model beside one that is left out is left out.
    """
    names: dict[str, list[str]] = {}
    for new, old in models.items():
        names.setdefault(old, []).append(new)
    renamed = []
    for record in records:
        if record.model in TEXTS:
            renamed.append(record)
            continue
        parts: Sequence[str | None] = [record.part]
        if record.part is not None and record.metric.startswith(BETWEEN_MODELS):
            parts = names.get(record.part, [])
        renamed += [replace(record, model=name, part=part) for name in names.get(record.model, ()) for part in parts]
    return renamed


# ---- in words ----

Pairs = Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]  # model -> its settings, its reference's


def _terms(study: ReferenceStudy, facts: Mapping[str, Any], corpus: str, pairs: Pairs) -> list[str]:
    """Return in what the reference study differs from the run, as sentences."""
    sentences = []
    own_kind = kind_of_text(corpus)
    kind = study.facts["corpus"]["kind"]
    if own_kind != kind:
        missing = f"this run is on {corpus}"
        if own_kind:
            missing = f"no reference study of {own_kind} and this size comes with this version"
        sentences.append(
            f"The reference study is on {kind or study.facts['corpus']['name']}: {missing}, and losses do not compare."
        )
    ours = _rows_of_run(facts)
    theirs = study.facts["corpus"].get("rows")
    if ours and theirs and ours != theirs:
        sentences.append(f"The reference study is trained on {theirs}, this run on {ours}.")
    if settings := _apart(pairs):
        sentences.append(f"What differs: {settings}.")
    return sentences


def _apart(pairs: Pairs) -> str:
    """Return which settings are others in the reference, models of one difference together."""
    groups: dict[str, list[str]] = {}
    for model, (config, other) in pairs.items():
        for key in _differing(config, other):
            groups.setdefault(f"{_NAMES.get(key, key)} {other[key]} there, {config[key]} here", []).append(model)
    return "; ".join(f"{_listed(names)}: {words}" for words, names in groups.items())


def _rows_of_run(facts: Mapping[str, Any]) -> str:
    """How the run cut its documents, from study.json."""
    corpus = facts["corpus"]
    join = corpus.get("join")
    pieces = corpus.get("pieces")
    return rows_of(join if isinstance(join, str) else None, pieces if isinstance(pieces, str) else None)


def _listed(models: Sequence[str]) -> str:
    return ", ".join(f"`{model}`" for model in models)
