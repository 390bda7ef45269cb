"""Verbs that train: study, pretrain, finetune."""

import os
from pathlib import Path
from typing import Annotated

import typer

from .models import OurModel
from .options import ConfigFile, Corpus, Json, Scheme, Setting, Size, Tokenizer, app, configured, emit, own_scheme


@app.command()
def study(
    out: Annotated[Path, typer.Option(help="Folder of the study; an unfinished one there is continued.")] = Path(
        "runs/study"
    ),
    corpus: Corpus = None,
    models: Annotated[
        str | None,
        typer.Option(
            help="Presets, with commas; `all` stands for all that were not named before it. All train by the recipe "
            "(masking, schedule, "
            "Adam) of the first one's family: dstg, or tupe for BERT's block; --set recipe=NAME chooses. [default: "
            "dstg,ap,rp,rope]",
            show_default=False,
        ),
    ] = None,
    size: Size = None,
    scheme: Scheme = None,
    match: Annotated[
        str | None,
        typer.Option(
            help="parameters or operations (of a forward pass, per token): change the feed-forward widths of the other "
            "models so that "
            "they cost what the first one does. [default: as they are]",
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Minutes for everything, from text to report, on this machine, instead of steps; how many steps they "
            "buy is said, and "
            "whether that is enough to learn anything."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Optimizer steps per model. [default: the recipe's of the size: tiny 625, paper 70000]",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Training seeds per model; --out STUDY --seeds 3 adds those that a study lacks. [default: 1]",
            show_default=False,
        ),
    ] = None,
    tokenizer: Tokenizer = None,
    config: ConfigFile = None,
    settings: Setting = None,
    as_json: Json = False,
) -> None:
    """Train several encoders on the same batches, one a core at a time, look inside them, write one report
    (OUT/report.html)."""
    from ..study.config import StudyConfig
    from ..study.run import run_study

    names = [name.strip() for name in models.split(",")] if models is not None else None
    saved = out / "study.yaml"
    given = any(
        v is not None for v in (corpus, models, size, scheme, match, minutes, steps, tokenizer, config)
    ) or bool(settings)
    resolved = configured(
        StudyConfig,
        saved if saved.is_file() and not given else config,
        settings,
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
    emit({"out": str(out), "report": str(report)}, as_json, f"The report is {report}: open it in a browser.")


@app.command()
def pretrain(
    out: Annotated[Path, typer.Option(help="Folder of the run; the finished model is a transformers folder there.")],
    preset: Annotated[
        str | None,
        typer.Option(
            help="Which encoder (whatwhere presets lists them), trained by its family's recipe: dstg 20 % masked, all "
            "[MASK], cosine to a "
            "tenth; tupe (BERT's block) 15 %, 80-10-10, linear to 0. [default: dstg]",
            show_default=False,
        ),
    ] = None,
    size: Size = None,
    scheme: Scheme = None,
    corpus: Corpus = None,
    tokenizer: Tokenizer = None,
    minutes: Annotated[float | None, typer.Option(help="Budget in minutes of training.")] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Budget in optimizer steps. [default: the recipe's of the size]", show_default=False),
    ] = None,
    config: ConfigFile = None,
    settings: Setting = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on from the newest complete checkpoint, or from the beginning where there is none."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Pretrain one encoder by masked-language modelling; several processes: torchrun --nproc-per-node N -m whatwhere
    pretrain ..."""
    from ..training.pretrain import CONFIG, PretrainConfig
    from ..training.pretrain import pretrain as run_pretraining

    saved = out / CONFIG
    given = config or (saved if resume and saved.is_file() else None)
    own = str(scheme) if scheme else None
    values = {
        "preset": preset,
        "size": size,
        "scheme": own,
        "corpus": corpus,
        "tokenizer": tokenizer,
        "minutes": minutes,
        "steps": steps,
    }
    summary = run_pretraining(configured(PretrainConfig, given, settings, **values), out, resume=resume)
    loss = summary["validation_loss"]
    measured = f"validation loss {loss:.3f} nats" if loss is not None else "no held-out text to validate on"
    if int(os.environ.get("RANK", "0")) == 0:
        emit(
            {"out": str(out), **summary},
            as_json,
            f"{out}: {summary['tokens']:,} tokens in {summary['seconds']:,.0f} s, {measured}.",
        )


@app.command()
def finetune(
    model: OurModel,
    out: Annotated[
        Path, typer.Option(help="Folder of the run; the finished classifier is a transformers folder there.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="Labelled table to train on: .tsv, .csv or .jsonl, also .gz .xz .zst.", show_default=False),
    ] = None,
    dev: Annotated[Path | None, typer.Option(help="Labelled table for the accuracy.", show_default=False)] = None,
    text: Annotated[
        str | None, typer.Option(help="Column of the text. [default: sentence]", show_default=False)
    ] = None,
    text_pair: Annotated[
        str | None, typer.Option(help="Column of a second text, for tasks on pairs.", show_default=False)
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="Column of the label: words or whole numbers. [default: label]", show_default=False),
    ] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Take configuration and tokenizer of MODEL, weights anew.")
    ] = False,
    epochs: Annotated[float | None, typer.Option(help="Passes over the data. [default: 3]", show_default=False)] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps, instead of epochs.", show_default=False)] = None,
    scheme: Scheme = None,
    config: ConfigFile = None,
    settings: Setting = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on from the newest complete checkpoint, or from the beginning where there is none."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Fine-tune an encoder to classify texts or pairs of texts; keeps its position table at steps 0, 50, 100, 200, 500,
    ... (GEOM 6.5).

    OUT/records.parquet holds losses, accuracy and, where there is a position table, its separation at every checkpoint.
    """
    from ..records import write_records
    from ..study.records import finetune_records
    from ..training.finetune import CONFIG, FinetuneConfig
    from ..training.finetune import finetune as run_finetuning

    saved = out / CONFIG
    given = config or (saved if resume and saved.is_file() else None)
    paths = {"data": data, "dev": dev, "scheme": scheme}
    values = {"start": model} | {key: str(path) for key, path in paths.items() if path is not None}
    others = {
        "text": text,
        "text_pair": text_pair,
        "label": label,
        "from_scratch": from_scratch or None,
        "epochs": epochs,
        "steps": steps,
    }
    try:
        resolved = configured(FinetuneConfig, given, settings, **values, **others)
        summary = run_finetuning(resolved, out, resume=resume)
    except ValueError as error:
        raise own_scheme(error, Path(model)) from None
    if int(os.environ.get("RANK", "0")) == 0:
        write_records(out / "records.parquet", finetune_records(out))
        low, high = summary["accuracy_low"], summary["accuracy_high"]
        measured = (
            f"accuracy {summary['validation_accuracy']:.3f} [{low:.3f}, {high:.3f}] on {summary['dev_rows']:,} rows"
        )
        emit(
            {"out": str(out), **summary},
            as_json,
            f"{out}: {summary['steps']:,} steps in {summary['seconds']:,.0f} s, {measured}.",
        )
