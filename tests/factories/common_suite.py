"""transformers' own common tests of a model, run on one of ours or on transformers' BERT.

The wheel of transformers has no tests, its source distribution has the common ones. As a program,
`python tests/factories/common_suite.py FOLDER MODEL [PATTERN]` runs the tests of FOLDER/tests whose names hold PATTERN
on MODEL (`bert` or a preset) and prints a line of JSON for each: name, outcome, reason.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tarfile
import traceback
import unittest
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import transformers
from transformers.models.auto import modeling_auto

import whatwhere

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "whatwhere-tests"
HEADS = ("MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")
# As small as transformers' own BERT of these tests.
SMALL = {"vocab_size": 99, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128}
# A value other than its default for each field that every configuration has.
COMMON_FIELDS = {
    "return_dict": False,
    "output_hidden_states": True,
    "output_attentions": True,
    "dtype": "float16",
    "chunk_size_feed_forward": 5,
    "architectures": ["BertModel"],
    "id2label": {0: "label"},
    "label2id": {"label": 0},
    "problem_type": "regression",
}
# Modules that the common tests import and that the distribution lacks: export and generation are left out.
LACKING: dict[str, dict[str, Any]] = {
    "exporters.test_export": {"ExportTesterMixin": type("ExportTesterMixin", (), {})},
    "generation.test_utils": {"GenerationTesterMixin": type("GenerationTesterMixin", (), {})},
    "utils.test_configuration_utils": {"config_common_kwargs": COMMON_FIELDS},
}


def source_folder(version: str = transformers.__version__) -> Path:
    """Return the folder of transformers' source distribution, downloaded once into the cache.

    Raises:
        RuntimeError: pip cannot download it; the message holds pip's last line.
    """
    folder = CACHE / f"transformers-{version}"
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    archive = CACHE / f"transformers-{version}.tar.gz"
    if not archive.is_file():
        wanted = ["--no-binary", "transformers", "--no-deps", f"transformers=={version}"]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(CACHE), *wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise RuntimeError(f"pip cannot download the source of transformers {version}: {lines[-1]}")
    unpacked = CACHE / f"unpacked-{os.getpid()}"
    with tarfile.open(archive) as packed:
        packed.extractall(unpacked, filter="data")
    (unpacked / folder.name).rename(folder)
    unpacked.rmdir()
    return folder


def load_tests(folder: Path) -> list[ModuleType]:
    """Import the common tests of models, of configurations and of training from a source distribution.

    They become the package `transformers_tests`, because `tests` may be the name of ours.
    """
    package = ModuleType("transformers_tests")
    package.__path__ = [str(folder / "tests")]
    sys.modules[package.__name__] = package
    for name, contents in LACKING.items():
        module = ModuleType(f"transformers_tests.{name}")
        vars(module).update(contents)
        sys.modules[module.__name__] = module
        sys.modules.setdefault(module.__name__.rpartition(".")[0], ModuleType("folder"))
    names = ("test_modeling_common", "test_configuration_common", "test_training_mixin")
    # The tests of configurations load the code of transformers from beside them, where it is not, and do not use it.
    with mock.patch("transformers.utils.direct_transformers_import"):
        return [importlib.import_module(f"transformers_tests.{name}") for name in names]


def small_config(name: str) -> transformers.PreTrainedConfig:
    """Return a small configuration of a preset, or of BERT."""
    if name == "bert":
        return transformers.BertConfig(**SMALL, hidden_size=32, intermediate_size=64, type_vocab_size=2)
    published = whatwhere.preset(name, "tiny")
    position = {"position_size": 8} if published.position_size else {}
    # Heads of eight columns; beside a semantic stream of 32 columns the position stream of a preset has eight more.
    width = 40 if published.position_size and published.block == "neobert" else 32
    return whatwhere.preset(name, "tiny", **SMALL, **position, hidden_size=width, intermediate_size=2 * width)


def model_classes(name: str) -> list[type[transformers.PreTrainedModel]]:
    """Return the base model of a preset, or of BERT, and the heads that both have."""
    prefix, module = ("Bert", transformers) if name == "bert" else ("Encoder", whatwhere.encoder)
    base = transformers.BertModel if name == "bert" else whatwhere.Encoder
    heads = [head for head in HEADS if hasattr(whatwhere.encoder, f"EncoderFor{head}")]
    return [base, *(getattr(module, f"{prefix}For{head}") for head in heads)]


def name_heads(classes: list[type[transformers.PreTrainedModel]]) -> None:
    """Tell transformers' lists of heads the names of a model's classes: by them the tests choose labels for a head."""
    for model in classes:
        head = re.sub("(?<=[a-z])(?=[A-Z])", "_", model.__name__.partition("For")[2]).upper()
        names = getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES" if head else "MODEL_MAPPING_NAMES")
        names[model.config_class.model_type] = model.__name__


def test_case(name: str, folder: Path) -> type[unittest.TestCase]:
    """Return the class of all common tests of a model."""
    modeling, configuration, training = load_tests(folder)
    classes = model_classes(name)
    name_heads(classes)

    class Tester:
        """The small model and its inputs, by the names that the common tests ask for."""

        batch_size = 13
        seq_length = 7
        num_choices = 4
        is_training = True
        causal_lm_class = classes[1]  # the head that the test of overfitting trains: a label for each token
        base_model_class = classes[0]
        num_hidden_layers = SMALL["num_hidden_layers"]
        num_attention_heads = SMALL["num_attention_heads"]

        def __init__(self) -> None:
            self.hidden_size = self.get_config().hidden_size

        def get_config(self) -> transformers.PreTrainedConfig:
            return small_config(name)

        def prepare_config_and_inputs_for_common(self) -> tuple[transformers.PreTrainedConfig, dict[str, Any]]:
            shape = [self.batch_size, self.seq_length]
            ids = modeling.ids_tensor(shape, SMALL["vocab_size"])
            return self.get_config(), {"input_ids": ids, "attention_mask": modeling.random_attention_mask(shape)}

    class CommonTest(modeling.ModelTesterMixin, training.TrainingTesterMixin, unittest.TestCase):  # type: ignore
        all_model_classes = tuple(classes)
        test_can_init_all_missing_weights_before_2023 = True

        def setUp(self) -> None:
            transformers.set_seed(0)
            self.model_tester = Tester()

        def test_config(self) -> None:
            tester = configuration.ConfigTester(self, config_class=type(small_config(name)), hidden_size=48)
            tester.run_common_tests()

    return CommonTest


class Outcomes(unittest.TestResult):
    """A line of JSON on standard output for each test that ends."""

    def _print(self, test: unittest.TestCase, outcome: str, reason: str = "") -> None:
        name = test.id().split(" ")[0].rpartition(".")[2]  # a part of a test has its test's name
        print(json.dumps([name, outcome, reason]), file=sys.__stdout__, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        """Print that a test passed."""
        self._print(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """Print that a test was skipped, with its reason."""
        self._print(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        """Print that a test failed: its exception, and where it was raised."""
        frames = traceback.extract_tb(err[2])
        places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-3:]]
        self._print(test, "failed", f"{err[0].__name__}: {err[1]} ({' > '.join(places)})")

    addError = addFailure

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        """Print a part of a test that failed; parts that pass are no tests of their own."""
        if err is not None:
            self.addFailure(test, err)


def outcomes(folder: Path, name: str) -> dict[str, tuple[str, str]]:
    """Run all common tests of a model in a process of their own; return outcome and reason of each test.

    Raises:
        RuntimeError: the process ends early; the message holds the end of its standard error.
    """
    command = [sys.executable, __file__, str(folder), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"The common tests of {name} ended early: {done.stderr[-2000:]}")
    ended: dict[str, tuple[str, str]] = {}
    for line in done.stdout.splitlines():
        test, outcome, reason = json.loads(line)
        if ended.get(test, ("",))[0] != "failed":
            ended[test] = (outcome, reason)
    return ended


def main(folder: str, name: str, pattern: str = "") -> None:
    """Run the tests of a folder whose names hold a pattern on a model, and print what came out."""
    # A `print` of a test would stand between the lines; what transformers warns of is its own affair.
    sys.stdout = sys.stderr
    warnings.simplefilter("ignore")
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(test_case(name, Path(folder)))
    chosen = unittest.TestSuite(test for test in tests if pattern in test.id())
    chosen.run(Outcomes())


if __name__ == "__main__":
    main(*sys.argv[1:])
