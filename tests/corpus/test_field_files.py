"""Files as people have them: JSON under any name, nested fields, other delimiters, UTF-16, folders of mixed files."""

import csv
import io
import json
import random
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from cli_runner import whatwhere

from whatwhere.corpus import characters, open_source, values
from whatwhere.corpus.labelled import read_labelled
from whatwhere.corpus.text_files import Files

TEXTS = ["First document; with, signs", "Second\tone [x] {y}", 'Third \u65e5\u672c "quoted"']
ROWS = [{"id": i, "text": text, "doc": {"text": text, "n": {"a": text}}} for i, text in enumerate(TEXTS)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
AS_JSON = {
    "lines": LINES,
    "lines with blanks": "\n" + LINES.replace("\n", "\n\n"),
    "list": json.dumps(ROWS),
    "indented list": json.dumps(ROWS, indent=2),
    "raw letters": json.dumps(ROWS, ensure_ascii=False),
    "a row a line in a list": "[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]\n",
}
JSON_NAMES = ("a.json", "a.ndjson", "a.jsonl")


@pytest.mark.parametrize("name", [*JSON_NAMES, "part-0000", "a.log", "a.txt"])
@pytest.mark.parametrize("content", AS_JSON.values(), ids=AS_JSON)
def test_json_rows_are_read_under_any_name(name, content, tmp_path):
    """Keys, braces and ids of .json and .ndjson were read as text; a list of rows was one document."""
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert list(open_source(tmp_path / name)) == TEXTS


@pytest.mark.parametrize("name", ["part-0000", "a.txt", "part-0000.zst"])
@pytest.mark.parametrize("size", [750_000, 1_500_000])
def test_long_json_rows_are_read_under_any_name(name, size, tmp_path):
    """Rows that did not end within the first megabyte (128 kB of .zst) were read as text, keys and braces with them."""
    numbers = random.Random(0)
    texts = [" ".join(f"{numbers.random():.12f}" for _ in range(size // 15)) for _ in range(2)]
    content = "".join(json.dumps({"id": 1, "text": text}) + "\n" for text in texts).encode()
    (tmp_path / name).write_bytes(zstandard.compress(content) if name.endswith(".zst") else content)
    assert list(Files(tmp_path / name).rows()) == texts


def test_braces_without_an_end_are_text(tmp_path, monkeypatch):
    """The first line is read as far as a row may be, and no further."""
    monkeypatch.setattr(characters, "LONGEST_ROW", 1 << 22)
    content = "{" + "word " * 1_000_000
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(ValueError, match="a line of more than 4,194,304 characters"):
        list(Files(tmp_path / "a.txt").rows())
    assert "".join(text for _, text in Files(tmp_path / "a.txt").parts()) == content.rstrip()


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("content", AS_JSON.values(), ids=AS_JSON)
def test_json_rows_may_be_cut_anywhere(content, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(characters, "_CHUNK", chunk)
    (tmp_path / "a.json").write_text(content, encoding="utf-8")
    assert list(open_source(tmp_path / "a.json")) == TEXTS


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"data": [\n{"text": "a"}\n]}', "line 1: not JSON .*Give a row a line, or a list of rows"),
        ('[{"text": "a"} {"text": "b"}]', "row 2: not JSON .a comma is missing"),
        ('[{"text": "a"}, {"text": b}, {"text": "c"}]', "row 2: not JSON .Expecting value"),
        ('[{"text": "a"}, {"text": "b"', "row 2: not JSON"),
        ('[{"text": "a"},', "row 2: not JSON"),
        ('[{"text": "a"}', "row 2: not JSON"),
        ('[{"text": "a"}] {"text": "b"}', "row 2: text after the end of the list"),
        ('[] {"text": "b"}', "row 1: text after the end of the list"),  # gave no rows, without a word
        ('["a", "b"]', "row 1: an object with a field 'text' is wanted, this is a str"),
        ('[{"body": {"title": "a"}, "id": 3}]', "row 1: no field 'text'. Fields there: body.title, id. Name the one"),
        ("[" * 100_000, "row 1: (JSON nested too deeply|not JSON)"),
    ],
)
def test_json_that_is_no_rows_is_one_line(content, words, tmp_path):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ValueError, match=words) as caught:
        list(open_source(tmp_path / "a.json"))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("usual_collections")
def test_a_long_list_streams(tmp_path, monkeypatch):
    """Memory holds a row of a JSON list, not the list: 16 MB are read within 6."""
    monkeypatch.setattr(characters, "_CHUNK", 1 << 16)
    row = json.dumps({"text": "word " * 200})
    with (tmp_path / "a.json").open("w") as file:
        file.write("[" + ",".join([row] * 16_000) + "]")
    tracemalloc.start()
    assert sum(len(text) for _, text in open_source(tmp_path / "a.json").parts()) == 16_000 * 999
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6_000_000


def test_a_row_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(values, "LONGEST_ROW", 2_000_000)
    (tmp_path / "a.json").write_text('[{"text": "' + "x" * 5_000_000)
    with pytest.raises(ValueError, match="row 1: more than 2,000,000 characters"):
        list(open_source(tmp_path / "a.json"))


def test_text_that_begins_with_a_brace_stays_text(tmp_path):
    (tmp_path / "a.txt").write_text("{note} this is prose\n\n[1] and so is this\n")
    assert list(open_source(tmp_path / "a.txt")) == ["{note} this is prose", "[1] and so is this"]


@pytest.mark.parametrize("field", ["doc.text", "doc.n.a"])
def test_a_field_inside_a_field_is_read(field, tmp_path):
    (tmp_path / "a.jsonl").write_text(LINES + '{"doc": null}\n')
    assert list(open_source(tmp_path / "a.jsonl", field=field)) == TEXTS
    pq.write_table(pa.Table.from_pylist([*ROWS, {"doc": None}]), tmp_path / "a.parquet")
    assert list(open_source(tmp_path / "a.parquet", field=field)) == TEXTS
    pq.write_table(pa.table({field: TEXTS, "doc": [1, 2, 3]}), tmp_path / "dotted.parquet")  # a name with a dot
    assert list(open_source(tmp_path / "dotted.parquet", field=field)) == TEXTS
    labelled = [{**row, "label": {"name": row["id"]}} for row in ROWS]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labelled))
    found = read_labelled(tmp_path / "b.jsonl", field, "label.name")
    assert found.texts == TEXTS and found.labels == ["0", "1", "2"]


def test_a_missing_inner_field_names_those_there(tmp_path):
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="no field 'doc.body'. Fields there: id, text, doc.text, doc.n.a"):
        list(open_source(tmp_path / "a.parquet", field="doc.body"))
    with pytest.raises(ValueError, match="field 'doc' is of type dict, not text"):
        list(open_source(tmp_path / "a.parquet", field="doc"))


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_csv_file_has_any_delimiter(sign, quoting, encoding, tmp_path):
    """A file of European Excel was refused for a field 'id;text', and the delimiter was never named."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=sign, quoting=quoting)
    writer.writerows([("id", "text", "label"), *((str(i), each, "xy"[i % 2]) for i, each in enumerate(TEXTS))])
    (tmp_path / "a.csv").write_bytes(text.getvalue().encode(encoding))
    assert list(open_source(tmp_path / "a.csv")) == TEXTS
    assert read_labelled(tmp_path / "a.csv", "text", "label").labels == ["x", "y", "x"]
    (tmp_path / "b.csv").write_bytes(f"sep={sign}\r\n{text.getvalue()}".encode(encoding))
    assert list(open_source(tmp_path / "b.csv")) == TEXTS


def test_one_column_has_commas_only_in_quotes(tmp_path):
    (tmp_path / "a.csv").write_text('text\n"a, b; c"\nd e f\n')
    assert list(open_source(tmp_path / "a.csv")) == ["a, b; c", "d e f"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("chunk", [3, 1 << 20])
def test_utf16_with_its_mark_is_read(encoding, chunk, tmp_path, monkeypatch):
    """UTF-16 was refused with advice to convert it from Latin-1, which made twice the documents of zeros."""
    monkeypatch.setattr(characters, "_CHUNK", chunk)
    content = "\ufeff" + "\r\n".join([*TEXTS, "\U0001f600 end"])
    (tmp_path / "a.txt").write_bytes(content.encode(encoding))
    assert list(open_source(tmp_path / "a.txt", document="line")) == [*TEXTS, "\U0001f600 end"]
    (tmp_path / "a.txt").write_bytes(content.encode(encoding)[:-1])
    wanted = r"is not UTF-(16|32): byte 0x.. at offset \d+ of the text. Get the file again"
    with pytest.raises(ValueError, match=wanted):
        list(open_source(tmp_path / "a.txt", document="line"))


@pytest.mark.parametrize("order", ["le", "be"])
def test_utf16_without_a_mark_is_named(order, tmp_path):
    (tmp_path / "a.txt").write_bytes("plain words".encode(f"utf-16-{order}"))
    with pytest.raises(ValueError, match=f"looks like UTF-16 without a byte-order mark.*iconv -f utf-16{order} -t"):
        list(open_source(tmp_path / "a.txt"))


def test_a_folder_counts_what_it_passes_over(tmp_path):
    """Files of other endings beside text were passed over without a word."""
    for name in ("a.txt", "b.txt.gz.7z", "c.md", "d.md", "settings.json"):
        (tmp_path / name).write_text("text and more text of some words")
    done = whatwhere("windows", "--corpus", str(tmp_path), "--out", str(tmp_path / "out"), "--set", "vocab_size=40")
    line = f"Passed over 4 files of {tmp_path} for the ending: 2 .md, 1 .7z, 1 .json. Give one alone to read it"
    assert done.stderr.count("Passed over") == 1 and line in done.stderr, done.stderr
    assert Files(tmp_path / "a.txt").remark == ""


def test_json_files_alone_in_a_folder_are_read(tmp_path):
    (tmp_path / "a.json").write_text(LINES)
    (tmp_path / "b.json").write_text(json.dumps(ROWS))
    (tmp_path / "readme.md").write_text("no")
    assert list(open_source(tmp_path)) == TEXTS * 2


def test_rows_are_as_many_as_the_file_has(tmp_path):
    """Rows keep blank lines and empty fields, which are no documents."""
    (tmp_path / "a.txt").write_text("one\u2028more\n\n  three\n\n", encoding="utf-8")
    (tmp_path / "a.csv").write_text('id,text\n1,one\n2,\n3," "\n')
    (tmp_path / "one.csv").write_text("text\none\n\nthree\n")
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": null}\n{"text": ""}\n')
    pq.write_table(pa.table({"text": ["one", None, ""]}), tmp_path / "a.parquet")
    names = ("a.txt", "a.csv", "one.csv", "a.jsonl", "a.parquet")
    rows = {name: list(Files(tmp_path / name).rows()) for name in names}
    assert rows["a.txt"] == ["one\u2028more", "", "  three", ""]
    assert rows["a.csv"] == ["one", "", " "] and rows["one.csv"] == ["one", "", "three"]
    assert rows["a.jsonl"] == rows["a.parquet"] == ["one", "", ""]
