"""Verbs that look into models and corpora: probe, spectra, geometry, heads, attention."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..run.errors import check_utf8
from ..run.files import check_writable
from ..run.text_tables import table_lines
from ..study.study_keys import GeometryKeys, HeadsConfig, SpectraConfig, StudyKeys
from ..training.training_keys import SchemeKeys
from .options import (
    AnyModel,
    ConfigFile,
    Json,
    On,
    PageFolder,
    Setting,
    check_early,
    check_model,
    check_page_file,
    configured,
    emit,
    report_line,
    verb,
)

FEW_DOCUMENTS = 20  # of a probe, whose splits leave a fifth for the test: 4


@verb(options={HeadsConfig: "corpus field windows length", StudyKeys: "probe_splits", SchemeKeys: "scheme"})
def probe(
    model: AnyModel,
    *,
    corpus: str | None,
    field: str,
    windows: int,
    length: int | None,
    probe_splits: int,
    scheme: str | None,
    as_json: Json = False,
) -> None:
    """Fit linear probes of token, segment and intra-segment position in every layer (R²; DSTG section 5)."""
    check_model(model, scheme, corpus)
    from ..analysis.probes import probe_records
    from ..analysis.record_context import RecordContext
    from ..encoder.config import last_trained_layer
    from ..models.open import open_model
    from ..study.model_windows import model_windows
    from ..study.training_records import learning_records, undertrained_message
    from ..training.scheme_settings import use_scheme

    use_scheme(scheme)
    opened = open_model(model, attention="eager")
    encoder = opened.model
    folder = opened.folder
    opened_windows = model_windows(encoder, opened.tokenizer, folder, corpus, field, windows, length=length)
    with opened_windows as (sets, source):
        held_out = sets["held_out"]
        context = RecordContext(folder.name)
        records = probe_records(encoder, held_out, context, windows=windows, splits=probe_splits)
    rows = [r for r in records if r.index is None]
    learning = learning_records(opened.tokenizer, folder, RecordContext(folder.name))
    undertrained = undertrained_message(learning, folder.name)
    facts = {"model": model, "corpus": source, "undertrained": undertrained or None, "records": [vars(r) for r in rows]}
    warning = [undertrained, ""] if undertrained else []
    trained = last_trained_layer(encoder.config, "position")
    emit(facts, as_json, "\n".join([*warning, _probe_text(rows, source, trained)]))


def _probe_text(records: list[Any], source: str, last_of_positions: int) -> str:
    """Return the results of the probes as text: a sentence, then a row for each layer and part of the state.

    last_of_positions: last layer in which the position stream is trained; of later ones the sentence takes the semantic
    stream alone.
    """
    from ..analysis.passes import TARGETS

    probes = [r for r in records if r.layer is not None]
    values = {(r.layer, r.part, r.metric): r for r in probes}
    places = list(dict.fromkeys((r.layer, r.part) for r in probes))
    all_of_token = [r for r in probes if r.metric == "r2.token"]
    of_token = [r for r in all_of_token if r.part == "semantic" or r.layer <= last_of_positions]
    is_left_out = len(of_token) < len(all_of_token)
    best = max(of_token, key=lambda r: r.value)
    last = max(r.layer or 0 for r in of_token)
    end = max((r for r in of_token if r.layer == last), key=lambda r: r.value)
    chance = max(r.value for r in probes if r.metric.endswith(".chance"))

    def of(record: Any) -> str:
        return "the state" if record.part == "all" else f"the {record.part} stream"

    verdict = f"A token's position can be read from {of(best)} best in layer {best.layer} (R² {best.value:.2f}), from"
    if best is end:
        verdict = "A token's position can be read best from"
    if best.value <= max(chance, 0.0):
        verdict = f"A token's position is read nowhere: R² is {best.value:.2f} at best, in layer {best.layer}, and from"
    lines = [
        f"{verdict} {of(end)} after the last, {last}, with R² {end.value:.2f}; chance reaches {max(chance, 0.0):.2f}.",
        "",
    ]
    rows = [["layer", "part", *TARGETS]]
    for layer, part in places:
        cells = []
        for name in TARGETS:
            r = values.get((layer, part, f"r2.{name}"))
            interval = f" [{r.low:.2f}, {r.high:.2f}]" if r is not None and None not in (r.low, r.high) else ""
            cells.append(f"{r.value:.2f}{interval}" if r is not None else "-")
        rows.append([str(layer), part or "", *cells])
    lines += table_lines(rows, right=(0, *range(2, len(rows[0]))))
    if is_left_out:
        lines.append(f"No gradient reaches the position stream after layer {last}: the first line leaves it out.")
    facts = {r.metric.removeprefix("probe."): int(r.value) for r in records if r.metric.startswith("probe.")}
    if facts["documents"] < FEW_DOCUMENTS:
        lines.append(f"Under {FEW_DOCUMENTS} documents an interval tells how random splits of them differ, no more.")
    documents = f"{facts['documents']} document{'' if facts['documents'] == 1 else 's'}"
    read = f"read: {facts['windows']} windows of {facts['length']} tokens, of {documents} of {source}"
    return "\n".join([*lines, read])


@verb(options={SpectraConfig: "words", SchemeKeys: "scheme"})
def spectra(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...")],
    out: PageFolder = None,
    *,
    words: bool,
    scheme: str | None,
    as_json: Json = False,
) -> None:
    """Measure the shape of any position table: components, frequencies, rotations, translation equivariance, outliers
    (LOWDIM; DSTG section 4)."""
    from ..study.spectra_run import run_spectra, spectra_text
    from ..training.scheme_settings import use_scheme

    use_scheme(scheme)
    run, page = run_spectra(sources, out, words, scheme)
    records = [vars(r) for of_table in run.records for r in of_table]
    written = f"\n\n{report_line(page)}" if page else ""
    emit(
        {**run.summary(), "records": records, "report": str(page) if page else None},
        as_json,
        spectra_text(run) + written,
    )


@verb(
    options={
        GeometryKeys: "corpora field tokenizer positions align dims protocol tables models intervals smacof scheme"
    }
)
def geometry(
    context: typer.Context,
    out: Path,
    *,
    config: ConfigFile = None,
    settings: Setting = None,
    on: On = None,
    as_json: Json = False,
) -> None:
    """Measure how much position matters in corpora: Hellinger distances, MDS, stress of tables, with noise floor
    and intervals.

    Args:
        out: Folder of the results, new or of a geometry run of the same corpora, whose counts are used again and whose
            results are replaced.
    """
    check_early(context, GeometryKeys, config, settings)
    from ..study.geometry_run import GeometryConfig, run_geometry

    result = run_geometry(configured(context, GeometryConfig, config, settings), out, on=on)
    sentences = []
    for entry in (*result["corpora"], *result["models"]):
        seed = "" if entry.get("seed") is None else f" seed {entry['seed']}"
        sentences += [f"{entry['name']}{seed}: {sentence}" for sentence in entry["summary"]]
    for file in (c["table"]["file"] for c in result["corpora"] if c["table"]):  # as it can be typed here
        sentences = [
            s.replace(f"`{file}`", f"`{out / file}`").replace("=FILE ", f"={out / file} ") if f"`{file}`" in s else s
            for s in sentences
        ]
    emit(result, as_json, "\n".join([*sentences, report_line(result["report"])]))


@verb(options={HeadsConfig: "corpus field windows ablate length", SchemeKeys: "scheme"})
def heads(
    model: AnyModel,
    out: PageFolder = None,
    *,
    corpus: str | None,
    field: str,
    windows: int,
    ablate: int,
    length: int | None,
    scheme: str | None,
    on: On = None,
    as_json: Json = False,
) -> None:
    """Measure what drives each attention head: its terms by KL (DSTG equation 4), where it looks, what it is worth."""
    check_model(model, scheme, corpus)
    if on is not None and out is None:
        raise ValueError(
            "--on (or WHATWHERE_ON) has no folder that the workers share. Give one by --out, or leave --on and "
            "WHATWHERE_ON out."
        )
    from ..models.open import open_config, open_model
    from ..run.cluster import connect
    from ..study.heads_run import heads_text, run_heads
    from ..training.scheme_settings import use_scheme

    use_scheme(scheme)
    if ablate and (kind := open_config(model).model_type) != "whatwhere":
        raise ValueError(
            f"{model} is of type {kind}, whose attention and hidden states have no separate terms and streams that "
            "--ablate could take away. Leave --ablate out to see where its heads look, or give an encoder of whatwhere "
            "pretrain."
        )
    opened = open_model(model, "masked" if ablate else None, attention="eager")
    with connect(on, out or Path()) as cluster:
        result = run_heads(
            opened.model,
            opened.tokenizer,
            opened.folder,
            corpus=corpus,
            field=field,
            windows=windows,
            length=length,
            ablation_windows=ablate,
            scheme=scheme,
            out=out,
            cluster=cluster,
            model_argument=model,
        )
    written = f"\n{report_line(result['report'])}" if result["report"] else ""
    emit(result, as_json, heads_text(result) + written)


@verb(options={SchemeKeys: "scheme"})
def attention(
    model: AnyModel,
    out: Path,
    text: list[str] | None = None,
    file: list[Path] | None = None,
    repeat: bool = False,
    truncate: bool = False,
    *,
    scheme: str | None,
    as_json: Json = False,
) -> None:
    """Draw a page of what every head looks at in a text, with every term of the scores apart (DSTG figure 3).

    Args:
        out: File of the page, for example attention.html.
        text: A text to look at; may be given again.
        file: A file that holds one text; may be given again.
        repeat: Also a made-up text of the shape A + B + A (DSTG figure 3); alone where no text is given.
        truncate: Cut texts that are longer than the model reads.
    """
    check_utf8(text or (), "--text")
    check_page_file(out, "attention.html")
    texts = _texts(text or [], file or [])
    check_model(model, scheme)
    from ..study.attention_run import run_attention
    from ..training.scheme_settings import use_scheme

    check_writable(out)
    use_scheme(scheme)
    result = run_attention(model, out, texts, repeat=repeat, truncate=truncate)
    sentences = [result[key].replace("`", "") for key in ("undertrained", "missing") if result[key]]
    page = f"The page is {result['report']} ({result['bytes'] / 1e6:.1f} MB): open it in a browser."
    emit(result, as_json, "\n".join([*sentences, page]))


def _texts(texts: list[str], files: list[Path]) -> list[tuple[str, str]]:
    """Return title and words of each text, in the order of the command.

    Raises:
        ValueError: a text or file is empty, or a file cannot be read as UTF-8.
    """
    pairs = []
    for number, words in enumerate(texts, 1):
        if not words.strip():
            raise ValueError(f"--text number {number} is empty. Give some words.")
        title = " ".join(words.split())
        pairs.append((title if len(title) <= 40 else f"{title[:39]}…", words))
    for path in files:
        try:
            words = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(f"{path} cannot be read ({error.strerror}). Give a file that holds one text.") from None
        except UnicodeDecodeError:
            raise ValueError(f"{path} is no text in UTF-8. Convert it first.") from None
        if not words.strip():
            raise ValueError(f"{path} is empty. Give a file that holds some words.")
        pairs.append((path.name, words))
    return pairs
