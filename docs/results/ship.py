"""Makes a reference study of the package from the folder of a study: `python docs/results/ship.py STUDY NAME`.

Writes NAME.parquet, the records that pages and ledgers read, and NAME.json, the study's facts, into
src/whatwhere/reference_studies, and refuses where a claim would come out otherwise or all files together would pass two
million bytes. STUDY is a folder of `whatwhere study`. One under docs/results has no study.json: the settings of its
models are those of the NAME.json that was made of it before, else of its study.yaml by the defaults of this version.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.claims import evaluate
from whatwhere.records.intervals import seed_interval
from whatwhere.records.metrics import repeats
from whatwhere.records.record import FORMAT, Record, read_records, write_records
from whatwhere.records.table import Table
from whatwhere.report import references
from whatwhere.report.references import kind_of_text, rows_of, settings_of
from whatwhere.run.files import read_json, write_json
from whatwhere.study.study_settings import StudyConfig

SETTINGS = ("size", "recipe", "corpus", "models")  # of NAME.json, which records do not tell
MOST_BYTES = 2_000_000  # of all reference studies together
# Metrics that figures and tables of a page draw beside a run, whether or not a claim reads them.
DRAWN = {
    *("r2.token", "r2.segment", "r2.intra", "variance.position", "shift.change", "hidden.top2", "pca.top2", "dct.low4"),
    *("loss", "parameters", "tokens", "steps"),
}


class Noted(Table):
    """Records that remember which metrics were asked for."""

    def __init__(self, records: Iterable[Record]) -> None:
        super().__init__(records)
        self.read: set[str] = set()

    def rows(self, metric: str, *place: Any, **where: Any) -> list[Record]:
        self.read.add(metric)
        return super().rows(metric, *place, **where)


def compact(records: Sequence[Record]) -> list[Record]:
    """Return the records that pages and ledgers read, without those of single splits and documents where no claim
    needs them.

    Raises:
        ValueError: a claim comes out otherwise than on all records.
    """
    whole = Noted(records)
    before = evaluate(whole)
    needed = [r for r in records if r.metric in whole.read | DRAWN and not (r.metric == "loss" and r.part == "train")]
    for kept in (summarised(needed), needed):
        moved = different(before, evaluate(kept))
        if not moved:
            return kept
    raise ValueError(f"The claim {moved[0]} comes out otherwise without the records that are left out. Extend DRAWN.")


def summarised(records: Iterable[Record]) -> list[Record]:
    """Return records with one in place of those of every split or document: the study's own, else their mean."""
    kept: dict[tuple[Any, ...], Record] = {}
    single: dict[tuple[Any, ...], list[Record]] = {}
    for r in records:
        repeated = repeats(r.metric) and r.index is not None
        place = (r.metric, r.model, r.seed, r.layer, r.head, r.part, r.step, None if repeated else r.index)
        if repeated:
            single.setdefault(place, []).append(r)
        else:
            kept[place] = r
    for place, rows in single.items():
        if place not in kept:
            kept[place] = _mean(rows)
    return list(kept.values())


def _mean(rows: Sequence[Record]) -> Record:
    values = [r.value for r in rows]
    low, high = seed_interval(values) or (None, None)
    return replace(rows[0], value=float(np.mean(values)), low=low, high=high, index=None, n=len(rows))


def different(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the ids of claims whose verdict or numbers are not the same to nine digits."""
    return [a["id"] for a, b in zip(before, after, strict=True) if _told(a) != _told(b)]


def _told(claim: Mapping[str, Any]) -> list[Any]:
    numbers = [claim[key] for key in ("value", "low", "high")]
    return [claim["verdict"], claim["so_far"], *(v if v is None else f"{v:.9g}" for v in numbers)]


def facts_of(folder: Path, records: Sequence[Record], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what NAME.json holds, from study.json, or else from an earlier NAME.json of the same folder, or else from
    study.yaml.

    Args:
        before: the earlier NAME.json, {} for none.

    Raises:
        ValueError: there is neither, or no model has a number of training tokens.
    """
    table = Table(records)
    tokens = [r.value for r in table.rows("tokens")]
    seeds = sorted(table.distinct("seed", "tokens"))
    if not tokens or not seeds:
        raise ValueError(f"{folder} has no record of training tokens. Give the folder of a study that has trained.")
    if before.get("folder") == folder.resolve().name and not (folder / "study.json").is_file():
        told = {key: before[key] for key in SETTINGS}  # the defaults of the version that trained it
    else:
        told = _settings(folder, seeds[0])
    trained = set(table.models("tokens"))
    if unknown := sorted(trained - set(told["models"])):
        raise ValueError(f"Nothing tells the settings of {unknown[0]}, which has records. Put them into NAME.json.")
    return {
        "format": FORMAT,
        "folder": folder.resolve().name,
        **told,
        "tokens": max(tokens),
        "steps": max((r.value for r in table.rows("steps")), default=None),
        "seeds": seeds,
        "models": {name: settings for name, settings in told["models"].items() if name in trained},
    }


def _settings(folder: Path, seed: int) -> dict[str, Any]:
    """Size, recipe, corpus and models of a study: of study.json, else of study.yaml by the defaults of this version."""
    if (folder / "study.json").is_file():
        study = read_json(folder / "study.json")
        corpus = study["corpus"]
        entries = {entry["name"]: entry for entry in study["models"]}
        models = {name: settings_of(entry["config"], entry["training"]) for name, entry in entries.items()}
        facts = {key: study.get(key) for key in ("size", "recipe")}
    elif (folder / "study.yaml").is_file():
        config = StudyConfig.load(folder / "study.yaml")
        facts = {"size": config.size, "recipe": config.recipe}
        corpus = {key: getattr(config, key) for key in ("length", "vocab_size", "join", "pieces")}
        corpus["name"] = Path(config.corpus).parent.name or config.corpus
        models = {}
        for name in config.models:
            training = config.pretraining(name, seed, config.steps or 1)
            models[name] = settings_of(training.encoder_config().to_diff_dict(), training.model_dump(mode="json"))
    else:
        raise ValueError(f"{folder} has neither study.json nor study.yaml. Give the folder of a study.")
    text = {key: corpus.get(key) for key in ("name", "length", "vocab_size")}
    text |= {"kind": kind_of_text(str(text["name"])), "rows": rows_of(corpus.get("join"), corpus.get("pieces"))}
    return {**facts, "corpus": text, "models": models}


def make(folder: Path, name: str, out: Path) -> list[Path]:
    """Write both files of a reference study; returns their paths.

    Raises:
        ValueError: as `compact` and `facts_of`, or the files of `out` would pass `MOST_BYTES`, which leaves them as
            they were.
    """
    records = read_records(folder / "records.parquet")
    facts = facts_of(folder, records, read_json(out / f"{name}.json") if (out / f"{name}.json").is_file() else {})
    kept = [replace(r, study=name) for r in compact(records)]
    out.mkdir(parents=True, exist_ok=True)
    draft = out / f".{name}.parquet"
    write_records(draft, kept)
    others = [p for p in out.iterdir() if p.suffix in (".parquet", ".json") and p.stem not in (name, f".{name}")]
    size = draft.stat().st_size + sum(path.stat().st_size for path in others)
    if size > MOST_BYTES:
        draft.unlink()
        raise ValueError(
            f"With {name} the reference studies would have {size:,} bytes, {MOST_BYTES:,} at most. Leave one out."
        )
    draft.replace(out / f"{name}.parquet")
    write_json(out / f"{name}.json", facts)
    return [out / f"{name}.parquet", out / f"{name}.json"]


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("python docs/results/ship.py STUDY NAME")
    try:
        written = make(Path(sys.argv[1]), sys.argv[2], references.FOLDER)
    except ValueError as error:
        sys.exit(str(error))
    for path in written:
        print(f"{path}: {path.stat().st_size:,} bytes")
    whole = sum(path.stat().st_size for path in references.FOLDER.iterdir())
    print(f"All reference studies: {whole:,} bytes, {MOST_BYTES:,} at most.")


if __name__ == "__main__":
    main()
