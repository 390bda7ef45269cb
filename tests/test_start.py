"""The package starts light, and one import of it is enough for transformers to open its folders."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import environment

import whatwhere as ww


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
