"""Verbs that ask what a model is good for: evaluate glue, squad, linguistic, holmes, mteb, all."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import Field, Json, Scheme, app, configured, emit, verb

evaluate = typer.Typer(
    help="What encoders are good for: tasks of GLUE, answers in a text, grammar, vectors of texts.",
)
app.add_typer(evaluate, name="evaluate")

Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...",
        help="Model folders of ours or of transformers, studies (their first seeds; of `length` all), Hub names, or "
        "`reference`; differences are from the first.",
    ),
]
Out = Annotated[Path, typer.Option(help="Folder of results: records.parquet and a page; what is finished there stays.")]
Names = Annotated[str | None, typer.Option(metavar="NAME,NAME")]
Seeds = Annotated[int | None, typer.Option(help="Seeds of the fine-tuning. [default: the recipe's]", min=1)]
ProbeSeeds = Annotated[int, typer.Option(help="Seeds of each probe.", min=1)]
Layers = Annotated[str, typer.Option(help="Hidden states that probes read: last or all.")]
Pooling = Annotated[str, typer.Option(help="Tokens of a place that are averaged: mean (all), first or last.")]
Rates = Annotated[
    str | None,
    typer.Option(
        help="Learning rates in place of the recipe's, of a model 768 wide, with commas; one half of the development "
        "rows chooses.",
        metavar="RATE,RATE",
    ),
]
Untrained = Annotated[bool, typer.Option("--untrained", help="Also each model with weights drawn anew, as a control.")]
Checkpoints = Annotated[
    str | None,
    typer.Option(help="Also these steps of each training, with commas (TUPE Figure 5).", metavar="STEP,STEP"),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        help="Minutes: begin nothing that would end later, judged by the pieces of its task so far (the first of each "
        "is begun whatever it takes); the same command goes on."
    ),
]


def _names(words: str) -> list[str]:
    """Names with commas between them; one in brackets is part of a name: MTEB(eng, v2)."""
    return [name.strip() for name in re.split(r",(?![^()]*\))", words)]


def _opened(context: typer.Context, seeds: bool = False) -> list[str]:
    """The models that are given, studies resolved, with the first or all of their seeds; one that does not open is
    refused before anything is computed."""
    from ..corpus.tokenizer import check_tokenizer
    from ..evaluation.family import of_studies
    from ..models.open import open_model
    from ..training.settings import use_scheme

    use_scheme(context.params["scheme"])
    models = of_studies(context.params["models"], seeds)
    for model in models:
        check_tokenizer(open_model(model).tokenizer, model)
    return models


def _run(context: typer.Context, family: Any, seeds: bool = False, **named: Any) -> None:
    """A family of tasks for several models: its options are its settings by their names, lists with commas."""
    from ..study.benchmarks import evaluation_text, run_evaluation

    models = _opened(context, seeds)
    lists = {key: context.params.get(key) for key in ("tasks", "rates", "checkpoints", "methods", "windows", "adapt")}
    named |= {key: _names(text) for key, text in lists.items() if text}
    config = configured(context, family.config, models=models, **named)
    found = run_evaluation(family, config, context.params["out"])
    emit(found, context.params["as_json"], evaluation_text(family, found))


@verb(evaluate)
def glue(
    context: typer.Context,
    models: Models,
    out: Out,
    tasks: Names = None,
    data: Path | None = None,
    recipe: str = "short",
    rates: Rates = None,
    seeds: Seeds = None,
    length: Annotated[int, typer.Option(min=8)] = 128,
    limit: Annotated[int | None, typer.Option(min=20)] = None,
    checkpoints: Checkpoints = None,
    untrained: Untrained = False,
    minutes: Minutes = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Fine-tune encoders on GLUE: scores with seeds, chosen on one half of the development rows and judged on the
    other.

    OUT holds records.parquet, a page, and every fine-tuning with its evaluations and predictions under runs/.

    Args:
        tasks: Tasks, with commas. [default: all but wnli]
        data: Folder of GLUE's own release (CoLA/train.tsv ..., also packed), or that holds glue/. [default: the Hub]
        recipe: Protocol: short (2 rates, 5 epochs, 3 seeds), tupe (4 rates, 5 seeds; TUPE Table 1), dstg (18 settings;
            DSTG C.1). Rates are of models 768 wide, narrower ones take them in inverse proportion.
        length: Most tokens of a row; longer ones are cut.
        limit: Most training rows, evenly spaced. [default: all]
    """
    from ..evaluation.glue import GLUE

    _run(context, GLUE)


@verb(evaluate)
def squad(
    context: typer.Context,
    models: Models,
    out: Out,
    tasks: Names = None,
    data: Path | None = None,
    recipe: str = "short",
    rates: Rates = None,
    seeds: Seeds = None,
    length: Annotated[int, typer.Option(min=16)] = 384,
    stride: Annotated[int, typer.Option(min=1)] = 128,
    limit: Annotated[int | None, typer.Option(min=20)] = None,
    train_on_dev: Annotated[float | None, typer.Option(metavar="SHARE")] = None,
    checkpoints: Checkpoints = None,
    untrained: Untrained = False,
    minutes: Minutes = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Fine-tune encoders to answer questions by a span of a paragraph: exact match and F1 with seeds, chosen on one
    half of the development questions and judged on the other.

    OUT holds records.parquet, a page, and every fine-tuning with its evaluations and answers under runs/.

    Args:
        tasks: Of squad (1.1), squad-2 (2.0), restaurants. [default: squad]
        data: Folder of train-v1.1.json, dev-v1.1.json ..., or that holds squad/ and span-extraction/; also packed.
            [default: the Hub]
        recipe: Protocol: short (2 rates, 3 epochs, 3 seeds), dstg (3 rates; DSTG C.4). Rates are of models 768 wide,
            narrower ones take them in inverse proportion.
        length: Most tokens of a window, question included.
        stride: Tokens from a window of a paragraph to the next.
        limit: Most training questions, evenly spaced. [default: all]
        train_on_dev: Where there is no training file: share of SQuAD's development articles to train on; the others are
            tested.
    """
    from ..evaluation.squad import SQUAD

    _run(context, SQUAD)


@verb(evaluate)
def linguistic(
    context: typer.Context,
    models: Models,
    out: Out,
    tasks: Names = None,
    data: Path | None = None,
    seeds: ProbeSeeds = 5,
    layers: Layers = "last",
    pooling: Pooling = "mean",
    code: bool = False,
    limit: Annotated[int | None, typer.Option(min=20)] = None,
    pairs: Annotated[int | None, typer.Option(min=1)] = None,
    untrained: Untrained = False,
    minutes: Minutes = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Grammar: is the good sentence of a pair the likelier one (BLiMP), and what do linear probes read of trees and
    paragraphs off the hidden states, of each stream also alone?

    OUT holds records.parquet (by task; of BLiMP also by paradigm and field) and a page.

    Args:
        data: Folder that holds blimp/, ud-ewt/, wikipedia-en/, or one of these; also packed. [default: the Hub, which
            has blimp and acceptability alone]
        tasks: Tasks, with commas. [default: those whose files are there]
        code: Also the online code of the labels: how easily is it read?
        limit: Most rows of training and test of a probe. [default: 10,000]
        pairs: Most pairs of each paradigm of BLiMP. [default: all, 1,000]
    """
    from ..evaluation.linguistic import LINGUISTIC

    _run(context, LINGUISTIC)


@verb(evaluate)
def holmes(
    context: typer.Context,
    models: Models,
    data: Path,
    out: Out,
    tasks: Names = None,
    table: Path | None = None,
    seeds: ProbeSeeds = 5,
    layers: Layers = "last",
    pooling: Pooling = "mean",
    control: bool = False,
    limit: Annotated[int | None, typer.Option(min=2)] = None,
    untrained: Untrained = False,
    minutes: Minutes = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Holmes and Flash-Holmes: linear probes of some two hundred data sets, means over phenomena and fields.

    OUT holds records.parquet (by data set, phenomenon and field) and a page.

    Args:
        data: Folder of Holmes' or Flash-Holmes' data sets, a folder with samples.csv each, or that holds it.
        tasks: Data sets, with commas. [default: all of the folder]
        table: Published table, which says what a data set is of. [default: leaderboard*holmes.csv there]
        control: Also probes of permuted labels: what is left of a score without them?
        limit: Most rows of a split. [default: all]
    """
    from ..evaluation.holmes import HOLMES

    _run(context, HOLMES)


@verb(evaluate)
def length(
    context: typer.Context,
    models: Models,
    out: Out,
    to: Annotated[int, typer.Option(min=64)] = 1024,
    corpus: str = "python-docs",
    field: Field = "text",
    document: str = "auto",
    documents: Annotated[int, typer.Option(min=10)] = 32,
    methods: Names = None,
    points: Path | None = None,
    windows: Annotated[str | None, typer.Option(metavar="N,N")] = None,
    adapt: Names = None,
    steps: Annotated[int, typer.Option(min=10)] = 60,
    minutes: Minutes = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Read texts longer than those of the training: loss by position, passages that come again, probes, drift of the
    states, by each way to continue a position table or to slow rotations down, and in pieces as long as trained.

    OUT holds records.parquet, a page, the losses of every token under runs/, and adapted models under models/. Of a
    study all seeds are read. What a model does not have, such as a way or a window, is left out, and said. A call on a
    folder that is there goes on with all its models, ways, windows and parts to adapt beside those named now.

    Args:
        to: Tokens of a text.
        corpus: Long texts, as for `study`, which no model was trained on.
        documents: Documents that are measured, an excerpt behind the first quarter of each.
        document: What a document of a text file is: auto, file, blank-line, heading, line.
        methods: Ways to read on, with commas, each with each of --windows and --adapt, those that OUT was begun with
            included: as-it-is, formula, sinusoidal,
            fourier, cyclic, learned, decay, rotation, linear, nearest, mds, ntk, yarn. [default: all that a model has]
        points: Of mds: table with a row of coordinates for each of --to positions (.npy), such as
            tables/NAME-mds.npy of `geometry` for a corpus with longer texts.
        windows: Tokens on each side that a token looks at, of models of this package, with commas; 0 for all.
            [default: 0]
        adapt: What a short training on further documents changes: none, network (that of the method learned), table
            (the position table alone), all; with commas. [default: none]
        steps: Steps of that training, of 8 texts each; its rate is 0.001 (table, network: 0.004) for 128 columns, less
            for more.
    """
    from ..length.benchmark import LENGTH

    _run(context, LENGTH, seeds=True)


@verb(evaluate, "all")
def everything(
    context: typer.Context,
    models: Models,
    data: Path,
    out: Out,
    untrained: Untrained = False,
    minutes: float | None = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Run every evaluation whose data are at hand, the cheapest first, within a budget; one page of all.

    OUT holds records.parquet and a page of all, and a folder for each family of tasks.

    Args:
        data: Folder that holds glue/, squad/, blimp/, ud-ewt/, sts/, books-pd/ ...; what lacks is left out.
        minutes: Minutes for all, the cheapest first, as of each verb; the same command goes on.
    """
    from ..evaluation.family import EvaluationConfig
    from ..study.benchmarks import all_text, run_all

    found = run_all(configured(context, EvaluationConfig, models=_opened(context)), out)
    emit(found, as_json, all_text(found))


@verb(evaluate)
def mteb(
    context: typer.Context,
    models: Models,
    out: Out,
    tasks: Names = None,
    data: Path | None = None,
    pooling: Annotated[str, typer.Option(metavar="NAME,NAME")] = "mean",
    length: Annotated[int, typer.Option(min=8)] = 512,
    limit: Annotated[int | None, typer.Option(min=20)] = None,
    contrastive: bool = False,
    seeds: Annotated[int, typer.Option(min=1)] = 1,
    steps: Annotated[int, typer.Option(min=1)] = 250,
    corpus: str | None = None,
    field: Field = "text",
    untrained: Untrained = False,
    minutes: Minutes = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Measure by MTEB what vectors of texts are good for (similarity, classes, clusters, retrieval), by its protocol.

    OUT holds records.parquet, a page, each result in mteb's own format under runs/, and models after SimCSE under
    models/.

    Args:
        tasks: mteb's tasks or benchmarks, from the Hub, or local ones of --data (STS12-local ... STS16-local,
            STSBenchmark-local, SICK-R-local, Banking77-local, TwentyNewsgroups-local, Cranfield-local, MR-local,
            CR-local, SUBJ-local, MPQA-local), with commas. [default: MTEB(eng, v2); with --data all local ones]
        data: Folder of the local tasks' files (docs/evaluation/mteb.md), plain or packed.
        pooling: How tokens become one vector: mean, cls; of two streams also semantic, position. With commas.
        length: Most tokens of a text, at most as many as the model reads; longer ones are cut.
        limit: Most pairs, test rows or queries of a local task, evenly over all. [default: all]
        contrastive: Also each model after some minutes of unsupervised SimCSE: NAME+simcse.
        seeds: Trainings by SimCSE of each model; all else here has no chance in it.
        steps: Steps of SimCSE, of 64 sentences each.
        corpus: Text for SimCSE, as for `study`, or a folder of windows (the corpus/ of a run or study), whose training
            part is read. [default: the windows of the model's own run, else a part of python-docs]
    """
    from ..evaluation.mteb import MTEB

    _run(context, MTEB, pooling=_names(pooling))
