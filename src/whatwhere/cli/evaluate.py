"""Verbs that ask what a model is good for: evaluate glue, evaluate linguistic, evaluate mteb."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from .models import check_models
from .options import Field, Json, Scheme, app, configured, emit

evaluate = typer.Typer(
    help="What encoders are good for: tasks of GLUE, grammar, vectors of texts.", no_args_is_help=True
)
app.add_typer(evaluate, name="evaluate")

Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...",
        help="Model folders of ours or of transformers, Hub names, or `reference`; differences are from the first.",
    ),
]
Out = Annotated[Path, typer.Option(help="Folder of results: records.parquet and a page; what is finished there stays.")]
Tasks = Annotated[str | None, typer.Option(help="Tasks, with commas. [default: all]", metavar="NAME,NAME")]
Untrained = Annotated[bool, typer.Option("--untrained", help="Also each model with weights drawn anew, as a control.")]
Minutes = Annotated[
    float | None, typer.Option(help="Begin nothing that would end later; the same command goes on.", min=0)
]


def _names(words: str) -> list[str]:
    """Names with commas between them; one in brackets is part of a name: MTEB(eng, v2)."""
    return [name.strip() for name in re.split(r",(?![^()]*\))", words)]


def _run(context: typer.Context, family: Any, models: list[str], tasks: str | None = None, **named: Any) -> None:
    """A family of tasks for several models: its options are its settings by their names."""
    from ..study.evaluate import evaluation_text, run_evaluation

    check_models(models, context.params["scheme"])
    named |= {"tasks": _names(tasks)} if tasks else {}
    found = run_evaluation(
        family, configured(context, family.config, None, None, models=models, **named), context.params["out"]
    )
    emit(found, context.params["as_json"], evaluation_text(family, found))


@evaluate.command()
def glue(
    context: typer.Context,
    models: Models,
    out: Out,
    tasks: Annotated[
        str | None, typer.Option(help="Tasks, with commas. [default: all but wnli]", metavar="NAME,NAME")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of GLUE's own release (CoLA/train.tsv ..., also packed). [default: the Hub]"),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            help="Protocol: short (one setting, 5 epochs, 3 seeds), tupe (4 settings, 5 seeds; TUPE Table 1), dstg (18 "
            "settings; DSTG C.1). Rates are of models 768 wide, narrower ones take them in inverse proportion."
        ),
    ] = "short",
    seeds: Annotated[int | None, typer.Option(help="Seeds. [default: the recipe's]", min=1)] = None,
    length: Annotated[int, typer.Option(help="Most tokens of a row; longer ones are cut.", min=8)] = 128,
    limit: Annotated[int | None, typer.Option(help="Most training rows. [default: all]", min=20)] = None,
    untrained: Untrained = False,
    minutes: Minutes = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Fine-tune encoders on GLUE: scores with seeds, chosen on one half of the development rows and judged on the
    other.

    OUT holds records.parquet, a page, and every fine-tuning with its evaluations and predictions under runs/.
    """
    from ..evaluation.glue import GLUE

    _run(context, GLUE, models, tasks)


@evaluate.command()
def linguistic(
    context: typer.Context,
    models: Models,
    data: Annotated[Path, typer.Option(help="Folder of BLiMP's JSON lines, or that holds blimp/; also packed.")],
    out: Out,
    limit: Annotated[int | None, typer.Option(help="Most pairs of a paradigm. [default: all]", min=1)] = None,
    untrained: Untrained = False,
    minutes: Minutes = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """BLiMP, 67 paradigms of grammar: is the good sentence of a pair the likelier one? By pseudo-log-likelihood, each
    token masked alone.

    OUT holds records.parquet (by paradigm, field and in all) and a page.
    """
    from ..evaluation.blimp import BLIMP

    _run(context, BLIMP, models)


@evaluate.command()
def mteb(
    context: typer.Context,
    models: Models,
    out: Out,
    tasks: Annotated[
        str | None,
        typer.Option(
            help="mteb's tasks or benchmarks, from the Hub, or local ones of --data (STS12-local ... STS16-local, "
            "STSBenchmark-local, SICK-R-local, Banking77-local, TwentyNewsgroups-local, Cranfield-local, MR-local, "
            "CR-local, SUBJ-local, MPQA-local), with commas. [default: MTEB(eng, v2); with --data all local ones]",
            metavar="NAME,NAME",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of the local tasks' files (docs/evaluation.md), plain or packed.")
    ] = None,
    pooling: Annotated[
        str,
        typer.Option(
            help="How tokens become one vector: mean, cls; of two streams also semantic, position. With commas.",
            metavar="NAME,NAME",
        ),
    ] = "mean",
    length: Annotated[
        int, typer.Option(help="Most tokens of a text, at most as many as the model reads; longer ones are cut.", min=8)
    ] = 512,
    limit: Annotated[
        int | None,
        typer.Option(help="Most pairs, test rows or queries of a local task, evenly over all. [default: all]", min=20),
    ] = None,
    contrastive: Annotated[
        bool,
        typer.Option("--contrastive", help="Also each model after some minutes of unsupervised SimCSE: NAME+simcse."),
    ] = False,
    steps: Annotated[int, typer.Option(help="Steps of SimCSE, of 64 sentences each.", min=1)] = 250,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="Text for SimCSE, as for `study`, or a folder of windows (the corpus/ of a run or study), whose "
            "training part is read. [default: the windows of the model's own run, else a part of python-docs]"
        ),
    ] = None,
    field: Field = "text",
    untrained: Untrained = False,
    minutes: Minutes = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """MTEB: what vectors of texts are good for (similarity, classes, clusters, retrieval), by mteb's own protocol.

    OUT holds records.parquet, a page, each result in mteb's own format under runs/, and models after SimCSE under
    models/.
    """
    from ..evaluation.mteb import MTEB

    _run(context, MTEB, models, tasks, pooling=_names(pooling))
