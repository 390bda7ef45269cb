"""Tasks of sentence vectors over files on this machine, by mteb's own task classes.

Their names end in `-local`: text, split or sampling differ from mteb's tasks of like names, or cannot be shown to be
the same, so the numbers are comparable with each other alone.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ..corpus.labelled import label_names, packed, read_columns
from ..corpus.text_files import data_lines, json_rows
from .glue import similarity

Rows = dict[str, dict[str, Any]]  # split -> column -> a value each row
SCORES = {
    "STS": "cosine_spearman",
    "Classification": "accuracy",
    "Clustering": "v_measure",
    "Retrieval": "ndcg_at_10",
}
RELEVANT = range(1, 5)  # Cranfield's codes; -1 marks the paper that raised the question, and trec_eval counts it out


@dataclass(frozen=True)
class Local:
    """Task of sentence vectors over files on this machine.

    kind: mteb's, a key of `SCORES`. files: below the folder of the data. read: reads the rows of these files. source:
    where to get them. differs: how it differs from mteb's own, or from the usual protocol. settings: attributes of
    mteb's class.
    """

    name: str
    kind: str
    files: tuple[str, ...]
    read: Callable[[list[Path]], Rows]
    source: str
    differs: str
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def paths(self, data: Path) -> list[Path]:
        """Find the files of the task, plain or packed.

        Raises:
            ValueError: one is missing.
        """
        paths = [(name, packed(data / name)) for name in self.files]
        if missing := [name for name, path in paths if path is None]:
            raise ValueError(
                f"{self.name} needs {data / missing[0]} (or .xz, .gz, .zst), which is not there. Bring it from "
                f"{self.source}, or leave the task out of --tasks."
            )
        return [path for _, path in paths if path is not None]


def _pairs(paths: list[Path], columns: tuple[str | int, ...], keep: str = "") -> Rows:
    """Read pairs of sentences. columns: of the score, the sentences, and one that must say `keep`."""
    pairs: dict[str, list[Any]] = {"sentence1": [], "sentence2": [], "score": []}
    for place, (score, one, two, *other) in read_columns(paths[0], columns):
        if other and other[0].lower() != keep:
            continue
        if not one.strip() or not two.strip():
            raise ValueError(f"{place}: an empty sentence. Leave the row out.")
        for column, value in zip(pairs.values(), (one, two, similarity(score, place)), strict=True):
            column.append(value)
    if len(pairs["score"]) < 2:
        of_kind = f" of {keep}" if keep else ""
        raise ValueError(f"{paths[0]} has {len(pairs['score'])} pairs{of_kind}. Bring a whole copy.")
    return {"test": pairs}


def _classes(paths: list[Path], columns: tuple[str | int, ...]) -> Rows:
    """Read labelled texts to train and to test on, an empty one too (CR has one).

    columns: of the label and the text.
    """
    splits: Rows = {}
    names: list[str] = []
    for split, path in zip(("train", "test"), paths, strict=True):
        texts = []
        labels = []
        for place, (label, text) in read_columns(path, columns):
            if not label.strip():
                raise ValueError(f"{place}: no label. Leave the row out.")
            if names and label not in names:
                raise ValueError(f"{place}: the label {label[:60]!r} does not occur in {paths[0].name}. Leave it out.")
            texts.append(text)
            labels.append(label)
        if not labels:
            raise ValueError(f"{path} has no rows. Bring a whole copy.")
        names = names or label_names(labels, str(path))
        splits[split] = {"text": texts, "label": [names.index(label) for label in labels]}
    return splits


def _subjects(paths: list[Path]) -> Rows:
    """Read subjects of messages and their groups."""
    subjects: dict[str, list[Any]] = {"sentences": [], "labels": []}
    for place, row in json_rows(paths[0]):
        if missing := [name for name in ("subject", "group") if not isinstance(row.get(name), str)]:
            raise ValueError(f"{place}: no text in {missing[0]!r}. Bring a whole copy.")
        subjects["sentences"].append(row["subject"])
        subjects["labels"].append(row["group"])
    label_names(subjects["labels"], str(paths[0]))
    return {"test": subjects}


def _smart(path: Path) -> Iterator[dict[str, str]]:
    """Yield the entries of a file in SMART's format: field -> text."""
    entry: dict[str, str] = {}
    name = ""
    for number, line in enumerate(data_lines(path), 1):
        if (mark := re.match(r"\.([A-Z])(?:\s|$)", line)) is None:
            if not name:
                raise ValueError(f"{path}, line {number}: text before an entry (.I). Bring a whole copy.")
            entry[name] += line
            continue
        name = mark[1]
        if name != "I" and not entry:
            raise ValueError(f"{path}, line {number}: a field before an entry (.I). Bring a whole copy.")
        if name == "I" and entry:
            yield entry
            entry = {}
        entry[name] = line[2:].strip() if name == "I" else ""
    if entry:
        yield entry


def _cranfield(paths: list[Path]) -> Rows:
    """Read abstracts, questions by their place in the file (the judgements do not use their .I), and relevant pairs."""
    collection, questions, judgements = paths
    documents = [(entry["I"], (entry.get("W") or entry.get("T") or "").strip()) for entry in _smart(collection)]
    queries = [(str(i), entry.get("W", "").strip()) for i, entry in enumerate(_smart(questions), 1)]
    known = set(dict(documents)), set(dict(queries))
    relevant: dict[str, dict[str, int]] = defaultdict(dict)
    for number, line in enumerate(data_lines(judgements), 1):
        place = f"{judgements}, line {number}"
        cells = line.split()
        if len(cells) != 3 or not re.fullmatch(r"-?\d{1,9}", cells[2]):
            raise ValueError(f"{place}: query, document and code are wanted; got {line.strip()[:60]!r}. Correct it.")
        query, document, code = cells
        if document not in known[0] or query not in known[1]:
            raise ValueError(
                f"{place}: no query {query[:60]} in {questions.name}, or no document {document[:60]} in "
                f"{collection.name}. Bring whole copies."
            )
        if int(code) in RELEVANT:
            relevant[query][document] = 1
    queries_with_answers = [(name, text) for name, text in queries if name in relevant]
    return {
        "corpus": {"id": [name for name, _ in documents], "text": [text for _, text in documents]},
        "queries": {
            "id": [name for name, _ in queries_with_answers],
            "text": [text for _, text in queries_with_answers],
        },
        "relevant": relevant,
    }


_STS = "SemEval's releases (github.com/facebookresearch/SentEval says how), as a table year, subset, score, sentences"
_FOLDER = "sentence-classification"
_FEW = MappingProxyType({"samples_per_label": 32})  # as mteb's own tasks of sentiment with three classes
LOCAL: dict[str, Local] = {
    task.name: task
    for task in (
        *(
            Local(
                f"STS{year}-local",
                "STS",
                ("sts/sts12-16.tsv",),
                partial(_pairs, columns=("score", "sentence1", "sentence2", "year"), keep=f"20{year}"),
                _STS,
                "all pairs of the year; the text may be tokenised or in lower case, where mteb's is not",
            )
            for year in range(12, 17)
        ),
        Local(
            "STSBenchmark-local",
            "STS",
            ("glue/STS-B/sts-test-labelled.tsv",),
            partial(_pairs, columns=(4, 5, 6)),
            "the original STS-B release (sts-test.tsv)",
            "the test pairs; mteb reads a copy of its own",
        ),
        Local(
            "SICK-R-local",
            "STS",
            ("sts/SICK.tsv",),
            partial(_pairs, columns=("relatedness_score", "sentence_A", "sentence_B", "split"), keep="test"),
            "the SICK release, a column `split` (train, trial, test) added",
            "the test part; mteb takes all pairs",
        ),
        Local(
            "Banking77-local",
            "Classification",
            (f"{_FOLDER}/banking77/train.csv", f"{_FOLDER}/banking77/test.csv"),
            partial(_classes, columns=("category", "text")),
            "github.com/PolyAI-LDN/task-specific-datasets (banking_data)",
            "mteb reads a copy of its own, and draws other training rows where the order differs",
        ),
        Local(
            "TwentyNewsgroups-local",
            "Clustering",
            ("clustering/20newsgroups.jsonl",),
            _subjects,
            "the original 20 Newsgroups, a JSON object a line with subject and group",
            "subjects of all 19,997 messages; mteb's are of the version sorted by date",
        ),
        Local(
            "Cranfield-local",
            "Retrieval",
            tuple(f"retrieval/cranfield/{name}" for name in ("cran.all.1400", "cran.qry", "cranqrel")),
            _cranfield,
            "the Cranfield collection of Glasgow (ir.dcs.gla.ac.uk/resources/test_collections/cran)",
            "codes 1 to 4 are relevant alike, -1 is not; mteb has no such task",
        ),
        *(
            Local(
                f"{name}-local",
                "Classification",
                (f"{_FOLDER}/{name}/train.tsv", f"{_FOLDER}/{name}/dev.tsv"),
                partial(_classes, columns=(0, 1)),
                f"SentEval's {name}, split into train.tsv and dev.tsv, label TAB sentence",
                "ten draws of 32 training rows a class, where SentEval trains on nine tenths of all",
                _FEW,
            )
            for name in ("MR", "CR", "SUBJ", "MPQA")
        ),
    )
}


def _spread(columns: dict[str, list[Any]], limit: int | None) -> dict[str, list[Any]]:
    """Select at most `limit` rows, evenly over all, as files may be sorted by label."""
    rows = len(next(iter(columns.values())))
    at = np.linspace(0, rows - 1, min(limit or rows, rows)).astype(int)
    return {name: [column[i] for i in at] for name, column in columns.items()}


def local_task(name: str, data: Path, limit: int | None = None) -> Any:
    """Make a task that mteb runs, with its rows read from files.

    Args:
        limit: most pairs, test rows or queries; mteb samples training rows and the messages to cluster itself.

    Raises:
        ValueError: a file is missing or damaged.
    """
    import mteb
    from datasets import Dataset, DatasetDict
    from mteb.abstasks import AbsTaskClassification, AbsTaskClustering, AbsTaskRetrieval, AbsTaskSTS

    local = LOCAL[name]
    paths = local.paths(data)
    rows = local.read(paths)
    if local.kind == "Retrieval":
        queries = _spread(rows["queries"], limit)
        relevant = {query: rows["relevant"][query] for query in queries["id"]}
        parts = {"corpus": Dataset.from_dict(rows["corpus"]), "queries": Dataset.from_dict(queries)}
        loaded: Any = {"default": {"test": {**parts, "relevant_docs": relevant, "top_ranked": None}}}
    else:
        if local.kind != "Clustering":
            rows["test"] = _spread(rows["test"], limit)
        loaded = DatasetDict({split: Dataset.from_dict(columns) for split, columns in rows.items()})
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    kinds: dict[str, Any] = {
        "STS": AbsTaskSTS,
        "Classification": AbsTaskClassification,
        "Clustering": AbsTaskClustering,
        "Retrieval": AbsTaskRetrieval,
    }
    kind: Any = local.kind
    metadata = mteb.TaskMetadata(
        name=name,
        description=f"{', '.join(local.files)}: {local.differs}.",
        dataset={"path": "local", "revision": f"sha256:{digest.hexdigest()[:16]}"},
        type=kind,
        category="t2t" if local.kind in ("STS", "Retrieval") else "t2c",
        eval_langs=["eng-Latn"],
        main_score=SCORES[local.kind],
    )
    attributes = {"dataset": loaded, "data_loaded": True}
    return type(name, (kinds[kind],), {"metadata": metadata, **local.settings, **attributes})()
