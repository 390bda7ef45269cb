"""Verbs that measure: probe, spectra, geometry."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from ..shipped import model_source
from .models import AnyModel, open_encoder, open_tokenizer
from .options import (
    ConfigFile,
    Field,
    HeldOut,
    Json,
    LengthRead,
    PageFolder,
    Scheme,
    Setting,
    app,
    configured,
    emit,
    own_scheme,
)


@app.command()
def probe(
    model: AnyModel,
    corpus: HeldOut = None,
    field: Field = "text",
    documents: Annotated[int, typer.Option(help="Held-out windows of full length to probe.")] = 500,
    splits: Annotated[int, typer.Option(help="Random splits of the documents.")] = 5,
    length: LengthRead = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Linear probes of token, segment and intra-segment position in every layer (R²; DSTG section 5)."""
    from ..analysis.probes import probe_records
    from ..analysis.who import Who
    from ..study.windows import model_windows

    encoder, tokenizer, folder = open_encoder(model, scheme), open_tokenizer(model), Path(model_source(model))
    with ExitStack() as stack:
        windows, source = model_windows(encoder, tokenizer, folder, corpus, field, documents, stack, length=length)
        held_out = windows["held_out"]
        records = probe_records(encoder, held_out, Who(folder.name), documents=documents, splits=splits)
    rows = [r for r in records if r.index is None]
    emit({"model": model, "corpus": source, "records": [vars(r) for r in rows]}, as_json, _probe_text(rows, source))


def _probe_text(records: list[Any], source: str) -> str:
    """What the probes of one model found, for people: a sentence, then a row for each layer and part of the state."""
    from ..analysis.passes import TARGETS

    probes = [r for r in records if r.layer is not None]
    values = {(r.layer, r.part, r.metric): r for r in probes}
    places = list(dict.fromkeys((r.layer, r.part) for r in probes))
    of_token = [r for r in probes if r.metric == "r2.token"]
    best, last = max(of_token, key=lambda r: r.value), max(r.layer or 0 for r in of_token)
    end = max((r for r in of_token if r.layer == last), key=lambda r: r.value)
    chance = max(r.value for r in probes if r.metric.endswith(".chance"))

    def of(record: Any) -> str:
        return "the state" if record.part == "all" else f"the {record.part} stream"

    lines = [
        f"A token's position can be read from {of(best)} best in layer {best.layer} (R² {best.value:.2f}), from "
        f"{of(end)} after the last, {last}, with R² {end.value:.2f}; chance reaches {max(chance, 0.0):.2f}.",
        "",
        f"{'layer':>5}  {'part':9}" + "".join(f"{name:>24}" for name in TARGETS),
    ]
    for layer, part in places:
        cells = []
        for name in TARGETS:
            r = values.get((layer, part, f"r2.{name}"))
            interval = f" [{r.low:.2f}, {r.high:.2f}]" if r is not None and None not in (r.low, r.high) else ""
            cells.append(f"{r.value:.2f}{interval}" if r is not None else "-")
        lines.append(f"{layer:>5}  {part or '':9}" + "".join(f"{cell:>24}" for cell in cells))
    read, length = (int(next(r.value for r in records if r.metric == f"probe.{w}")) for w in ("documents", "length"))
    return "\n".join([*lines, f"read: {read} windows of {length} tokens of {source}"])


@app.command()
def spectra(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="A .npy file (positions, width), a model folder (ours, BERT, ALBERT, RoBERTa, ELECTRA, GPT-2, ViT; "
            "safetensors only), a study folder (all its models), a model's name on the Hub, or `reference`, the model "
            "that comes with the package.",
        ),
    ],
    words: Annotated[bool, typer.Option("--words", help="Word tables too: their shares and N50.")] = False,
    out: PageFolder = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Shape of any position table: components, frequencies, rotations, translation equivariance, outliers (LOWDIM; DSTG
    section 4)."""
    from ..study.spectra import run_spectra, spectra_text
    from ..training.config import use_scheme

    use_scheme(scheme)
    try:
        run, page = run_spectra(sources, out, words)
    except ValueError as error:
        raise own_scheme(error, Path(sources[0])) from None
    records = [vars(r) for of_table in run.records for r in of_table]
    written = f"\n\nThe report is {page}: open it in a browser." if page else ""
    emit(
        {**run.facts(), "records": records, "report": str(page) if page else None}, as_json, spectra_text(run) + written
    )


@app.command()
def geometry(
    context: typer.Context,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder of the results, new or of a geometry run, which is replaced; its counts of the same text are "
            "used again."
        ),
    ],
    corpora: Annotated[
        list[str] | None,
        typer.Option(
            "--corpus",
            help="Text, as for `study`, also .tsv and .csv tables and synthetic:three-regimes; NAME=SPEC gives it a "
            "name without / or :; several are compared. [default: python-docs]",
        ),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            help="Field of the text in tables and JSON lines; one for all corpora or one each. [default: text]"
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Vocabulary file, tokenizer or model folder, Hub name, `reference`, `words` or `characters`. "
            "[default: the first --model's, else a WordPiece trained on the corpora]"
        ),
    ] = None,
    positions: Annotated[
        int | None, typer.Option(help="Positions to count, special tokens not among them. [default: 128]")
    ] = None,
    align: Annotated[
        str | None,
        typer.Option(
            help="start: position from the start of a document; relative: its place in --positions equal parts. "
            "[default: start]"
        ),
    ] = None,
    dims: Annotated[
        str | None,
        typer.Option(
            help="Widths d of the curve of stress, with commas. [default: 16,32,64,128,256,512,768]", show_default=False
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="default, or paper: GEOM's own, with all positions and nothing corrected. [default: default]"
        ),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            help="A further table: .npy, model folder, Hub name or `reference`. Row 0 is [CLS]'s unless --set "
            "first_row=0; may come again.",
        ),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="A run, or `reference`: separation of its table at every checkpoint, and GEOM's conditions H1 and H3; "
            "may be given again.",
        ),
    ] = None,
    intervals: Annotated[
        bool | None,
        typer.Option(
            "--intervals/--no-intervals", help="95 % intervals, which take most of the time. [default: intervals]"
        ),
    ] = None,
    smacof: Annotated[
        bool | None,
        typer.Option("--smacof/--no-smacof", help="Tables of least stress beside classical MDS. [default: smacof]"),
    ] = None,
    config: ConfigFile = None,
    settings: Setting = None,
    as_json: Json = False,
) -> None:
    """How much position matters in corpora: Hellinger distances, MDS, stress of position tables, with noise floor and
    intervals."""
    from ..study.geometry import GeometryConfig, run_geometry

    try:
        widths = [int(d) for d in dims.split(",")] if dims is not None else None
    except ValueError:
        raise ValueError(f"--dims takes whole numbers with commas, for example 16,64,256; got {dims!r}.") from None
    result = run_geometry(configured(context, GeometryConfig, config, settings, dims=widths), out)
    if result["report"] is None:
        return
    said = [f"{c['name']}: {sentence}" for c in (*result["corpora"], *result["models"]) for sentence in c["summary"]]
    for file in (c["table"]["file"] for c in result["corpora"] if c["table"]):  # as it can be typed here
        here = [f"`{file}`" in sentence for sentence in said]
        typed = [s.replace(f"`{file}`", f"`{out / file}`").replace("=FILE ", f"={out / file} ") for s in said]
        said = [new if of_it else s for new, of_it, s in zip(typed, here, said, strict=True)]
    emit(result, as_json, "\n".join([*said, f"The report is {result['report']}: open it in a browser."]))
