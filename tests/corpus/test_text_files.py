"""Files and folders: every format and packing, document rules, streaming, and damaged or foreign input."""

import bz2
import gzip
import json
import lzma
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from whatwhere.corpus import build_windows, characters, open_source
from whatwhere.run.folder import RunFolder

TEXTS = ["First document. Straße, naïve.", "Second one\nwith two lines", "Third 日本"]
PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}
PACK[".bz2"] = bz2.compress


def content(ending: str, tmp_path) -> bytes:
    if ending == ".jsonl":
        return "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(TEXTS)).encode()
    if ending in (".tsv", ".csv"):
        tab, quote = ("\t", "") if ending == ".tsv" else (",", '"')
        rows = [
            ("id", "text"),
            *((str(i), t.replace("\n", " ") if ending == ".tsv" else t) for i, t in enumerate(TEXTS)),
        ]
        return "".join(f"{a}{tab}{quote}{b}{quote}\n" for a, b in rows).encode("utf-8-sig")
    if ending == ".parquet":
        pq.write_table(pa.table({"id": [1, 2, 3], "text": TEXTS}), tmp_path / "plain")
        return (tmp_path / "plain").read_bytes()
    return "\n\n".join(TEXTS).encode()


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("ending", [".txt", ".tokens", ".jsonl", ".parquet", ".tsv", ".csv"])
def test_every_format_gives_the_same_documents(tmp_path, ending, packing):
    path = tmp_path / f"text{ending}{packing}"
    path.write_bytes(PACK[packing](content(ending, tmp_path)))
    source = open_source(path)
    assert list(source) == list(source) == [t.replace("\n", " ") if ending == ".tsv" else t for t in TEXTS]
    assert source.share_read() == 1.0
    assert source.name == path.name
    facts = source.fingerprint()
    assert facts["files"][0]["file"] == path.name and facts["files"][0]["bytes"] == path.stat().st_size
    path.write_bytes(PACK[packing](content(ending, tmp_path).replace(b"Third", b"Forth")))
    assert open_source(path).fingerprint() != facts


def test_folders_are_read_in_sorted_order(tmp_path):
    """A folder is read in sorted order and other files are passed over."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "2.txt").write_text("two")
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "c.TXT.gz").write_bytes(gzip.compress(b"three\n\nstill three"))
    (tmp_path / ".hidden.txt").write_text("no")
    (tmp_path / "b/.git").mkdir()
    (tmp_path / "b/.git/notes.txt").write_text("no")  # it was read
    (tmp_path / "readme.md").write_text("no")
    source = open_source(tmp_path)
    assert list(source) == ["one", "two", "three\n\nstill three"]
    assert [f["file"] for f in source.fingerprint()["files"]] == ["a.jsonl", "b/2.txt", "c.TXT.gz"]


@pytest.mark.parametrize(
    ("rule", "text", "documents"),
    [
        ("file", "a\n\nb\nc\n", ["a\n\nb\nc"]),
        ("blank-line", "a\n \t\n\nb\nc\n\n", ["a", "b\nc"]),
        ("line", "a\n\nb\nc", ["a", "b", "c"]),
        (
            "heading",
            "intro\n = A = \n \n text\n = = Part = = \n more\n = B = \n",
            ["intro", "= A = \n \n text\n = = Part = = \n more", "= B ="],
        ),
        ("auto", "= A =\none\n\n= B =\ntwo\n", ["= A =\none", "= B =\ntwo"]),
        ("auto", "\n\na\nb\n\nc\n", ["a\nb", "c"]),
        ("auto", "a\nb\nc\n", ["a", "b", "c"]),
        ("auto", "\ufeffa\r\nb\r\n\r\nc\rd", ["a\nb", "c\nd"]),
    ],
)
def test_document_rules_part_a_text(tmp_path, rule, text, documents):
    path = tmp_path / "t.txt"
    path.write_text(text, encoding="utf-8", newline="")
    assert list(open_source(path, document=rule)) == documents


def test_auto_makes_a_file_a_document(tmp_path):
    """Auto takes a file of a folder as a document unless it has headings."""
    (tmp_path / "1.txt").write_text("a\n\nb")
    assert open_source(tmp_path).fingerprint()["document"] == "file"
    (tmp_path / "0.txt").write_text(" \n = A = \n b")
    assert open_source(tmp_path).fingerprint()["document"] == "heading"


def test_the_field_is_the_callers(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"body": "one", "text": 2}\n\n{"body": null}\n{"body": "\\ud800x"}', encoding="utf-8")
    assert list(open_source(path, field="body")) == ["one", "\ufffdx"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('{"title": "x", "body": "y"}', "line 2: no field 'text'. Fields there: title, body"),
        ('{"text": 3}', "line 2: field 'text' is of type int"),
        ('["text"]', "line 2: an object with a field 'text' is wanted, this is a list"),
        ('{"text": "x"', "line 2: not JSON"),
        ("[" * 100_000, "line 2: (not JSON|JSON nested)"),
    ],
)
def test_a_bad_json_line_is_an_error(tmp_path, line, wanted):
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"text": "fine"}}\n{line}\n')
    with pytest.raises(ValueError, match=wanted) as error:
        list(open_source(path))
    assert "\n" not in str(error.value)


def test_quotes_are_text_in_tsv_and_quotes_in_csv(tmp_path):
    (tmp_path / "t.tsv").write_text('sentence\tlabel\n"good\t1\n\nit\'s "fine"\t0')
    assert list(open_source(tmp_path / "t.tsv", field="sentence")) == ['"good', 'it\'s "fine"']
    (tmp_path / "t.csv").write_text('label,sentence\r\n1,"a ""b"", c\nd"\r\n\r\n0,e\r\n')
    assert list(open_source(tmp_path / "t.csv", field="sentence")) == ['a "b", c\nd', "e"]
    (tmp_path / "long.csv").write_text(f"text\n{'word ' * 50_000}\n")
    assert len(next(iter(open_source(tmp_path / "long.csv")))) == 249_999


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        (
            "t.tsv",
            "1\tgood\n0\tbad\n",
            "no field 'text'. Its first line must name the fields, there: 1, good. Name the one",
        ),
        ("t.csv", "id,text\n1,a\n2,b,c\n", "line 3: 3 fields, but the first line names 2"),
        ("t.tsv", "id\ttext\n1\n", "line 2: 1 fields, but the first line names 2"),
        ("t.csv", 'id,text\n1,"a" b\n', "line 2: no comma-separated values"),
        ("t.csv", 'id,text\n1,"a\n2,b\n', "line 3: no comma-separated values .unexpected end of data"),
    ],
)
def test_a_bad_table_is_an_error(tmp_path, name, content, wanted):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=wanted) as error:
        list(open_source(tmp_path / name))
    assert "\n" not in str(error.value)


def test_an_endless_line_of_a_table_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(characters, "LONGEST_ROW", 2_000_000)
    (tmp_path / "t.tsv").write_text("text\nfine\n" + "x" * 3_000_000)
    with pytest.raises(ValueError, match="a line of more than 2,000,000 characters after 2 others"):
        list(open_source(tmp_path / "t.tsv"))


def test_parquet_errors_name_the_fields(tmp_path):
    """A parquet file without the field names those it has."""
    pq.write_table(pa.table({"title": ["a"], "n": [1]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="no field 'text'. Fields there: title, n"):
        list(open_source(tmp_path / "t.parquet"))
    with pytest.raises(ValueError, match="row 1: field 'n' is of type int"):
        list(open_source(tmp_path / "t.parquet", field="n"))
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(ValueError, match="no readable parquet file"):
        list(open_source(tmp_path / "t.parquet"))


@pytest.mark.parametrize(("before", "block"), [(0, 1 << 20), (5, 1 << 20), (7, 4), (8, 4), (100, 64)])
@pytest.mark.parametrize("bad", [b"\xff", b"\xc3(", b"\xe2\x82"])
def test_bytes_that_are_not_utf8_are_refused(tmp_path, monkeypatch, before, block, bad):
    """Bytes that are not UTF-8 are an error with their place."""
    monkeypatch.setattr(characters, "_CHUNK", block)
    good = ("aä" * before).encode()
    path = tmp_path / "t.txt"
    for tail in (b"", b"more"):
        path.write_bytes(good + bad + tail)
        with pytest.raises(ValueError, match=rf"t.txt is not UTF-8: byte 0x{bad[0]:02x} at offset {len(good)} "):
            list(open_source(path, document="file"))


def test_json_lines_that_are_not_utf8_are_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"text": "one"}\n{"text": "\xe9"}\n')
    with pytest.raises(ValueError, match="not UTF-8: byte 0xe9 at offset 26 of the text"):
        list(open_source(path))


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst", ".bz2"])
def test_a_damaged_archive_is_an_error(tmp_path, ending):
    path = tmp_path / f"t.txt{ending}"
    whole = PACK[ending](" ".join(str(i * i) for i in range(3000)).encode())
    path.write_bytes(whole + whole)  # archives may follow each other in a file
    assert next(iter(open_source(path, document="file"))).count("8994001") == 2
    for broken in (b"not packed at all", whole[: len(whole) // 2], whole + whole[:50]):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match="is damaged or not a"):
            list(open_source(path, document="file"))


@pytest.mark.parametrize("content", [b"\x89PNG\r\n", b"\x7fELF\x02\x00\x00 text", "Stra\xdfe".encode("latin1")])
@pytest.mark.parametrize("name", ["t.doc", "t", "t.txt.7z"])
def test_an_unknown_ending_names_the_known_ones(tmp_path, name, content):
    """An unknown ending that is no text names the known."""
    (tmp_path / name).write_bytes(content)
    wanted = r"unknown ending, and is no text in UTF-8. Endings: .txt, .tokens, .jsonl, .ndjson, .json, .tsv"
    with pytest.raises(ValueError, match=wanted):
        open_source(tmp_path / name)
    with pytest.raises(ValueError, match="No text in .* Known endings: .txt"):
        open_source(tmp_path)


@pytest.mark.parametrize("name", ["server.log", "NOTES", "a.rst", "server.log.gz"])
def test_text_of_an_unknown_ending_is_read_as_text(tmp_path, name):
    text = "GET /straße 200\nGET / 404\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert list(open_source(tmp_path / name)) == ["GET /straße 200", "GET / 404"]
    assert list(open_source(tmp_path)) == ["GET /straße 200\nGET / 404"]  # of a folder that has no other
    (tmp_path / "image.bin").write_bytes(b"\x89PNG")
    (tmp_path / "a.txt").write_text("known")
    assert list(open_source(tmp_path)) == ["known"]


def test_an_unknown_document_rule_names_the_known(tmp_path):
    with pytest.raises(ValueError, match="auto, file, blank-line, heading, line"):
        open_source(tmp_path, document="page")


def test_folder_of_a_run_is_no_text(tmp_path):
    """The settings and logs of a study were read as a corpus."""
    with RunFolder.open(tmp_path / "run", "study") as run:
        run.write("study.yaml", {"models": ["dstg"]})
        (tmp_path / "run/notes.txt").write_text("a text")
        run.accept_input()
    with pytest.raises(ValueError, match="run is the folder of a study run, whose files are no texts"):
        open_source(tmp_path / "run")


def test_an_empty_file_has_no_documents(tmp_path, tokenizer):
    (tmp_path / "t.txt").write_text("")
    assert list(open_source(tmp_path / "t.txt")) == []
    with pytest.raises(ValueError, match="gives no window to train on"):
        build_windows(open_source(tmp_path / "t.txt"), tokenizer, tmp_path / "w", progress=False)


@pytest.mark.parametrize("space", [True, False])
@pytest.mark.usefixtures("usual_collections")
def test_an_endless_line_is_read_in_pieces(tmp_path, tokenizer, space):
    """One endless line is read in pieces and becomes windows."""
    # Fifty megabytes take the same path; here eight, which would show as a peak if the line were held whole.
    path = tmp_path / "t.txt"
    path.write_text(("alpha beta " if space else "alphabeta") * (8_000_000 // (11 if space else 9)))
    source = open_source(path)
    tracemalloc.start()
    parts = [(first, len(text)) for first, text in source.parts()]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [first for first, _ in parts] == [True, *[False] * (len(parts) - 1)] and len(parts) >= 8
    assert max(n for _, n in parts) <= 1_000_000 and peak < 12_000_000
    if space:
        path.write_text("alpha beta " * 150_000)
        w = build_windows(open_source(path), tokenizer, tmp_path / "w", progress=False)
        assert w.facts["documents"] == {"train": 1, "held_out": 0}
        assert w.facts["tokens"]["train"] == 300_000
        assert (w["train"].lengths()[:-1] == 128).all()


@pytest.mark.parametrize("packing", PACK)
def test_auto_sees_a_megabyte_of_a_packed_file(packing, tmp_path):
    """Of .zst it saw 128 kB, so that an empty line after these was none: a document a line."""
    path = tmp_path / f"text.txt{packing}"
    lines = "".join(f"{number**9}\n" for number in range(10_000))
    path.write_bytes(PACK[packing](lines.encode() + b"\nAnother document.\n"))
    assert open_source(path).document == "blank-line"


def test_field_of_plain_text_is_refused(tmp_path):
    """A field that was typed for plain text was passed over without a word."""
    (tmp_path / "a.txt").write_text("one\n\ntwo\n", encoding="utf-8")
    with pytest.raises(ValueError, match="a.txt is plain text, which has no field 'body'. Leave the field out."):
        open_source(tmp_path / "a.txt", field="body")
    (tmp_path / "b.jsonl").write_text('{"body": "three"}\n', encoding="utf-8")
    assert list(open_source(tmp_path, field="body")) == ["one\n\ntwo", "three"]
