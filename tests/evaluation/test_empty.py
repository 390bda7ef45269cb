"""A file of data with nothing in it ends in one line that names it, whoever reads it, plain or packed."""

import lzma
from pathlib import Path

import pytest

from whatwhere.corpus.labelled import read_labelled
from whatwhere.evaluation import glue, holmes, squad
from whatwhere.evaluation.blimp import read_blimp
from whatwhere.evaluation.local_tasks import LOCAL
from whatwhere.evaluation.paragraphs import read_paragraphs
from whatwhere.evaluation.ud import read_trees

READERS = {  # file -> what reads it in its folder
    "CoLA/train.tsv": lambda data: glue.read_task(glue.TASKS["cola"], data, "train"),
    "RTE/train.tsv.xz": lambda data: glue.read_task(glue.TASKS["rte"], data, "train"),
    "dev-v1.1.json": lambda data: squad.read_questions(squad.TASKS["squad"], data, "dev"),
    "test.json": lambda data: squad.read_questions(squad.TASKS["restaurants"], data, "dev"),
    "blimp/blimp.jsonl": read_blimp,
    "blimp/blimp.jsonl.xz": read_blimp,
    "ud-ewt/en_ewt-ud-train.conllu": lambda data: read_trees(data, "train"),
    "wikipedia-en/en.txt": read_paragraphs,
    "a/samples.csv": lambda data: holmes.read_data_set(data / "a"),
    "b/config-none.yaml": lambda data: holmes.read_settings(data / "b"),
    "holmes.csv": lambda data: holmes.read_phenomena(data / "holmes.csv"),
    "labelled.tsv": lambda data: read_labelled(data / "labelled.tsv", "text", "label"),
    "labelled.csv.xz": lambda data: read_labelled(data / "labelled.csv.xz", "text", "label"),
    **{local.files[0]: lambda data, local=local: local.read(local.paths(data)) for local in LOCAL.values()},
}


@pytest.mark.parametrize("file", READERS)
def test_an_empty_file_is_named(file: str, tmp_path: Path):
    for name in {name for local in LOCAL.values() if file in local.files for name in local.files}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_bytes(lzma.compress(b"") if file.endswith(".xz") else b"")
    if file == "a/samples.csv":
        (tmp_path / "a/config-none.yaml").write_text("probe_task_type: SENTENCE\nnum_labels: 2\n")
    with pytest.raises(ValueError, match="is empty") as caught:
        READERS[file](tmp_path)
    assert str(caught.value) == f"{tmp_path / file} is empty. Bring a complete copy."


def test_a_file_of_blank_lines_is_empty(tmp_path: Path):
    (tmp_path / "blimp.jsonl").write_text("\n \n")
    with pytest.raises(ValueError, match="blimp.jsonl is empty"):
        read_blimp(tmp_path)
