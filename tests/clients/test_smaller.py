"""Models in eight bits, compiled and exported: how far their numbers are from the plain model's."""

import shutil

import pytest
import torch
from client_tasks import HEADS, scores_of
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def model(folder) -> nn.Module:
    """The masked-language model."""
    return AutoModelForMaskedLM.from_pretrained(folder).eval()


def real_logits(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The logits (m, vocabulary) of the tokens that are no padding."""
    with torch.no_grad():
        return model(**batch).logits[batch["attention_mask"].bool()]


def assert_near(got: Tensor, expected: Tensor) -> None:
    """Assert that eight bits change the logits, by a root mean square of at most five per cent of their spread."""
    error = float((got - expected).square().mean().sqrt() / expected.std())
    assert 0 < error < 0.05, f"{error:.4f} of the standard deviation"


def test_dynamic_int8_keeps_the_logits_near(model, batch):
    """Linear maps in eight bits by torch.ao; every one of the blocks is replaced.

    The position scores of tupe-r took their type from a weight, which in eight bits is a function (AttributeError).
    """
    expected = real_logits(model, batch)
    small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert not [name for name, part in small.named_modules() if type(part) is nn.Linear and ".layers." in name]
    assert_near(real_logits(small, batch), expected)


def test_torchao_weights_keep_the_logits_near(model, batch):
    """Weights in eight bits by torchao."""
    quantization = pytest.importorskip("torchao.quantization", reason="make clients has it")
    expected = real_logits(model, batch)
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    assert_near(real_logits(model, batch), expected)


def test_folder_of_eight_bits_reopens_with_equal_logits(folder, batch, tmp_path):
    """A model that was opened with a quantization saves it in its configuration, and reopens to equal logits."""
    quantization = pytest.importorskip("torchao.quantization", reason="make clients has it")
    from transformers import TorchAoConfig

    wanted = TorchAoConfig(quantization.Int8WeightOnlyConfig())
    small = AutoModelForMaskedLM.from_pretrained(folder, quantization_config=wanted).eval()
    expected = real_logits(small, batch)
    small.save_pretrained(tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    assert again.config.quantization_config is not None
    assert torch.equal(real_logits(again, batch), expected)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("head", ["masked", "labels"])
def test_compiled_model_has_the_numbers_of_the_plain_one(head, folder, tokenizer, texts):
    """One graph by inductor for two shapes of batches."""
    torch.manual_seed(0)
    model = HEADS[head].from_pretrained(folder).eval()
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for rows in (3, 5):
        batch = tokenizer(texts[:rows], padding=True, truncation=True, max_length=16 + rows, return_tensors="pt")
        text = batch["attention_mask"].bool() if head == "masked" else slice(None)
        with torch.no_grad():
            got = scores_of(compiled(**batch))[text]
            expected = scores_of(model(**batch))[text]
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("head", [head for head in HEADS if head != "choices"])
def test_exported_program_has_the_numbers_of_the_plain_one(head, folder, tokenizer, texts, tmp_path):
    """A program of torch.export, saved and loaded, takes batches of other shapes than its example."""
    torch.manual_seed(0)
    model = HEADS[head].from_pretrained(folder).eval()
    shape = {0: torch.export.Dim("rows", min=2, max=64), 1: torch.export.Dim("tokens", min=2, max=128)}

    def batch_of(rows: int, length: int) -> dict[str, Tensor]:
        given = tokenizer(texts[:rows], padding=True, truncation=True, max_length=length, return_tensors="pt")
        return {"input_ids": given["input_ids"], "attention_mask": given["attention_mask"]}

    example = batch_of(3, 16)
    program = torch.export.export(model, (), example, dynamic_shapes={name: shape for name in example})
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for given in (example, batch_of(6, 40)):
        text = slice(None) if head == "labels" else given["attention_mask"].bool()
        with torch.no_grad():
            got = scores_of(loaded(**given))[text]
            expected = scores_of(model(**given))[text]
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
