"""The package starts light, and one import of it is enough for transformers to open its folders."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import environment

import whatwhere as ww
from whatwhere.models.preset_table import check_preset, encoder_fields
from whatwhere.study.study_settings import GeometryConfig, StudyConfig
from whatwhere.training.corpus_settings import CorpusConfig
from whatwhere.training.finetune import FinetuneConfig
from whatwhere.training.pretrain_settings import PretrainConfig


def printed(code: str, *arguments: str) -> list[str]:
    """What a new process prints, line by line."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


SEVERAL_COMMANDS = """
import contextlib, io, json, sys
heavy = ("torch", "transformers", "accelerate", "datasets", "sklearn")
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["whatwhere", *arguments]
    try:
        from whatwhere.cli import main
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main()
    except SystemExit as end:
        print(json.dumps([arguments[0], end.code, [name for name in heavy if name in sys.modules]]))
"""


def test_light_commands_load_neither_torch_nor_transformers():
    """Commands that need neither a model nor the rows of analyses load neither torch nor transformers."""
    helps = [
        [*words.split(), "--help"] for words in ("pretrain", "study", "geometry", "evaluate glue", "evaluate length")
    ]
    commands = [["--help"], ["reprot"], *helps, ["presets"]]
    lines = [json.loads(line) for line in printed(SEVERAL_COMMANDS, json.dumps(commands))]
    assert lines == [[words[0], 2 if words == ["reprot"] else 0, []] for words in commands]


# Mistakes that the keys, the stored presets or a look at the disk show, by the beginning of the line that refuses them.
MISTAKES = {
    "pretrain --out o --preset dsgt": "Unknown preset 'dsgt'. Did you mean dstg?",
    "pretrain --out o --size tny": "Unknown size 'tny'. Did you mean tiny?",
    "pretrain --out o --set blub=3": "Unknown configuration key 'blub'. Keys: scheme,",
    "pretrain --out o --set dropout=0.1": "Unknown configuration key 'dropout'. Did you mean model.dropout?",
    "pretrain --out o --steps 2 --set steps=": "--set steps= has no value. Give one, or steps=null for none.",
    "pretrain --out o --set batch_size=0": "batch_size must be at least 1; got 0.",
    "pretrain --out o --steps 3 --minutes 1": "Give one budget of steps, tokens, minutes; got steps and minutes.",
    "pretrain --out o --config no.yaml": "There is no file no.yaml.",
    "pretrain --out o --corpus no.txt": "No corpus 'no.txt': no such file or folder.",
    "pretrain --out o --corpus pythn-docs": "No corpus 'pythn-docs': no such file or folder. Did you mean python-docs?",
    "pretrain --out o --models dstg": "No such option: --models. It belongs to whatwhere study. See whatwhere pretrain",
    "pretrain --out o --presets dstg": "No such option: --presets. Did you mean --preset",
    "pretrain --out o --seed 1": "No such option: --seed. It is a key of the configuration: --set seed=. See",
    "predict reference --text": "Option '--text' requires an argument. See whatwhere predict --help.",
    "pretrain --out o --scheme no.py": "The scheme no.py is no Python file that exists.",
    "windows --out o --corpus no.txt": "No corpus 'no.txt': no such file or folder.",
    "study --out o --models dstg,dsgt": "Unknown preset 'dsgt'. Did you mean dstg?",
    "study --out o --set batch_size=8": "batch_size is a key of the trainings. Give training.batch_size,",
    "study --out o --set seed=1": "seed of a training is chosen by the study. Give seeds, their number.",
    "finetune ./no --out o": "No model at ./no: it is no folder.",
    "finetune reference --out o --data no.tsv": "No labelled table 'no.tsv': no such file.",
    "geometry --out o --corpus a=no.txt": "No corpus 'no.txt': no such file or folder.",
    "predict reference --file no.txt": "No file no.txt.",
    "predict ./no --text a": "No model at ./no: it is no folder.",
    "predict reference --text a --what vectros": "Predictions are labels, words or vectors; got 'vectros'.",
    "export reference --out o --what vec": "Predictions are labels, words or vectors; got 'vec'.",
    "presets --size tny": "Unknown size 'tny'. Did you mean tiny? Sizes: tiny, small, paper.",
    "export reference --out o --format onx": "--format must be onnx; got 'onx'.",
    "attention reference --text a": "Missing option '--out'. File of the page, for example",
    "attention reference --out o.html --file no.txt": "no.txt cannot be read (No such file or directory).",
    "heads ./no": "No model at ./no: it is no folder.",
    "probe reference --corpus no.txt": "No corpus 'no.txt': no such file or folder.",
    "evaluate glue ./no --out o": "No model at ./no: it is no folder.",
    "evaluate glue reference --out o --tasks rte,nli": "--tasks: no task 'nli'. Did you mean wnli or qnli? Known: rte,",
    "evaluate squad reference --out o --recipe tupe": "--recipe: no recipe 'tupe'. Known: dstg, short.",
    "evaluate mteb reference --out o --pooling max": "--pooling: no pooling 'max'. Known: mean, cls, semantic,",
    "evaluate length reference --out o --methods poly": "--methods: no method 'poly'. Known: as-it-is, formula,",
    "evaluate all reference --out o --data no": "--data: there is no such folder. Give the one that holds the data;",
    "evaluate length reference --out o --corpus no.txt": "No corpus 'no.txt': no such file or folder.",
    "extrapolate ./no --out o --length 300": "No model at ./no: it is no folder.",
    "explain dsgt": "Unknown preset 'dsgt'. Did you mean dstg?",
}
MISTAKES_IN_ONE_PROCESS = """
import contextlib, io, json, sys
from whatwhere.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["whatwhere", *words.split()]
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            main()
    except SystemExit as end:
        print(json.dumps([end.code, errors.getvalue(), "torch" in sys.modules or "transformers" in sys.modules]))
"""


def test_plain_mistakes_are_refused_before_torch(tmp_path, monkeypatch):
    """A mistake that needs no model to be seen is refused in one line, and torch is not loaded for it."""
    monkeypatch.chdir(tmp_path)
    lines = map(json.loads, printed(MISTAKES_IN_ONE_PROCESS, json.dumps(list(MISTAKES))))
    for (words, beginning), (status, line, loaded) in zip(MISTAKES.items(), lines, strict=True):
        assert (status, loaded) == (2, False), words
        assert line.startswith(f"whatwhere: {beginning}") and line.count("\n") == 1, words
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "size"), [("dsgt", "tiny"), ("nothing like it", "tiny"), ("ap", "tny")])
def test_early_and_late_refusals_of_presets_agree(name, size):
    """The stored table and the encoder refuse a preset in the same words."""
    with pytest.raises(ValueError) as early:
        check_preset(name, size)
    with pytest.raises(ValueError) as late:
        ww.preset(name, size)
    assert str(early.value) == str(late.value)


def test_encoder_fields_are_those_of_its_class():
    assert encoder_fields() == list(ww.EncoderConfig.__annotations__)


@pytest.mark.parametrize("kind", [PretrainConfig, StudyConfig, FinetuneConfig, GeometryConfig, CorpusConfig])
def test_settings_have_the_keys_that_are_checked_early(kind):
    """A class that checks more than its keys has no key of its own, which the early check would refuse."""
    (keys,) = [base for base in kind.__mro__ if base.__name__ == kind.__name__.replace("Config", "Keys")]
    assert set(kind.model_fields) == set(keys.model_fields)


LEVEL_OF_THE_HUB = """
import contextlib, io, sys
from whatwhere.cli import main
sys.argv = ["whatwhere", "presets"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
from huggingface_hub.utils import logging
print(logging.get_verbosity() == logging.ERROR)
"""


def test_hub_retries_are_not_printed():
    """The command line does not tell of every try to reach the hub."""
    assert printed(LEVEL_OF_THE_HUB) == ["True"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("saved") / "model"
    model = ww.EncoderForMaskedLM(ww.preset("dstg", "tiny", vocab_size=64, num_hidden_layers=1))
    model.save_pretrained(path, code=False)
    return str(path)


# tests/test_pages.py opens a folder where transformers was imported first.
FIRST_LINES = {
    "whatwhere first": "import importlib.util, whatwhere\nassert "
    "importlib.util.find_spec('transformers')",  # libraries ask so
    "a part of it first": "from whatwhere.encoder import Encoder",
    "in the middle of transformers": "import whatwhere, transformers.modeling_utils",
}


OPEN_AFTER_EACH = """
import json, os, sys
import torch  # once, as it is the larger half of what each of the processes below needs
for first in json.loads(sys.argv[2]):
    process = os.fork()
    if process:
        assert os.waitpid(process, 0)[1] == 0, first
        continue
    exec(first)
    from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM
    import whatwhere
    for auto in (AutoConfig, AutoModel, AutoModelForMaskedLM):
        opened = type(auto.from_pretrained(sys.argv[1]))
        print(opened.__name__, opened is getattr(whatwhere, opened.__name__), flush=True)
    os._exit(0)
"""


@pytest.mark.long
def test_auto_classes_open_a_folder_whatever_is_imported_first(folder):
    lines = printed(OPEN_AFTER_EACH, folder, json.dumps(list(FIRST_LINES.values())))
    assert lines == ["EncoderConfig True", "Encoder True", "EncoderForMaskedLM True"] * len(FIRST_LINES)


def test_every_public_name_is_there_and_no_other():
    assert set(dir(ww)) == set(ww.__all__) and all(getattr(ww, name) is not None for name in ww.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Encodre'"):
        getattr(ww, "Encodre")  # noqa: B009


SCHEME_TWICE = """
import sys
from whatwhere.encoder.registry import is_loaded, load_scheme
from whatwhere.training.scheme_settings import use_scheme
load_scheme(sys.argv[1])
use_scheme(sys.argv[2])
text = open(sys.argv[1], encoding="utf-8").read()
print(is_loaded(text), is_loaded(text + "#"))
"""


@pytest.mark.long
def test_a_scheme_that_python_loaded_may_be_given(tmp_path):
    """What `load_scheme` ran was unknown to `--scheme`, which then refused a copy of it as a name that is taken."""
    example = Path(__file__).parents[1] / "examples/kerple.py"
    (tmp_path / "copy.py").write_text(example.read_text("utf-8"))
    assert printed(SCHEME_TWICE, str(example), str(tmp_path / "copy.py")) == ["True False"]
