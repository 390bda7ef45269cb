"""Verbs that ask what a model is good for: evaluate glue, evaluate linguistic, evaluate holmes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .models import check_models
from .options import Json, Scheme, app, configured, emit

evaluate = typer.Typer(help="What encoders are good for: tasks of GLUE, grammar.", no_args_is_help=True)
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


def _run(context: typer.Context, family: Any, models: list[str], tasks: str | None = None) -> None:
    """A family of tasks for several models: its options are its settings by their names."""
    from ..study.evaluate import evaluation_text, run_evaluation

    check_models(models, context.params["scheme"])
    named = {"tasks": [name.strip() for name in tasks.split(",")]} if tasks else {}
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
    data: Annotated[
        Path, typer.Option(help="Folder that holds blimp/, ud-ewt/, wikipedia-en/, or one of these; also packed.")
    ],
    out: Out,
    tasks: Annotated[
        str | None, typer.Option(help="Tasks, with commas. [default: those whose files are there]", metavar="NAME,NAME")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of each probe.", min=1)] = 5,
    layers: Annotated[str, typer.Option(help="Hidden states that probes read: last or all.")] = "last",
    code: Annotated[
        bool, typer.Option("--code", help="Also the online code of the labels: how easily is it read?")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(help="Most rows of training and test, most pairs of a paradigm. [default: 10,000, all]", min=1),
    ] = None,
    untrained: Untrained = False,
    minutes: Minutes = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Grammar: is the good sentence of a pair the likelier one (BLiMP), and what do linear probes read of trees and
    paragraphs off the hidden states, of each stream also alone?

    OUT holds records.parquet (by task; of BLiMP also by paradigm and field) and a page.
    """
    from ..evaluation.linguistic import LINGUISTIC

    _run(context, LINGUISTIC, models, tasks)


@evaluate.command()
def holmes(
    context: typer.Context,
    models: Models,
    data: Annotated[
        Path, typer.Option(help="Folder of Holmes' or Flash-Holmes' data sets, a folder with samples.csv each.")
    ],
    out: Out,
    tasks: Annotated[
        str | None, typer.Option(help="Data sets, with commas. [default: all of the folder]", metavar="NAME,NAME")
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            help="Published table, which says what a data set is of. [default: leaderboards/ beside the data]"
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of each probe.", min=1)] = 5,
    limit: Annotated[int | None, typer.Option(help="Most rows of a split. [default: all]", min=2)] = None,
    untrained: Untrained = False,
    minutes: Minutes = None,
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """Holmes and Flash-Holmes: linear probes of some two hundred data sets, means over phenomena and fields.

    OUT holds records.parquet (by data set, phenomenon and field) and a page.
    """
    from ..evaluation.holmes import HOLMES

    _run(context, HOLMES, models, tasks)
