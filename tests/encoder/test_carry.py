"""A saved model opens where whatwhere is not installed: one such process opens them all, and gives the same numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from encoder_models import VOCAB
from safetensors.torch import load_file
from transformers.dynamic_module_utils import get_relative_import_files

import whatwhere as ww
from whatwhere.encoder import AUTO_CLASSES, PRESETS, load_scheme
from whatwhere.encoder.carry import ENTRY, carry, make_imports_relative

IDS = torch.tensor([[2, 7, 8, 3, 9, 30, 3], [2, 11, 3, 12, 0, 0, 0]])
MASK = (IDS != 0).long()
HEADS = {auto: name for auto, name in AUTO_CLASSES.items() if auto not in ("AutoConfig", "AutoModel")}
# Every preset with the head it is trained with, the other heads on one preset of each kind, and weights in many files.
CASES = {name: (name, "AutoModelForMaskedLM", "50GB") for name in PRESETS}
CASES |= {f"{name}/{auto}": (name, auto, "50GB") for name in ("dstg", "ap") for auto in HEADS}
CASES |= {"dstg/sharded": ("dstg", "AutoModelForMaskedLM", "20KB")}
CASES |= {name: (name, "AutoModelForMaskedLM", "50GB") for name in ("carried-hill", "table-from-a-file")}

SCHEME = '''"""A bias that falls with the square of the distance."""

from torch import Tensor, nn, zeros

from whatwhere.encoder import EncoderConfig, register_bias, register_preset


@register_bias("carried-hill")
class Hill(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.steepness = nn.Parameter(zeros(config.num_attention_heads))

    def forward(self, distance: Tensor) -> Tensor:
        return -self.steepness.exp() * (distance[..., None] / 10) ** 2


register_preset("carried-hill", base="ap", source="here", relative="carried-hill")
'''

OPEN = """
import sys, json, pathlib
sys.modules["whatwhere"] = None  # an import of it fails, as where it is not installed
import torch, transformers
from safetensors.torch import save_file
transformers.utils.logging.disable_progress_bar()
found = {}
for name, (folder, auto) in json.load(open("cases.json")).items():
    folder = pathlib.Path(folder)
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    body = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
    model = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True).eval()
    ids, mask = torch.tensor(IDS), torch.tensor(MASK)
    rows = (ids[:, None], mask[:, None]) if "MultipleChoice" in auto else (ids, mask)
    with torch.no_grad():
        tensors = {f"{name}|{k}": v.contiguous() for k, v in model(*rows).items()}
        tensors[f"{name}|last_hidden_state"] = body(ids, attention_mask=mask).last_hidden_state
        model.save_pretrained(folder / "again")
        again = getattr(transformers, auto).from_pretrained(folder / "again", trust_remote_code=True).eval()
        tensors |= {f"{name}|again.{k}": v.contiguous() for k, v in again(*rows).items()}
    found |= tensors
    for part in (config, body, model, again):
        assert type(part).__module__.startswith("transformers_modules."), type(part)
save_file(found, "found.safetensors")
"""


def run_without_whatwhere(script: str, folder: Path) -> None:
    """Run Python code offline in a process that cannot import whatwhere, in `folder`."""
    folder.mkdir(exist_ok=True)
    keep = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "HF_MODULES_CACHE")}
    env = keep | {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(folder / "modules"), "HF_HOME": str(folder / "home")}
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]


def build(name: str, auto: str = "AutoModelForMaskedLM", **fields) -> transformers.PreTrainedModel:
    """A tiny model of a preset with random weights everywhere."""
    torch.manual_seed(0)
    model = getattr(ww, AUTO_CLASSES[auto])(
        ww.preset(name, "tiny", vocab_size=VOCAB, num_hidden_layers=2, **fields)
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> tuple[Path, dict[str, transformers.PreTrainedModel], dict[str, torch.Tensor]]:
    """Folder of the saved models, the models, and what the other process computed with each."""
    root = tmp_path_factory.mktemp("carried")
    (root / "hill.py").write_text(SCHEME, encoding="utf-8")
    load_scheme(root / "hill.py")
    (root / "hill.py").unlink()  # what was loaded is carried, not what stands there later
    models = {}
    listed = {}
    for case, (name, auto, shard) in CASES.items():
        if name == "table-from-a-file":
            np.save(root / "table.npy", np.random.default_rng(0).normal(size=(128, 5)))
            models[case] = build("ap", auto, absolute="mds", table_file=str(root / "table.npy"), table_width=5)
            (root / "table.npy").unlink()  # the weights hold it
        else:
            models[case] = build(name, auto)
        folder = root / case.replace("/", "-")
        models[case].save_pretrained(folder, max_shard_size=shard)
        listed[case] = (str(folder), auto)
    (root / "cases.json").write_text(json.dumps(listed), encoding="utf-8")
    run_without_whatwhere(OPEN.replace("IDS", str(IDS.tolist())).replace("MASK", str(MASK.tolist())), root)
    return root, models, load_file(root / "found.safetensors")


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_carried_model_gives_the_same_numbers(case, opened):
    """Model gives the same numbers where whatwhere is not installed."""
    _, models, found = opened
    with torch.no_grad():
        rows = (IDS[:, None], MASK[:, None]) if "MultipleChoice" in case else (IDS, MASK)
        expected = models[case](*rows)
        body = models[case].encoder(IDS, attention_mask=MASK).last_hidden_state
    assert torch.equal(found[f"{case}|last_hidden_state"], body)
    # A score of a choice is a product with one column, whose last bit goes with where its weights lie in memory.
    near = 1e-6 if "MultipleChoice" in case else 0.0
    for key, value in expected.items():
        torch.testing.assert_close(found[f"{case}|{key}"], value, rtol=near, atol=near)
        torch.testing.assert_close(found[f"{case}|again.{key}"], value, rtol=near, atol=near)  # saved again there


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_saving_elsewhere_carries_the_same_code_again(case, opened):
    folder = opened[0] / case.replace("/", "-")
    code = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    assert {path.name: path.read_text(encoding="utf-8") for path in (folder / "again").glob("*.py")} == code
    maps = [json.loads((f / "config.json").read_text(encoding="utf-8"))["auto_map"] for f in (folder, folder / "again")]
    assert maps[0] == maps[1] == {auto: f"{ENTRY}.{name}" for auto, name in AUTO_CLASSES.items()}


@pytest.mark.long
def test_weights_in_many_files_are_in_many_files(opened):
    assert len(list((opened[0] / "dstg-sharded").glob("model-*.safetensors"))) > 3


@pytest.mark.long
@pytest.mark.parametrize("case", ["dstg", "dstg/sharded", "ap/AutoModelForTokenClassification"])
def test_with_whatwhere_no_remote_code_is_needed_nor_run(case, opened):
    root, models, _ = opened
    for folder in (root / case.replace("/", "-"), root / case.replace("/", "-") / "again"):
        for trust in (None, False, True):
            loaded = getattr(transformers, CASES[case][1]).from_pretrained(folder, trust_remote_code=trust)
            assert type(loaded) is type(models[case])
            assert torch.equal(loaded(IDS).logits, models[case](IDS).logits)


def test_every_file_of_the_encoder_is_carried():
    """A file that only `from . import` names stays behind, and a saved model does not open elsewhere."""
    folder = Path(ww.encoder.__file__).parent
    carried = {Path(name).name for name in get_relative_import_files(folder / "__init__.py")}
    assert carried >= {path.name for path in folder.glob("*.py")} - {"__init__.py"}


@pytest.mark.long
def test_only_a_model_of_an_own_scheme_carries_it(opened):
    assert (opened[0] / "carried-hill/own_scheme.py").read_text(encoding="utf-8") == SCHEME.replace(
        "from whatwhere.encoder import EncoderConfig, register_bias, register_preset",
        "from .config import EncoderConfig\nfrom .registry import register_bias\nfrom .registry import register_preset",
    )
    assert not list((opened[0] / "ap").glob("own_*"))


def test_folder_without_code_where_the_caller_wants_none(tmp_path):
    build("ap").save_pretrained(tmp_path / "with")
    ww.EncoderForMaskedLM.from_pretrained(tmp_path / "with").save_pretrained(tmp_path / "without", code=False)
    assert {path.name for path in (tmp_path / "without").iterdir()} == {"config.json", "model.safetensors"}
    assert "auto_map" not in json.loads((tmp_path / "without" / "config.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("ask", [{}, {"use_safetensors": False}])
def test_pickled_weights_are_refused_in_one_line(ask, tmp_path):
    model = build("ap")
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(
        ValueError, match=r"model\.safetensors alone: a pickle \(pytorch_model\.bin\) is never read"
    ) as caught:
        transformers.AutoModelForMaskedLM.from_pretrained(tmp_path, **ask)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="is never read"):
        ww.EncoderForMaskedLM.from_pretrained(tmp_path / "pytorch_model.bin", config=model.config)


def test_a_form_feed_moves_no_import():
    """Lines were counted at form feeds too, and the import was sought in another line."""
    text = '"""One\x0cpage."""\nfrom whatwhere.encoder import EncoderConfig\nx = "\x0c"\n'
    assert make_imports_relative(text) == text.replace("whatwhere.encoder", ".config")


def test_imports_of_a_scheme_become_relative():
    text = '''"""Text: from whatwhere.encoder import nothing."""
import math
from whatwhere.encoder import (  # two
    EncoderConfig,
    Encoder as Body,
)
from whatwhere import preset
def late():
    from whatwhere.encoder.tables import LearnedTable
    return LearnedTable, "é"
'''
    assert (
        make_imports_relative(text)
        == '''"""Text: from whatwhere.encoder import nothing."""
import math
from .config import EncoderConfig
from .model import Encoder as Body
from .presets import preset
def late():
    from .tables import LearnedTable
    return LearnedTable, "é"
'''
    )


@pytest.mark.parametrize(
    "line",
    [
        "import whatwhere as ww",
        "import whatwhere.encoder",
        "from whatwhere import geometry",
        "from whatwhere.geometry import spectrum",
        "from whatwhere.encoder import no_such_name",
        "from whatwhere.encoder import *",
    ],
)
def test_scheme_that_needs_more_than_the_encoder_is_refused(line):
    with pytest.raises(
        ValueError, match="Line 2, `.*`, imports what a saved model does not carry. Write `from whatwhere"
    ) as caught:
        make_imports_relative(f"import math\n{line}\n")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "line", ["x = 1; from whatwhere.encoder import preset", "if True: from whatwhere.encoder import preset"]
)
def test_scheme_imports_stand_on_lines_alone(line):
    """Import of a scheme stands on a line of its own."""
    with pytest.raises(ValueError, match="on a line of its own"):
        make_imports_relative(line)


def test_carried_folder_is_the_encoder_and_the_schemes(tmp_path):
    carry(tmp_path, ["from whatwhere.encoder import preset\n", "import math\n"])
    package = Path(ww.encoder.__file__).parent
    expected = {path.name for path in package.glob("*.py")} - {"__init__.py"}
    assert {path.name for path in tmp_path.iterdir()} == expected | {f"{ENTRY}.py", "own_scheme.py", "own_scheme_2.py"}
    assert (tmp_path / "own_scheme.py").read_text(encoding="utf-8") == "from .presets import preset\n"
    assert "from .own_scheme_2 import " in (tmp_path / f"{ENTRY}.py").read_text(encoding="utf-8")
