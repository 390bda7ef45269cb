"""Verbs that train and what goes before and after it: study, windows, pretrain, finetune, extrapolate."""

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..length.length_keys import CopyConfig
from ..records.terms import unequal
from ..run.files import read_json, read_object
from ..run.names import SUMMARY
from ..run.status import has_weights, is_finished
from ..study.study_keys import StudyKeys
from ..training.training_keys import CorpusKeys, FinetuneKeys, PretrainKeys, SchemeKeys
from .options import (
    ConfigFile,
    Json,
    On,
    Setting,
    check_early,
    check_model,
    configured,
    emit,
    keys_of_command,
    next_line,
    report_line,
    verb,
)

if TYPE_CHECKING:
    from ..training.scheme_settings import ConfigWithScheme


def _settings_file(
    context: typer.Context, kind: type["ConfigWithScheme"], out: Path, name: str, config: Path | None
) -> Path | None:
    """Return the YAML file whose settings hold where the command gives none, or None.

    It is `config`, or the settings of the run in `out` where the command gives no key that binds.

    Raises:
        ValueError: the settings of the run are damaged, or of another version.
    """
    from ..run.folder import RunFolder

    if config is not None or not (out / name).is_file():
        return config
    keys = {setting.partition("=")[0].partition(".")[0] for setting in context.params["settings"] or ()}
    keys |= set(keys_of_command(context, kind))
    arguments = {param.name for param in context.command.params if param.param_type_name == "argument"}
    if keys - {*kind.CHANGEABLE_KEYS, *kind.GROWING_KEYS, "scheme"} - arguments:
        return None
    has_scheme = context.params.get("scheme") is not None or "scheme" in keys
    if not has_scheme:  # else that file is run first, and compared with the run's
        kind.load_verified(RunFolder.at(out), name)
    return out / name


def _finished(out: Path) -> str:
    """Return the sentence on a training that an earlier call has finished, "" for any other."""
    return " It was finished before; nothing was trained." if is_finished(out) else ""


def _ask(model: Path, scheme: str | None) -> str:
    """Return the command that asks a masked-language model a first question."""
    token = read_json(model / "tokenizer_config.json").get("mask_token")
    text = f"This is the first {token if isinstance(token, str) else '[MASK]'} of the list."
    own_scheme = ["--scheme", scheme] if scheme else []
    return next_line("predict", model, "--text", text, *own_scheme)


def _best(models: Iterable[Path]) -> Path:
    """Return the trained model with the lowest validation loss; the first if no model has one."""
    losses = {model: read_object(model / SUMMARY).get("validation_loss") for model in models}
    known: dict[Path, float] = {model: math.inf if loss is None else loss for model, loss in losses.items()}
    return min(known, key=lambda model: known[model])


@verb(options={StudyKeys: "corpus field length models size scheme match minutes steps seeds tokenizer"})
def study(
    context: typer.Context,
    out: Path = Path("runs/study"),
    *,
    on: On = None,
    config: ConfigFile = None,
    settings: Setting = None,
    as_json: Json = False,
) -> None:
    """Train several encoders on the same batches, one a core at a time, look inside them, write one report
    (OUT/report.html).

    Args:
        out: Folder of the study; an unfinished one there is continued.
    """
    check_early(context, StudyKeys, config, settings)
    from ..run.names import STUDY_SETTINGS
    from ..study.study import run_study
    from ..study.study_settings import StudyConfig

    file = _settings_file(context, StudyConfig, out, STUDY_SETTINGS, config)
    resolved = configured(context, StudyConfig, file, settings)
    report = run_study(resolved, out, on=on)
    models = sorted(path.parent for path in out.glob(f"models/*/seed-*/{SUMMARY}") if has_weights(path.parent))
    difference = unequal(read_object(out / "study.json", "models")["models"])
    question = _ask(_best(models), resolved.scheme) if models else ""
    text = report_line(report) + (f" {difference}" if difference else "") + question
    emit({"out": str(out), "report": str(report), "terms": difference}, as_json, text)


@verb(options={CorpusKeys: "corpus field length tokenizer"})
def windows(
    context: typer.Context,
    out: Path,
    *,
    on: On = None,
    config: ConfigFile = None,
    settings: Setting = None,
    as_json: Json = False,
) -> None:
    """Tokenise a text into windows, as `pretrain` and `study` do first: in OUT/corpus, where these then find them.

    --set join=run-on, none or isolate says how documents fill windows. Where they do not run on, --set pieces=first
    keeps the beginning of each alone and pieces=all cuts long ones into several windows; pieces=auto, the default,
    takes the first pieces of join=none if they are 20,000 windows or more, else all.

    Args:
        out: Folder of the run to come.
        config: YAML file; of a study or a training the keys of its text are read.
    """
    if config is None:  # else a study's or a training's, with keys of its own
        check_early(context, CorpusKeys, settings=settings)
    from ..corpus.build import describe_pieces
    from ..run.cluster import connect
    from ..run.folder import RunFolder
    from ..training.corpus_settings import CorpusConfig, prepare_windows

    if (kind := RunFolder.at(out).kind) and not (out / "corpus").is_dir():
        raise ValueError(f"{out} holds a {kind} run, and windows are made before a run begins. Give another --out.")
    if kind is None and out.is_dir():  # else the windows would stand where no study can begin
        RunFolder.at(out).check_no_foreign_files("study")
    merged = CorpusConfig.merge_values(config, settings or (), **keys_of_command(context, CorpusConfig))
    keys = CorpusConfig.model_fields
    corpus = CorpusConfig.parse({key: merged[key] for key in merged if config is None or key in keys})
    with connect(on, out / "corpus") as cluster:
        built = prepare_windows(corpus, out / "corpus", cluster=cluster)
    facts = {key: built.facts[key] for key in ("documents", "characters", "tokens", "windows", "join", "pieces")}
    facts["from_start"] = built["train"].from_start()
    counted = f"{facts['windows']['train']:,} windows to train on, {facts['windows']['held_out']:,} held out"
    emit({"out": str(out), **facts}, as_json, f"{out}: {counted}; {describe_pieces(built)}.")


@verb(options={PretrainKeys: "preset size scheme corpus field length tokenizer minutes steps"})
def pretrain(
    context: typer.Context,
    out: Path,
    *,
    config: ConfigFile = None,
    settings: Setting = None,
    as_json: Json = False,
) -> None:
    """Pretrain one encoder by masked-language modelling; several processes: torchrun --nproc-per-node N -m whatwhere
    pretrain ...

    Args:
        out: Folder of the run; the finished model is a transformers folder there.
    """
    check_early(context, PretrainKeys, config, settings)
    from ..training.pretrain import SETTINGS_FILE
    from ..training.pretrain import pretrain as run_pretraining
    from ..training.pretrain_settings import PretrainConfig

    file = _settings_file(context, PretrainConfig, out, SETTINGS_FILE, config)
    before = _finished(out)
    resolved = configured(context, PretrainConfig, file, settings)
    summary = run_pretraining(resolved, out)
    loss = summary["validation_loss"]
    measured = f"validation loss {loss:.3f} nats" if loss is not None else "no held-out text to validate on"
    if int(os.environ.get("RANK", "0")) == 0:
        text = f"{out}: {summary['tokens']:,} tokens in {summary['seconds']:,.0f} s, {measured}.{before}"
        emit({"out": str(out), **summary}, as_json, text + _ask(out, resolved.scheme))


@verb(options={FinetuneKeys: "data dev text text_pair length label from_scratch epochs steps scheme"})
def finetune(
    context: typer.Context,
    start: Annotated[str, typer.Argument()],
    out: Path,
    *,
    config: ConfigFile = None,
    settings: Setting = None,
    as_json: Json = False,
) -> None:
    """Fine-tune an encoder to classify texts or pairs of texts; keeps its position table at steps 0, 50, 100, 200, 500,
    ... (GEOM 6.5).

    OUT/records.parquet holds losses, accuracy and, where there is a position table, its separation at every checkpoint;
    OUT/dev-predictions.csv what the classifier says of each dev row, OUT/dev-confusion.csv which classes it mixes up.
    The rate is 2e-5 × 768 / width of pretrained weights (2e-4 from scratch); encoders of few tokens learn more by five
    times that: --set learning_rate=.

    Args:
        out: Folder of the run; the finished classifier is a transformers folder there.
    """
    check_early(context, FinetuneKeys, config, settings)
    from ..corpus.text_files import some_names
    from ..models.card import rows_cut
    from ..study.finetune_run import run_finetuning
    from ..training.finetune import SETTINGS_FILE, FinetuneConfig

    file = _settings_file(context, FinetuneConfig, out, SETTINGS_FILE, config)
    before = _finished(out)
    resolved = configured(context, FinetuneConfig, file, settings)
    summary = run_finetuning(resolved, out)
    if int(os.environ.get("RANK", "0")) == 0:
        low = summary["accuracy_low"]
        high = summary["accuracy_high"]
        done = f"{summary['steps']:,} steps in {summary['seconds']:,.0f} s"
        measured = (
            f"accuracy {summary['validation_accuracy']:.3f} [{low:.3f}, {high:.3f}] on {summary['dev_rows']:,} rows "
            f"({summary['commonest']:.3f} by naming the commonest class alone)"
        )
        classes = (
            f"{len(summary['labels']):,} classes in the column {resolved.label!r}: {some_names(summary['labels'])}"
        )
        cut = rows_cut(summary, resolved.length)
        text = f"{out}: {done}, {measured}. {classes}.{f' Of the rows, {cut}.' if cut else ''}{before}"
        second = ["--pair", "Its second text."] if resolved.text_pair else []
        hint = next_line("predict", out, "--text", "A text of your own.", *second)
        emit({"out": str(out), **summary}, as_json, text + hint)


@verb(options={CopyConfig: "length method components points as_written window", SchemeKeys: "scheme"})
def extrapolate(
    context: typer.Context,
    model: Annotated[str, typer.Argument()],
    out: Annotated[Path, typer.Option()],
    *,
    scheme: str | None,
    as_json: Json = False,
) -> None:
    """Make a copy of a model that reads longer texts: its position table goes on (SPLIT notes, equations 2-6, and
    others), or its rotations become slower.

    Args:
        out: Folder of the copy.
    """
    check_model(model, scheme)
    from ..length.extension import extend
    from ..models.model_tables import read_table
    from ..training.scheme_settings import use_scheme

    use_scheme(scheme)
    copy = configured(context, CopyConfig)
    points = None if copy.points is None else read_table(copy.points).numpy()
    facts = extend(
        copy.model,
        out,
        copy.length,
        copy.method,
        components=copy.components,
        points=points,
        as_written=copy.as_written,
        window=copy.window,
    )
    ways = [f"by the method {facts['method']}"] if facts.get("method") else []
    ways += [f"each token looks at {copy.window:,} on each side"] if copy.window else []
    longer = f"{out} reads {copy.length:,} tokens"
    text = facts.get("reason") or f"{longer}, {facts['before']:,} before, {', '.join(ways)}."
    emit(facts, as_json, text)
