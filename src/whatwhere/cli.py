"""The command line: `whatwhere VERB --help`. Wrong input ends with status 2 and one line on stderr, never a traceback."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

# Newer typer carries its own copy of click: the base of its usage errors is found through a public name.
_CommandLineError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="whatwhere",
    help="Train text encoders that keep meaning apart from position, and measure what position encodings do inside a model.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # its markup would swallow [default: ...]
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Corpus = Annotated[
    str | None,
    typer.Option(
        help="Text: python-docs (docstrings of the installed packages, nothing to download), a file or folder "
        "(.txt .jsonl .parquet, also .gz .xz .zst), hub:NAME[:CONFIG], synthetic:repeat. [default: python-docs]",
        show_default=False,
    ),
]
Setting = Annotated[list[str] | None, typer.Option("--set", help="Any configuration key as key=value (YAML); may be given again.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file with configuration keys.")]
Tokenizer = Annotated[
    str | None,
    typer.Option(help="Vocabulary file, tokenizer folder or Hub name. [default: train a WordPiece on the corpus]", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one machine-readable object on stdout.")]
Size = Annotated[str | None, typer.Option(help="tiny, small or paper: widths, layers and positions. [default: tiny]", show_default=False)]

Scheme = Annotated[
    Path | None,
    typer.Option(
        help="Python file that registers a table, bias, rotation or preset of your own (examples/kerple.py). It is run.", show_default=False
    ),
]


def _emit(value: Any, as_json: bool, text: str) -> None:
    print(json.dumps(value) if as_json else text)


@app.command()
def study(
    out: Annotated[Path, typer.Option(help="Folder of the study; an unfinished one there is continued.")] = Path("runs/study"),
    corpus: Corpus = None,
    models: Annotated[
        str | None,
        typer.Option(
            help="Presets, with commas; `all` stands for all that were not named before it. All train by the recipe (masking, schedule, "
            "Adam) of the first one's family: dstg, or tupe for BERT's block; --set recipe=NAME chooses. [default: dstg,ap,rp,rope]",
            show_default=False,
        ),
    ] = None,
    size: Size = None,
    scheme: Scheme = None,
    match: Annotated[
        str | None,
        typer.Option(
            help="parameters or operations (of a forward pass, per token): change the feed-forward widths of the other models so that "
            "they cost what the first one does. [default: as they are]",
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Minutes for everything, from text to report, on this machine. [default: 10]", show_default=False)
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps per model, instead of minutes.", show_default=False)] = None,
    seeds: Annotated[int | None, typer.Option(help="Training seeds per model. [default: 1]", show_default=False)] = None,
    tokenizer: Tokenizer = None,
    config: ConfigFile = None,
    settings: Setting = None,
    as_json: Json = False,
) -> None:
    """Train several encoders on the same batches, probe them, write one report (OUT/report.html)."""
    from .study.config import StudyConfig
    from .study.run import run_study

    names = [name.strip() for name in models.split(",")] if models is not None else None
    saved = out / "study.yaml"
    given = any(v is not None for v in (corpus, models, size, scheme, match, minutes, steps, seeds, tokenizer, config)) or bool(settings)
    resolved = StudyConfig.load(
        saved if saved.is_file() and not given else config,
        settings or (),
        corpus=corpus,
        models=names,
        size=size,
        scheme=str(scheme) if scheme else None,
        match=match,
        minutes=minutes,
        steps=steps,
        seeds=seeds,
        tokenizer=tokenizer,
    )
    report = run_study(resolved, out)
    _emit({"out": str(out), "report": str(report)}, as_json, f"The report is {report}: open it in a browser.")


@app.command()
def pretrain(
    out: Annotated[Path, typer.Option(help="Folder of the run; the finished model is a transformers folder there.")],
    preset: Annotated[
        str | None,
        typer.Option(
            help="Which encoder (whatwhere presets lists them), trained by its family's recipe: dstg 20 % masked, all [MASK], cosine to a "
            "tenth; tupe (BERT's block) 15 %, 80-10-10, linear to 0. [default: dstg]",
            show_default=False,
        ),
    ] = None,
    size: Size = None,
    scheme: Scheme = None,
    corpus: Corpus = None,
    tokenizer: Tokenizer = None,
    minutes: Annotated[float | None, typer.Option(help="Budget in minutes of training.")] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in optimizer steps.")] = None,
    config: ConfigFile = None,
    settings: Setting = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest complete checkpoint, or from the beginning where there is none.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Pretrain one encoder by masked-language modelling; several processes: torchrun --nproc-per-node N -m whatwhere pretrain ..."""
    from .training.pretrain import CONFIG, PretrainConfig
    from .training.pretrain import pretrain as run_pretraining

    saved = out / CONFIG
    given = config or (saved if resume and saved.is_file() else None)
    own = str(scheme) if scheme else None
    values = {"preset": preset, "size": size, "scheme": own, "corpus": corpus, "tokenizer": tokenizer, "minutes": minutes, "steps": steps}
    summary = run_pretraining(PretrainConfig.load(given, settings or (), **values), out, resume=resume)
    loss = summary["validation_loss"]
    measured = f"validation loss {loss:.3f} nats" if loss is not None else "no held-out text to validate on"
    if int(os.environ.get("RANK", "0")) == 0:
        _emit({"out": str(out), **summary}, as_json, f"{out}: {summary['tokens']:,} tokens in {summary['seconds']:,.0f} s, {measured}.")


@app.command()
def finetune(
    model: Annotated[Path, typer.Argument(help="Folder of a pretrained encoder of ours.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; the finished classifier is a transformers folder there.")],
    data: Annotated[
        Path | None, typer.Option(help="Labelled table to train on: .tsv, .csv or .jsonl, also .gz .xz .zst.", show_default=False)
    ] = None,
    dev: Annotated[Path | None, typer.Option(help="Labelled table for the accuracy.", show_default=False)] = None,
    text: Annotated[str | None, typer.Option(help="Column of the text. [default: sentence]", show_default=False)] = None,
    text_pair: Annotated[str | None, typer.Option(help="Column of a second text, for tasks on pairs.", show_default=False)] = None,
    label: Annotated[
        str | None, typer.Option(help="Column of the label: words or whole numbers. [default: label]", show_default=False)
    ] = None,
    from_scratch: Annotated[bool, typer.Option("--from-scratch", help="Take configuration and tokenizer of MODEL, weights anew.")] = False,
    epochs: Annotated[float | None, typer.Option(help="Passes over the data. [default: 3]", show_default=False)] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps, instead of epochs.", show_default=False)] = None,
    scheme: Scheme = None,
    config: ConfigFile = None,
    settings: Setting = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest complete checkpoint, or from the beginning where there is none.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Fine-tune an encoder to classify texts or pairs of texts; keeps its position table at steps 0, 50, 100, 200, 500, ... (GEOM 6.5).

    OUT/records.parquet holds losses, accuracy and, where there is a position table, its separation at every checkpoint.
    """
    from .records import write_records
    from .study.finetune import finetune_records
    from .training.finetune import CONFIG, FinetuneConfig
    from .training.finetune import finetune as run_finetuning

    saved = out / CONFIG
    given = config or (saved if resume and saved.is_file() else None)
    paths = {"start": model, "data": data, "dev": dev, "scheme": scheme}
    values = {key: str(path) for key, path in paths.items() if path is not None}
    others = {"text": text, "text_pair": text_pair, "label": label, "from_scratch": from_scratch or None, "epochs": epochs, "steps": steps}
    try:
        resolved = FinetuneConfig.load(given, settings or (), **values, **others)
        summary = run_finetuning(resolved, out, resume=resume)
    except ValueError as error:
        raise _own_scheme(error, model) from None
    if int(os.environ.get("RANK", "0")) == 0:
        write_records(out / "records.parquet", finetune_records(out))
        low, high = summary["accuracy_low"], summary["accuracy_high"]
        measured = f"accuracy {summary['validation_accuracy']:.3f} [{low:.3f}, {high:.3f}] on {summary['dev_rows']:,} rows"
        _emit({"out": str(out), **summary}, as_json, f"{out}: {summary['steps']:,} steps in {summary['seconds']:,.0f} s, {measured}.")


@app.command()
def probe(
    model: Annotated[Path, typer.Argument(help="A trained model: a folder that pretrain or a study wrote.")],
    corpus: Annotated[Path, typer.Option(help="Folder of windows (the corpus/ of a run or study) whose held-out part is probed.")],
    documents: Annotated[int, typer.Option(help="Held-out windows of full length to probe.")] = 500,
    splits: Annotated[int, typer.Option(help="Random splits of the documents.")] = 5,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Linear probes of token, segment and intra-segment position in every layer (R²; DSTG section 5)."""
    from .analysis.probes import probe_records
    from .corpus import Windows

    if not (corpus / "manifest.json").is_file():
        raise ValueError(f"{corpus} is no folder of windows. Give the corpus/ folder of a run or study, for example {model}/corpus.")
    encoder = _open_model(model, scheme)
    records = probe_records(encoder, Windows(corpus)["held_out"], study="", name=model.name, seed=None, documents=documents, splits=splits)
    rows = [r for r in records if r.index is None]
    lines = []
    for r in (r for r in rows if r.layer is not None):
        interval = f"[{r.low:.3f}, {r.high:.3f}]" if r.low is not None else ""
        lines.append(f"{r.metric:18} {r.part or '':9} layer {r.layer}  {r.value:7.3f}  {interval}")
    table = "\n".join(lines)
    _emit({"model": str(model), "records": [vars(r) for r in rows]}, as_json, table)


@app.command()
def spectra(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="A .npy file (positions, width), a model folder (ours, BERT, ALBERT, RoBERTa, ELECTRA, GPT-2, ViT; safetensors only), "
            "a study folder (all its models), or a model's name on the Hub.",
        ),
    ],
    words: Annotated[bool, typer.Option("--words", help="Word tables too: their shares and N50.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for records, arrays and a page with every figure (report.html).", show_default=False)
    ] = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Shape of any position table: components, frequencies, rotations, translation equivariance, outliers (LOWDIM; DSTG section 4)."""
    from .study.spectra import run_spectra, spectra_text
    from .training.config import use_scheme

    use_scheme(scheme)
    try:
        run, page = run_spectra(sources, out, words)
    except ValueError as error:
        raise _own_scheme(error, Path(sources[0])) from None
    facts = {**run.facts(), "records": [vars(r) for records in run.records for r in records], "report": str(page) if page else None}
    written = f"\n\nThe report is {page}: open it in a browser." if page else ""
    _emit(facts, as_json, spectra_text(run) + written)


@app.command()
def geometry(
    out: Annotated[Path, typer.Option(help="Folder of the results; counts that it holds of the same text are used again.")],
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            help="Text, as for `study`, also .tsv and .csv tables and synthetic:three-regimes; NAME=SPEC gives it a name; several are "
            "compared. [default: python-docs]",
            show_default=False,
        ),
    ] = None,
    field: Annotated[
        list[str] | None, typer.Option(help="Field of the text in tables and JSON lines; one for all corpora or one each. [default: text]")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Vocabulary file, tokenizer folder, Hub name, `words` or `characters`. [default: the first --model's, else a WordPiece "
            "trained on the first corpus]",
            show_default=False,
        ),
    ] = None,
    positions: Annotated[
        int | None, typer.Option(help="Positions to count, special tokens not among them. [default: 128]", show_default=False)
    ] = None,
    align: Annotated[
        str | None,
        typer.Option(help="start: position from the start of a document; relative: its place in --positions equal parts. [default: start]"),
    ] = None,
    dims: Annotated[
        str | None,
        typer.Option(help="Widths d of the curve of stress, with commas. [default: 16,32,64,128,256,512,768]", show_default=False),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="default, or paper: GEOM's own, with all positions and nothing corrected. [default: default]", show_default=False
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help="A further table to compare: .npy, model folder or Hub name (row 0 is [CLS]); may be given again."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="A run: separation of its table at every checkpoint, and GEOM's conditions H1 and H3; may be given again."),
    ] = None,
    intervals: Annotated[
        bool | None, typer.Option("--intervals/--no-intervals", help="95 % intervals, which take most of the time. [default: intervals]")
    ] = None,
    smacof: Annotated[
        bool | None, typer.Option("--smacof/--no-smacof", help="Tables of least stress beside classical MDS. [default: smacof]")
    ] = None,
    config: ConfigFile = None,
    settings: Setting = None,
    as_json: Json = False,
) -> None:
    """How much position matters in corpora: Hellinger distances, MDS, stress of position tables, with noise floor and intervals."""
    from .study.geometry import GeometryConfig, run_geometry

    try:
        widths = [int(d) for d in dims.split(",")] if dims is not None else None
    except ValueError:
        raise ValueError(f"--dims takes whole numbers with commas, for example 16,64,256; got {dims!r}.") from None
    resolved = GeometryConfig.load(
        config,
        settings or (),
        corpora=corpus,
        field=field,
        tokenizer=tokenizer,
        positions=positions,
        align=align,
        dims=widths,
        protocol=protocol,
        tables=table,
        models=model,
        intervals=intervals,
        smacof=smacof,
    )
    result = run_geometry(resolved, out)
    said = [f"{c['name']}: {sentence}" for c in result["corpora"] for sentence in c["summary"]]
    _emit(result, as_json, "\n".join([*said, f"The report is {result['report']}: open it in a browser."]))


def _own_scheme(error: ValueError, folder: Path) -> ValueError:
    """The error of an unknown scheme, with the file that the model's folder carries."""
    if "--scheme FILE" in str(error) and (folder / "own_scheme.py").is_file():
        return ValueError(f"{error} The model carries it: read {folder / 'own_scheme.py'}, then add --scheme {folder / 'own_scheme.py'}.")
    return error


def _open_model(folder: Path, scheme: Path | None) -> Any:
    from safetensors import SafetensorError
    from transformers.utils import logging

    from .encoder import EncoderForMaskedLM
    from .training.config import use_scheme

    logging.disable_progress_bar()
    use_scheme(scheme)
    seeds = sorted(p.parent for p in folder.glob("**/seed-*/config.json"))
    if seeds:
        raise ValueError(f"{folder} holds {len(seeds)} models of a study. Name one, for example {seeds[0]}.")
    if not (folder / "config.json").is_file():
        raise ValueError(f"No model at {folder}: config.json is missing. Give the folder that pretrain wrote.")
    if not (folder / "model.safetensors").is_file():
        raise ValueError(f"{folder} holds no finished model: model.safetensors is missing. Finish it: whatwhere pretrain --resume.")
    try:
        return EncoderForMaskedLM.from_pretrained(folder, local_files_only=True).eval()
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{folder}/model.safetensors does not load ({' '.join(str(error).split())[:160]}). Use a complete copy.") from None
    except ValueError as error:
        raise _own_scheme(error, folder) from None


@app.command()
def report(run: Annotated[Path, typer.Argument(help="Folder of a study.")], as_json: Json = False) -> None:
    """Write a study's report again from its records."""
    from .report import write_report

    path = write_report(run)
    _emit({"report": str(path)}, as_json, f"The report is {path}: open it in a browser.")


@app.command()
def claims(run: Annotated[Path, typer.Argument(help="Folder of a study.")], as_json: Json = False) -> None:
    """Which published claims hold in a study, by rules on its records."""
    from .records import read_records
    from .study.claims import evaluate

    verdicts = evaluate(read_records(run / "records.parquet"))
    text = "\n".join(f"{c['verdict']:22} {c['id']:30} {_interval(c)}  {c['claim']}" for c in verdicts)
    _emit(verdicts, as_json, text)


def _interval(claim: dict[str, Any]) -> str:
    if claim["value"] is None:
        return "-"
    bounds = "" if claim["low"] is None else f" [{claim['low']:.3f}, {claim['high']:.3f}]"
    return f"{claim['value']:.3f}{bounds}"


@app.command()
def presets(
    size: Annotated[str, typer.Option(help="tiny, small or paper: the widths, layers and length that are counted.")] = "paper",
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """The encoders this version builds: streams, terms of the attention scores, costs, longest input, backends that train them."""
    from .training.config import use_scheme
    from .training.explain import preset_rows, rows_as_text

    use_scheme(scheme)
    rows = preset_rows(size)
    _emit({"size": size, "presets": rows}, as_json, rows_as_text(rows, size))


@app.command()
def explain(
    what: Annotated[str, typer.Argument(metavar="CONFIG", help="A preset, a YAML file of a training, or the folder of a trained model.")],
    size: Annotated[str | None, typer.Option(help="tiny, small or paper, for a preset. [default: tiny]", show_default=False)] = None,
    scheme: Scheme = None,
    settings: Setting = None,
    as_json: Json = False,
) -> None:
    """What an encoder is: resolved configuration, formula of its scores, parameters and operations by part, backends here and why."""
    from .encoder import EncoderConfig
    from .encoder.tables import check_table_files
    from .training.config import use_scheme
    from .training.explain import as_text
    from .training.explain import explain as facts_of
    from .training.pretrain import PretrainConfig

    path = Path(what)
    if path.is_dir():
        if size or settings:
            raise ValueError(f"{what} is a trained model, whose configuration is fixed. Leave --size and --set out.")
        if not (path / "config.json").is_file():
            raise ValueError(f"No model at {what}: config.json is missing. Give the folder that pretrain wrote, or a preset.")
        use_scheme(scheme)
        try:
            encoder = EncoderConfig.from_pretrained(path, local_files_only=True)
        except ValueError as error:
            raise _own_scheme(error, path) from None
        facts = facts_of(encoder, None, 0.15, "sdpa")
    else:
        own = str(scheme) if scheme else None
        if path.suffix in (".yaml", ".yml"):
            config = PretrainConfig.load(path, settings or (), size=size, scheme=own)
        else:
            config = PretrainConfig.load(None, settings or (), preset=what, size=size, scheme=own)
        if config.tokenizer is None and "vocab_size" not in config.model:
            config = config.model_copy(update={"model": {**config.model, "vocab_size": config.vocab_size}})  # of the WordPiece to train
        encoder = config.encoder_config()
        check_table_files(encoder)
        facts = facts_of(encoder, config.length, config.mask_rate, config.backend)
    _emit(facts, as_json, as_text(facts))


@app.command()
def doctor(as_json: Json = False) -> None:
    """Versions, cores, memory, accelerator, attention backends, optional packages and free disk of this machine."""
    from .study.machine import diagnose

    facts = diagnose(Path("."))
    gib = 2**30
    here = facts["machine"]
    lines = [
        *(f"{name:14} {number}" for name, number in facts["versions"].items()),
        f"{'processor':14} {here['cpu']}, {here['cores']} cores",
        f"{'memory':14} {facts['memory_free_bytes'] / gib:.1f} of {here['memory_bytes'] / gib:.1f} GiB free",
        f"{'disk':14} {facts['disk_free_bytes'] / gib:.1f} GiB free here",
        f"{'accelerator':14} {here['accelerator'] or 'none'}",
        f"{'bf16':14} {'used by precision: auto' if facts['bf16'] else 'not faster here; precision: auto uses fp32'}",
        *(f"{'backend ' + name:23} {state}" for name, state in facts["backends"].items()),
        *(f"{name:23} {state}" for name, state in facts["extras"].items()),
    ]
    _emit(facts, as_json, "\n".join(lines))


def main() -> None:
    """Entry point: turns wrong input into one line and exit status 2."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        status = app(standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except _CommandLineError as error:
        line = error.format_message()  # type: ignore[attr-defined]
        line = f"{line} See whatwhere --help." if line else ""
    except (typer.Abort, KeyboardInterrupt, SystemExit) as stop:
        if isinstance(stop, SystemExit) and stop.code != 130:
            raise
        print("\nwhatwhere: stopped. The same command goes on from the last checkpoint (pretrain, finetune: add --resume).", file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError) as error:
        if os.environ.get("WHATWHERE_DEBUG"):
            raise
        line = str(error)
    if line:  # without a verb the help has been printed already
        print(f"whatwhere: {' '.join(line.split())}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
