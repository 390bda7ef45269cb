"""Wrong corpora, tables and data of evaluations: an error in a line that names the file, never a hang."""

import gzip
import io
import lzma
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_runner import whatwhere
from malformed import (
    BOMB,
    DEEP,
    LONG,
    ROOT,
    SAMPLES,
    SPANS,
    TABLE,
    WIDE,
    asked,
    cases,
    of_squad,
    packed,
    parquet,
    put,
    records,
    refused,
    word,
)

from whatwhere.corpus import characters, open_source
from whatwhere.corpus.labelled import read_labelled
from whatwhere.evaluation import glue, holmes, local_tasks, ud
from whatwhere.evaluation.blimp import read_blimp
from whatwhere.geometry.counts import Counts
from whatwhere.records.record import read_records
from whatwhere.run import files


@pytest.mark.parametrize(
    ("name", "content", "said"),
    cases(
        a_pipe=("t.txt", None, "is a pipe or a device"),
        a_pipe_of_unknown_ending=("t.log", None, "is a pipe or a device"),
        a_folder_without_text=("t.txt", ..., "No text in"),
        junk_in_jsonl_gz=("t.jsonl.gz", b"\0\xffjunk", "damaged"),
        junk_in_tsv_xz=("t.tsv.xz", b"\0\xffjunk", "damaged"),
        junk_in_csv_zst=("t.csv.zst", b"\0\xffjunk", "damaged"),
        junk_in_parquet_gz=("t.parquet.gz", b"\0\xffjunk", "damaged"),
        junk_packed_as_parquet=("t.parquet.zst", packed(".zst", b"\0\xffjunk"), "no readable parquet"),
        gzip_in_gzip=("t.txt.gz", gzip.compress(gzip.compress(b"x")), "not UTF-8"),
        gzip_named_xz=("t.txt.xz", gzip.compress(b"x"), "damaged"),
        gzip_without_its_end=("t.jsonl.gz", gzip.compress(b'{"text": "x"}\n' * 99)[:-5], "damaged"),
        gzip_of_another_checksum=("t.txt.gz", gzip.compress(b"x" * 99)[:-8] + b"12345678", "damaged"),
        utf16_jsonl=("t.jsonl", '{"text": "x"}'.encode("utf-16")[:-1], "not UTF-16"),
        utf16_csv=("t.csv", "text\nx".encode("utf-16")[:-1], "not UTF-16"),
        latin1_in_packed_tsv=("t.tsv.gz", gzip.compress("text\nStraße\n".encode("latin1")), "offset 9"),
        nul_in_json=("t.jsonl", b'{"text": "a\0b"}', "line 1: not JSON"),
        nested_json=("t.jsonl", '{"text": ' + DEEP, "nested too deeply"),
        a_number_of_5000_digits=("t.jsonl", f'{{"n": {LONG}, "text": "x"}}', "line 1: not JSON"),
        a_field_that_is_no_number=("t.jsonl", '{"text": NaN}', "is of type float"),
        json_of_100000_fields=("t.jsonl", dict.fromkeys(WIDE, 1), "and 99,980 more"),
        csv_of_100000_columns=("t.csv", ",".join(WIDE) + "\n" + "," * 99_999, "and 99,980 more"),
        csv_with_a_row_of_100000_columns=("t.csv", "text\n" + "," * 99_999, "100000 fields"),
        csv_with_an_open_quote=("t.csv", 'text\n"x\n' + "y\n" * 999, "unexpected end of data"),
        empty_parquet=("t.parquet", b"", "no readable parquet"),
        lists_in_parquet=("t.parquet", parquet(pa.table({"text": [["x"]]})), "row 1: field 'text' is of type list"),
        bytes_in_parquet=("t.parquet", parquet(pa.table({"text": [b"\xff"]})), "is of type bytes"),
        wide_parquet=("t.parquet", parquet(pa.table({name: ["x"] for name in WIDE[:500]})), "and 480 more"),
        damaged_pages_in_parquet=(
            "t.parquet",
            parquet(pa.table({"text": ["hello"]}))[:4] + b"\xff" * 40 + parquet(pa.table({"text": ["hello"]}))[44:],
            "no readable parquet",
        ),
    ),
)
def test_damaged_corpora_are_refused(tmp_path, name, content, said):
    path = put(tmp_path, name, content)
    refused(lambda: list(open_source(path)), path, said)


def test_a_device_is_no_corpus():
    refused(lambda: open_source(Path("/dev/zero")), "/dev/zero is a pipe or a device")


def test_empty_lines_before_a_header_are_passed_over(tmp_path):
    assert list(open_source(put(tmp_path, "t.csv", "\n\ntext\nx\n"))) == ["x"]
    assert list(open_source(put(tmp_path, "t.csv", "\n\n\n"))) == []


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("kind", ["t.txt", "t.jsonl", "t.csv", "t.parquet"])
def test_unpacking_bombs_are_refused(tmp_path, monkeypatch, kind, ending):
    """What unpacks to far more than it is is refused."""
    monkeypatch.setattr(files, "_BOMB_BYTES", 1 << 18)
    monkeypatch.setattr(files, "_BOMB_RATIO", 100)
    path = put(tmp_path, kind + ending, packed(ending, b" " * (1 << 21)))
    refused(lambda: list(open_source(path)), path, "unpacks to more than 100 times its size")


@pytest.mark.parametrize(
    ("name", "content", "read"),
    cases(
        a_text_in_a_page=(
            "t.parquet",
            parquet(pa.table({"text": [" " * (1 << 23)]})),
            lambda path: list(open_source(path)),
        ),
        a_text_named_by_many_rows=(
            "t.parquet",
            parquet(pa.table({"text": ["x" * (1 << 16)] * 99})),
            lambda path: list(open_source(path)),
        ),
        a_name_in_records=("records.parquet", records(study=["s" * (1 << 23)]), read_records),
        many_rows_of_records=(
            "records.parquet",
            parquet(pq.read_table(io.BytesIO(records())).take([0] * 10**5)),
            read_records,
        ),
        arrays=("a.npz", None, lambda path: files.open_arrays(path).__enter__()),
        counts=("c.npz", None, Counts.load),
    ),
)
def test_parquet_and_array_bombs_are_refused(tmp_path, monkeypatch, name, content, read):
    """Pages and arrays that are far more than their file are refused."""
    # They were unpacked whole.
    monkeypatch.setattr(files, "_BOMB_BYTES", 1 << 20)
    monkeypatch.setattr(files, "_BOMB_RATIO", 10)
    monkeypatch.setattr(pq, "read_table", None)
    monkeypatch.setattr(np.lib.format, "read_array", None)
    path = tmp_path / name
    if content is None:
        files.write_arrays(path, {"data": np.zeros(1 << 20)})
    else:
        put(tmp_path, name, content)
    refused(lambda: read(path), path, "unpacks to more than 10 times its size")


@pytest.mark.parametrize("kind", ["t.jsonl", "t.tsv", "t.csv.gz"])
def test_one_endless_line_of_a_table_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(characters, "LONGEST_ROW", 2_000_000)
    data = b"x" * 4_000_000
    path = put(tmp_path, kind, gzip.compress(data) if kind.endswith(".gz") else data)
    refused(lambda: list(open_source(path)), path, "a line of more than 2,000,000 characters")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    cases(
        a_pipe=("t.tsv", None, "no such file"),
        a_folder=("t.tsv", ..., "is a folder. Give one labelled table"),
        empty_packed=("t.tsv.xz", lzma.compress(b""), "is empty"),
        empty_lines_alone=("t.csv", "\n \n\n", "is empty"),
        junk_packed=("t.csv.zst", b"junk", "damaged"),
        utf16=("t.tsv", TABLE.encode("utf-16")[:-1], "not UTF-16"),
        nested=("t.jsonl", DEEP, "nested too deeply"),
        a_number_of_5000_digits=("t.jsonl", f'{{"t": "a", "l": {LONG}}}', "not JSON"),
        tsv_of_100000_columns=("t.tsv", "\t".join(WIDE) + "\n" + "\t" * 99_999 + "\n", "and 99,980 more"),
        json_of_100000_fields=("t.jsonl", dict.fromkeys(WIDE, 1), "and 99,980 more"),
        a_label_of_a_list=("t.jsonl", {"t": "a", "l": ["x" * 100_000]}, "is neither a word nor a whole number"),
        null_for_a_text=("t.jsonl", {"t": None, "l": 1}, "'t' holds NoneType, not text"),
    ),
)
def test_damaged_labelled_tables_are_refused(tmp_path, name, content, said):
    path = put(tmp_path, name, content)
    refused(lambda: read_labelled(path, "t", "l"), path, said)


@pytest.mark.parametrize(
    ("labels", "said"),
    cases(
        one_class=(["1"] * 8, "all 8 have the label '1'"),
        more_classes_than_rows_have_names=([str(i) for i in range(1500)], "1500 different values"),
        one_class_of_5000_digits=([LONG] * 4, "have the label '999"),
    ),
)
def test_too_few_or_many_classes_are_refused(tmp_path, labels, said):
    path = put(tmp_path, "t.tsv", "t\tl\n" + "".join(f"a\t{label}\n" for label in labels))
    words = ["--data", str(path), "--dev", str(path), "--text", "t", "--label", "l", "--out", str(tmp_path / "o")]
    done = whatwhere("finetune", "reference", *words)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and str(path) in done.stderr and said in done.stderr
    assert not list((tmp_path / "o").rglob("*.safetensors"))


def test_half_a_character_is_replaced(tmp_path):
    """Half a character is read as the sign for it."""
    path = put(tmp_path, "t.jsonl", '{"t": "\\ud800 a", "l": 1}\n{"t": "\\ud83d\\ude00", "l": 0}\n')
    assert read_labelled(path, "t", "l").texts == ["\ufffd a", "\U0001f600"]


GLUE = {"RTE/train.tsv": "sentence1\tsentence2\tlabel\n" + "a\tb\t0\na\tb\t1\n" * 3}
GLUE |= {"RTE/dev.tsv": GLUE["RTE/train.tsv"]}
STS = "sentence1\tsentence2\tscore\n"


def turn(text="at 8", **label):
    return [{"userInput": {"text": text}, "labels": [{"slot": "time", "valueSpan": {"endIndex": 4}, **label}]}]


KIND = "probe_task_type: SENTENCE\nnum_labels: 2\n"
PUBLISHED = "probing dataset,linguistic subfield,linguistic phenomena,train portion,bert\n"
CRANFIELD = {
    "retrieval/cranfield/cran.all.1400": ".I 1\n.W\nwater\n",
    "retrieval/cranfield/cran.qry": ".I 1\n.W\nwhat\n",
    "retrieval/cranfield/cranqrel": "1 1 2\n",
}
NEWS = "clustering/20newsgroups.jsonl"
FILMS = "sentence-classification/MR"


def of_glue(task):
    return lambda data: glue.task_texts(glue.TASKS[task], data)


def of_holmes(data):
    return holmes.read_data_set(data / "set")


def of_local(name):
    return lambda data: local_tasks.LOCAL[name].read(local_tasks.LOCAL[name].paths(data))


def trees(text):
    return (lambda data: ud.read_trees(data, "train")), {"en-ud-train.conllu": text}


def restaurants(read):
    return of_squad("restaurants"), {"test.json": read}


def samples(text, kind=KIND):
    return of_holmes, {"set/config-none.yaml": kind, "set/samples.csv": text}


def spans(inputs):
    return samples(f'{SAMPLES}"{inputs}","[\'a b\']",0,train\n', SPANS)


def kinds(text):
    return of_holmes, {"set/config-none.yaml": text, "set/samples.csv": SAMPLES}


def published(text):
    return (lambda data: holmes.published_scores(data / "a.csv", "bert")), {"a.csv": text}


@pytest.mark.parametrize(
    ("reader", "said"),
    cases(
        glue_where_a_folder_is_the_file=((of_glue("rte"), {"RTE/train.tsv": ...}), "has no train.tsv"),
        glue_from_a_pipe=((of_glue("rte"), {"RTE/train.tsv": None}), "has no train.tsv"),
        glue_with_nul_in_its_header=((of_glue("rte"), {"RTE/train.tsv": "sentence1\tl\0\n"}), "no column 'sentence2'"),
        glue_of_100000_columns=((of_glue("rte"), {"RTE/train.tsv": "\t".join(WIDE) + "\n"}), "and 99,980 more"),
        glue_in_utf16=((of_glue("rte"), {"RTE/train.tsv": GLUE["RTE/train.tsv"].encode("utf-16")[:-1]}), "not UTF-16"),
        glue_of_a_row_cut_off=((of_glue("cola"), {"CoLA/train.tsv": "g\t1\n"}), "line 1: 2 columns, where 4"),
        glue_with_a_score_that_is_nan=((of_glue("sts-b"), {"STS-B/train.tsv": f"{STS}a\tb\tnan\n"}), "out of range"),
        glue_with_a_score_of_a_megabyte=(
            (of_glue("sts-b"), {"STS-B/train.tsv": f"{STS}a\tb\t{'x' * 10**6}\n"}),
            "is no number",
        ),
        squad_nested=((of_squad(), {"dev-v1.1.json": DEEP}), "no complete JSON"),
        squad_with_5000_digits=((of_squad(), {"dev-v1.1.json": f'{{"data": {LONG}}}'}), "no complete JSON"),
        squad_in_utf16=((of_squad(), {"dev-v1.1.json": '{"data": []}'.encode("utf-16")[:-1]}), "not UTF-16"),
        squad_of_an_object=((of_squad(), {"dev-v1.1.json": {"data": {}}}), "no list 'data'"),
        squad_of_numbers=((of_squad(), {"dev-v1.1.json": {"data": [1]}}), "article 1: no text 'title'"),
        squad_with_a_place_that_is_true=(
            (of_squad(), {"dev-v1.1.json": asked(answers=[{"answer_start": True, "text": "ollo"}])}),
            "no whole number 'answer_start'",
        ),
        squad_with_a_place_of_400_digits=(
            (of_squad(), {"dev-v1.1.json": asked(answers=[{"answer_start": 10**400, "text": "R"}])}),
            "is not in its paragraph",
        ),
        squad_with_lines_in_a_title=((of_squad(), {"dev-v1.1.json": asked("a\nb" * 99, answers=[{}])}), "article a ba"),
        squad_with_an_id_of_a_megabyte=(
            (of_squad(), {"dev-v1.1.json": asked(id="x" * 10**6, answers=[])}),
            "no answer",
        ),
        restaurants_of_an_object=(restaurants({}), "holds no questions"),
        restaurants_of_numbers=(restaurants([1]), "turn 1: no object 'userInput'"),
        restaurants_with_lines_in_a_slot=(restaurants(turn("at", slot="a\nb")), "a b at 0 to 4 is not in 'at'"),
        restaurants_without_labels=(restaurants([{"userInput": {"text": "x"}, "labels": None}]), "no list 'labels'"),
        restaurants_with_true_for_a_place=(
            restaurants(turn(valueSpan={"startIndex": 0, "endIndex": True})),
            "no whole number 'endIndex'",
        ),
        blimp_of_lists=((read_blimp, {"blimp/a.jsonl": "[]"}), "is empty"),
        blimp_nested=((read_blimp, {"a.jsonl": DEEP}), "nested too deeply"),
        blimp_damaged=((read_blimp, {"a.jsonl.gz": b"junk"}), "damaged"),
        blimp_of_numbers=((read_blimp, {"a.jsonl": {"sentence_good": 3}}), "no text in 'sentence_good'"),
        blimp_from_a_pipe=((read_blimp, {"a.jsonl": None}), "holds no BLiMP"),
        blimp_where_a_folder_is_the_file=((read_blimp, {"a.jsonl": ...}), "holds no BLiMP"),
        trees_from_a_pipe=(trees(None), "holds no trees"),
        trees_where_a_folder_is_the_file=(trees(...), "holds no trees"),
        trees_of_junk=(trees(b"\xff\xfe\0"), "not UTF-16"),
        trees_in_a_circle=(trees(ROOT + word(2, 3) + word(3, 2) + "\n"), "word 2 does not hang on the root"),
        trees_with_a_word_on_itself=(trees(ROOT + word(2, 2) + "\n"), "word 2 does not hang on the root"),
        trees_with_a_head_beyond_the_words=(trees(word("1-2", "_") + ROOT + word(2, 3) + "\n"), "does not hang"),
        trees_out_of_order=(trees(word(2, 0) + word(1, 2) + "\n"), "word '2' with head '0' ends no tree"),
        trees_with_a_number_twice=(trees(ROOT + word(1, 1) + "\n"), "word '1' with head '1' ends no tree"),
        trees_with_a_head_of_5000_digits=(trees(word(1, LONG) + "\n"), "ends no tree"),
        trees_with_a_span_of_letters=(trees(word("1-x", "_") + ROOT + "\n"), "'1-x' is no span"),
        trees_with_a_span_of_three=(trees(word("1-2-3", "_") + ROOT + "\n"), "'1-2-3' is no span"),
        trees_with_a_span_of_5000_digits=(trees(word(f"1-{LONG}", "_") + ROOT + "\n"), "is no span"),
        holmes_with_yaml_cut_off=(kinds("a: ["), "config-none.yaml is not valid YAML"),
        holmes_with_python_in_its_yaml=(kinds("!!python/object/apply:os.system [x]"), "not valid YAML"),
        holmes_with_nested_yaml=(kinds("a: " + "[" * 1500), "nested too deeply"),
        holmes_with_yaml_in_latin1=(kinds("ä: 1".encode("latin1")), "not valid YAML"),
        holmes_with_a_tag_on_nothing=(kinds("a: !!int ''"), "not valid YAML"),
        holmes_with_a_bomb_of_aliases=(kinds(f"{BOMB}probe_task_type: *a11\n"), "more than 100,000 values"),
        holmes_of_a_million_classes=(kinds("probe_task_type: SENTENCE\nnum_labels: 1000000000000"), "from 1 to 1,000"),
        holmes_samples_in_latin1=(samples(SAMPLES.encode() + b"\xff"), "samples.csv is no table in UTF-8"),
        holmes_without_inputs=(samples(f"{SAMPLES}[],[],0,train\n"), "line 2: no row of the kind SENTENCE"),
        holmes_of_numbers=(samples(f'{SAMPLES}"[1, 2]",[],0,train\n'), "a text and two places are wanted"),
        holmes_nested=(samples(f"{SAMPLES}{'(' * 5000},[],0,train\n"), "line 2: no row of the kind"),
        holmes_with_a_field_of_a_megabyte=(samples(f"{SAMPLES}[],[],{'9' * 10**6},train\n"), "line 2: "),
        holmes_of_100000_columns=(samples(",".join(WIDE) + "\n"), "no column 'inputs'"),
        holmes_with_an_input_of_number_10_12=(spans("[('w', 0, 0, 1, 1000000000000)]"), "not numbered from 0"),
        holmes_with_an_input_below_0=(spans("[('w', 0, 0, 1, -3)]"), "not numbered from 0"),
        holmes_with_an_input_of_no_number=(spans("[('w', 0, 0, 1, 'x')]"), "not numbered from 0"),
        holmes_with_places_of_letters=(spans("[('w', 0, 'a', 'b', 0)]"), "a text and two places"),
        a_published_table_without_numbers=(published(f"{PUBLISHED}a,b,c,x,y\n"), "no number for 'a' and bert"),
        a_published_table_of_empty_lines=(published("\n\n"), "is empty"),
        cranfield_before_its_first_entry=(
            (of_local("Cranfield-local"), CRANFIELD | {"retrieval/cranfield/cran.qry": ".W\nwhat\n"}),
            "cran.qry, line 1: a field before an entry",
        ),
        cranfield_with_a_code_of_5000_digits=(
            (of_local("Cranfield-local"), CRANFIELD | {"retrieval/cranfield/cranqrel": f"1 1 {LONG}\n"}),
            "query, document and code are wanted",
        ),
        cranfield_with_an_endless_line=(
            (of_local("Cranfield-local"), CRANFIELD | {"retrieval/cranfield/cranqrel": "1 " * 10**6}),
            "query, document and code are wanted",
        ),
        newsgroups_of_one_group=(
            (of_local("TwentyNewsgroups-local"), {NEWS: {"subject": "a", "group": "b"}}),
            "20newsgroups.jsonl: all 1 have the label",
        ),
        films_of_2000_classes=(
            (
                of_local("MR-local"),
                {f"{FILMS}/train.tsv": "".join(f"{i}\ta\n" for i in range(2000)), f"{FILMS}/dev.tsv": "1\ta\n"},
            ),
            "train.tsv: the label column has 2000 different values",
        ),
    ),
)
def test_damaged_data_of_evaluations_are_refused(tmp_path, reader, said):
    read, files = reader
    for name, content in files.items():
        put(tmp_path, name, content)
    refused(lambda: read(tmp_path), tmp_path, said)


def test_a_long_chain_of_words_is_a_tree(tmp_path):
    put(tmp_path, "en-ud-train.conllu", ROOT + "".join(word(i, i - 1) for i in range(2, 3001)) + "\n")
    (sentence,) = ud.read_trees(tmp_path, "train")
    assert sentence.depths() == list(range(3000))
