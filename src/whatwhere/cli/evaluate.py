"""Verbs that ask what a model is good for: evaluate glue, squad, linguistic, holmes, length, mteb, all."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..evaluation.evaluation_keys import (
    AllKeys,
    EvaluationKeys,
    GlueKeys,
    HolmesKeys,
    LinguisticKeys,
    MtebKeys,
    SquadKeys,
)
from ..length.length_keys import LengthKeys
from .options import Json, On, app, check_early, check_model, configured, emit, verb

evaluate = typer.Typer(
    help="What encoders are good for: tasks of GLUE, answers in a text, grammar, vectors of texts.",
)
app.add_typer(evaluate, name="evaluate", short_help="Measure what encoders are good for")

Models = Annotated[list[str], typer.Argument(metavar="MODEL...")]
Out = Annotated[Path, typer.Option(help="Folder of results: records.parquet and a page; finished trials there stay.")]


def _check_early(context: typer.Context, keys: type[EvaluationKeys]) -> None:
    """Refuse a wrong value, or a model, scheme or text whose path does not exist, before torch is loaded."""
    check_early(context, keys)
    for model in context.params["models"]:
        check_model(model, context.params["scheme"])


def _models_of_command(context: typer.Context, seeds: bool = False) -> list[str]:
    """Return the models of the command, a study's models in its place; a model that does not open is refused first.

    Args:
        seeds: True takes all seeds of a study, False the first of each model.
    """
    from ..corpus.tokenizer import check_tokenizer
    from ..evaluation.benchmark import of_studies
    from ..models.open import open_model
    from ..training.scheme_settings import use_scheme

    use_scheme(context.params["scheme"])
    models = of_studies(context.params["models"], seeds)
    for model in models:
        check_tokenizer(open_model(model).tokenizer, model)
    return models


def _run(context: typer.Context, family: Any, seeds: bool = False) -> None:
    """Run a family of tasks for several models, with the options of the verb as settings."""
    from ..run.cluster import connect
    from ..study.evaluation_run import evaluation_text, run_evaluation

    config = configured(context, family.config, models=_models_of_command(context, seeds))
    with connect(context.params["on"], context.params["out"]) as cluster:
        result = run_evaluation(family, config, context.params["out"], cluster=cluster)
    emit(result, context.params["as_json"], evaluation_text(family, result))


@verb(
    evaluate,
    options={GlueKeys: "tasks data recipe rates seeds length limit checkpoints untrained minutes scheme"},
)
def glue(context: typer.Context, models: Models, out: Out, *, on: On = None, as_json: Json = False) -> None:
    """Fine-tune encoders on GLUE: scores with seeds, chosen on one half of the development rows and judged on the
    other.

    OUT holds records.parquet, a page, and every fine-tuning with its evaluations and predictions under runs/.
    """
    _check_early(context, GlueKeys)
    from ..evaluation.glue import GLUE

    _run(context, GLUE)


@verb(
    evaluate,
    options={
        SquadKeys: "tasks data recipe rates seeds length stride limit train_on_dev checkpoints untrained minutes scheme"
    },
)
def squad(context: typer.Context, models: Models, out: Out, *, on: On = None, as_json: Json = False) -> None:
    """Fine-tune encoders to answer questions by a span of a paragraph: exact match and F1 with seeds, chosen on one
    half of the development questions and judged on the other.

    OUT holds records.parquet, a page, and every fine-tuning with its evaluations and answers under runs/.
    """
    _check_early(context, SquadKeys)
    from ..evaluation.squad import SQUAD

    _run(context, SQUAD)


@verb(
    evaluate,
    options={LinguisticKeys: "tasks data seeds layers pooling code limit pairs untrained minutes scheme"},
)
def linguistic(context: typer.Context, models: Models, out: Out, *, on: On = None, as_json: Json = False) -> None:
    """Measure grammar: is the good sentence of a pair the likelier one (BLiMP), and what do linear probes read of trees
    and paragraphs off the hidden states, of each stream also alone?

    OUT holds records.parquet (by task; of BLiMP also by paradigm and field) and a page.
    """
    _check_early(context, LinguisticKeys)
    from ..evaluation.linguistic import LINGUISTIC

    _run(context, LINGUISTIC)


@verb(
    evaluate,
    options={HolmesKeys: "data tasks table seeds layers pooling control limit untrained minutes scheme"},
)
def holmes(context: typer.Context, models: Models, out: Out, *, on: On = None, as_json: Json = False) -> None:
    """Probe hidden states by Holmes and Flash-Holmes: some two hundred data sets, means over phenomena and fields.

    OUT holds records.parquet (by data set, phenomenon and field) and a page.
    """
    _check_early(context, HolmesKeys)
    from ..evaluation.holmes import HOLMES

    _run(context, HOLMES)


@verb(
    evaluate,
    options={LengthKeys: "to corpus field document documents methods points windows adapt steps minutes scheme"},
)
def length(context: typer.Context, models: Models, out: Out, *, on: On = None, as_json: Json = False) -> None:
    """Read texts longer than in training: loss by position, passages that come again, probes, drift of the
    states, by each way to continue a position table or to slow rotations down, and in pieces as long as trained.

    OUT holds records.parquet, a page, the losses of every token under runs/, and adapted models under models/. Of a
    study all seeds are read. What a model does not have, such as a way or a window, is left out, and said. A call on a
    folder that is there goes on with all its models, ways, windows and parts to adapt beside those named now.
    """
    _check_early(context, LengthKeys)
    from ..length.longer_texts import LONG_TEXTS

    _run(context, LONG_TEXTS, seeds=True)


@verb(evaluate, "all", options={AllKeys: "data untrained minutes scheme"})
def everything(context: typer.Context, models: Models, out: Out, *, on: On = None, as_json: Json = False) -> None:
    """Run every evaluation whose data are at hand, the cheapest first, within a budget; one page of all.

    OUT holds records.parquet and a page of all, and a folder for each family of tasks.
    """
    _check_early(context, AllKeys)
    from ..evaluation.benchmark import EvaluationConfig
    from ..run.cluster import connect
    from ..study.evaluation_run import all_text, run_all

    with connect(on, out) as cluster:
        result = run_all(
            configured(context, EvaluationConfig, models=_models_of_command(context)), out, cluster=cluster
        )
    emit(result, as_json, all_text(result))


@verb(
    evaluate,
    options={MtebKeys: "tasks data pooling length limit contrastive seeds steps corpus field untrained minutes scheme"},
)
def mteb(context: typer.Context, models: Models, out: Out, *, on: On = None, as_json: Json = False) -> None:
    """Measure by MTEB what vectors of texts are good for (similarity, classes, clusters, retrieval), by its protocol.

    OUT holds records.parquet, a page, each result in mteb's own format under runs/, and models after SimCSE under
    models/.
    """
    _check_early(context, MtebKeys)
    from ..evaluation.mteb import MTEB

    _run(context, MTEB)
