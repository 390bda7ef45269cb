"""Options and keys: an option of a verb is what the field of its configuration says, and nothing beside it."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import typer

import whatwhere.cli
from whatwhere.cli.key_options import Key, names_in
from whatwhere.cli.options import configured
from whatwhere.cli.verbs import program
from whatwhere.corpus.shards import JOINS
from whatwhere.encoder import SIZES
from whatwhere.evaluation import evaluation_keys, glue, holmes, linguistic, mteb, spans, squad, word_states
from whatwhere.evaluation.local_tasks import LOCAL
from whatwhere.geometry import MIN_SUPPORT
from whatwhere.geometry.extrapolation import METHODS
from whatwhere.length import length_keys
from whatwhere.length import longer_texts as benchmark
from whatwhere.models import prediction_kinds
from whatwhere.run.settings import StrictConfig
from whatwhere.study import study_keys
from whatwhere.study.study_settings import GeometryConfig, StudyConfig
from whatwhere.training import training_keys
from whatwhere.training.corpus_settings import CorpusConfig
from whatwhere.training.finetune import FinetuneConfig
from whatwhere.training.pretrain_settings import PretrainConfig

CONFIGURATIONS: dict[str, type[StrictConfig]] = {
    "study": StudyConfig,
    "windows": CorpusConfig,
    "extrapolate": length_keys.CopyConfig,
    "pretrain": PretrainConfig,
    "finetune": FinetuneConfig,
    "spectra": study_keys.SpectraConfig,
    "geometry": GeometryConfig,
    "heads": study_keys.HeadsConfig,
    "glue": glue.GlueConfig,
    "squad": squad.SquadConfig,
    "linguistic": linguistic.LinguisticConfig,
    "holmes": holmes.HolmesConfig,
    "mteb": mteb.MtebConfig,
    "length": benchmark.LengthConfig,
    "all": evaluation_keys.AllKeys,
}
COMMANDS: Any = program()
VERBS = {**COMMANDS.commands, **COMMANDS.commands["evaluate"].commands}


def options() -> list[tuple[str, str]]:
    """Verb and key of every option that is a key of the verb's configuration."""
    return [
        (verb, param.name)
        for verb, kind in CONFIGURATIONS.items()
        for param in VERBS[verb].params
        if param.name in kind.model_fields and param.param_type_name == "option"
    ]


def parsed(verb: str, *words: str) -> dict[str, Any]:
    """Parameters of a verb from the words of a command line, whether or not others are missing."""
    context = VERBS[verb].make_context(verb, list(words), resilient_parsing=True)
    return dict(context.params)


def schema(verb: str, key: str) -> dict[str, Any]:
    """JSON schema of the values of a key, without null."""
    whole = CONFIGURATIONS[verb].model_json_schema()["properties"][key]
    return next((each for each in whole.get("anyOf", ()) if each.get("type") != "null"), whole)


def test_every_verb_with_a_configuration_is_walked():
    takes = {verb: {param.name for param in command.params} for verb, command in VERBS.items()}
    with_settings = {verb for verb, names in takes.items() if names & {"settings", "config"}}
    assert with_settings - {"explain"} <= set(CONFIGURATIONS)  # explain reads what pretrain reads
    assert set(COMMANDS.commands["evaluate"].commands) <= set(CONFIGURATIONS)
    assert len(options()) > 90


@pytest.mark.parametrize(("verb", "key"), options())
def test_an_option_is_what_its_field_says(verb, key):
    field = CONFIGURATIONS[verb].model_fields[key]
    (param,) = (p for p in VERBS[verb].params if p.name == key)
    assert param.help.startswith(str(field.description))
    values = schema(verb, key)
    flag = param.opts[0]
    kind = values.get("type")
    bad = {
        "minimum": values.get("minimum", 0) - 1,
        "exclusiveMinimum": values.get("exclusiveMinimum", 0),
        "maximum": values.get("maximum", 0) + 1,
        "exclusiveMaximum": values.get("exclusiveMaximum", 0),
    }
    refused = [str(value) for bound, value in bad.items() if bound in values]
    refused += ["word"] if kind in ("integer", "number") or "enum" in values else []
    refused += ["1,word"] if kind == "array" and values["items"].get("type") in ("integer", "number") else []
    for value in refused:
        with pytest.raises(typer.BadParameter, match=f"^{flag} (must be|takes numbers|takes whole numbers) "):
            VERBS[verb].make_context(verb, [f"{flag}={value}"])
    for bound, words in (("minimum", "at least"), ("exclusiveMinimum", "above"), ("exclusiveMaximum", "below")):
        if bound in values:
            assert f"{words} {values[bound]}" in param.help
    if "minimum" in values:
        assert parsed(verb, flag, str(values["minimum"]))[key] == values["minimum"]


def test_values_have_the_type_of_their_key():
    assert parsed("study", "--models", "dstg, ap", "--minutes", "2")["models"] == ["dstg", "ap"]
    assert parsed("study", "--minutes", "2")["minutes"] == 2.0
    assert parsed("geometry", "--dims", "16,64", "--corpus", "a,b", "--corpus", "c")["dims"] == [16, 64]
    assert list(parsed("geometry", "--corpus", "a,b", "--corpus", "c")["corpora"]) == ["a,b", "c"]
    switches = [parsed("geometry", *words)["smacof"] for words in ((), ("--smacof",), ("--no-smacof",))]
    assert switches == [None, True, False]
    assert parsed("glue", "reference", "--rates", "1e-4,2e-5")["rates"] == [1e-4, 2e-5]
    assert names_in("MTEB(eng, v2), STS12-local") == ["MTEB(eng, v2)", "STS12-local"]


def test_default_yaml_option_and_set_win_in_this_order(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("length: 16\nbatch_size: 2\nsteps: 3\nlog_every: 5\n")
    command = VERBS["pretrain"]
    context = command.make_context("pretrain", ["--out", "x", "--length", "24", "--steps", "4"])
    config = configured(context, PretrainConfig, file, ["steps=6", "batch_size=8"])
    assert config.corpus == "python-docs"
    assert config.log_every == 5
    assert config.length == 24
    assert (config.steps, config.batch_size) == (6, 8)


def test_help_of_keys_stays_out_of_the_command_line():
    texts = [
        " ".join(node.value.split())
        for path in Path(whatwhere.cli.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    fields = [field for kind in CONFIGURATIONS.values() for field in kind.model_fields.values()]
    for description in {str(field.description) for field in fields}:
        sentence = description.split(". ")[0].rstrip(".")
        assert not [text for text in texts if sentence in text and len(sentence) > 20], sentence


def test_every_key_has_a_description():
    for kind in CONFIGURATIONS.values():
        for key, field in kind.model_fields.items():
            assert re.fullmatch(r"[^\n]*\S[.?]", field.description or ""), (kind.__name__, key)


def test_what_keys_repeat_of_the_code_is_equal():
    """Keys load neither torch nor scipy, so a few constants stand in them a second time."""
    assert study_keys.GeometryKeys.model_fields["min_support"].default == MIN_SUPPORT
    assert evaluation_keys.SquadKeys.model_fields["length"].metadata[0].ge == spans.SHORTEST
    assert length_keys.LengthKeys.model_fields["adapt"].default == [benchmark.PLAIN]
    known = {
        (evaluation_keys.GlueKeys, "tasks"): glue.TASKS,
        (evaluation_keys.GlueKeys, "recipe"): glue.RECIPES,
        (evaluation_keys.SquadKeys, "tasks"): squad.TASKS,
        (evaluation_keys.SquadKeys, "recipe"): squad.RECIPES,
        (evaluation_keys.LinguisticKeys, "tasks"): (linguistic.BLIMP, *linguistic.TASKS),
        (evaluation_keys.LinguisticKeys, "pooling"): word_states.POOLINGS,
        (evaluation_keys.HolmesKeys, "pooling"): word_states.POOLINGS,
        (evaluation_keys.MtebKeys, "pooling"): prediction_kinds.POOLINGS,
        (length_keys.LengthKeys, "methods"): (benchmark.AS_IT_IS, "formula", *METHODS, "ntk", "yarn"),
        (length_keys.LengthKeys, "adapt"): (benchmark.PLAIN, *benchmark.ADAPTED),
    }
    for (kind, key), names in known.items():
        assert list(kind.KNOWN[key][1]) == list(names), (kind, key)
    said = {
        (length_keys.LengthKeys, "methods"): length_keys.CHOICES,
        (length_keys.LengthKeys, "adapt"): (benchmark.PLAIN, *benchmark.ADAPTED),
        (evaluation_keys.SquadKeys, "tasks"): squad.TASKS,
        (training_keys.PretrainKeys, "size"): SIZES,
        (training_keys.CorpusKeys, "join"): JOINS,
        (evaluation_keys.GlueKeys, "recipe"): glue.RECIPES,
        (evaluation_keys.SquadKeys, "recipe"): squad.RECIPES,
    }
    for (kind, key), names in said.items():
        assert not [name for name in names if name not in str(kind.model_fields[key].description)], (kind, key)
    tasks = str(evaluation_keys.MtebKeys.model_fields["tasks"].description)
    assert not [name for name in LOCAL if name not in tasks and not name.startswith("STS1")]


@pytest.mark.parametrize(
    ("kind", "key", "value", "advice"),
    [
        (study_keys.HeadsConfig, "windows", 20, "Give `--windows 20`"),
        (study_keys.HeadsConfig, "windows", 500, "Leave `--windows` out"),
        (study_keys.HeadsConfig, "length", None, "Leave `--length` out"),
        (study_keys.SpectraConfig, "words", True, "Give `--words`"),
        (study_keys.SpectraConfig, "words", False, "Leave `--words` out"),
        (study_keys.GeometryKeys, "intervals", False, "Give `--no-intervals`"),
        (study_keys.GeometryKeys, "intervals", True, "Leave `--no-intervals` out"),
        (study_keys.GeometryKeys, "corpora", ["a=x.txt", "b y"], "Give `--corpus a=x.txt --corpus 'b y'`"),
        (study_keys.GeometryKeys, "dims", [1, 2], "Give `--dims 1,2`"),
    ],
)
def test_advice_on_a_key_can_be_typed(kind, key, value, advice):
    """A message named keys as `words=False`, which the command line does not take."""
    assert Key.of(kind, key).advice(value) == advice
