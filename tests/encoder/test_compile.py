"""torch.compile and torch.export on the default path (sdpa): one graph, any batch and length, the numbers of the plain
model."""

import pytest
import torch
from encoder_models import VOCAB

import whatwhere as ww

pytestmark = pytest.mark.whole

# One preset for every way that positions enter: rotation, with a decay, of segments, convolution, bias of distances,
# stream, both; untied, crossed, free, joint streams.
SCHEMES = ["rope", "xpos", "bipe", "conv", "rp", "dstg", "tupe-r", "bert-ad", "tupe-free", "split"]


def build(name: str, head: type = ww.Encoder) -> torch.nn.Module:
    torch.manual_seed(0)
    model = head(ww.preset(name, "tiny", vocab_size=VOCAB, num_hidden_layers=1, dropout=0.0)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch(b: int, n: int, padded: bool) -> dict[str, torch.Tensor]:
    ids = torch.randint(5, VOCAB, (b, n), generator=torch.Generator().manual_seed(n))
    ids[:, 0] = 2
    ids[:, -1] = 3
    ids[1, 4] = 3
    mask = torch.ones_like(ids)
    mask[1, n - 5 :] = 0
    return {"input_ids": ids, "attention_mask": mask} if padded else {"input_ids": ids}


def assert_same(got: torch.Tensor, expected: torch.Tensor, inputs: dict[str, torch.Tensor]) -> None:
    """Equal where there is text; what a model says at padding means nothing."""
    text = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    torch.testing.assert_close(got[text], expected[text], rtol=1e-4, atol=2e-5)


def exported(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.export.ExportedProgram:
    any_shape = {0: torch.export.Dim("b", min=2, max=64), 1: torch.export.Dim("n", min=2, max=128)}
    return torch.export.export(model, (), inputs, dynamic_shapes={name: any_shape for name in inputs})


@pytest.mark.parametrize("padded", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "dstg" else pytest.mark.long) for name in SCHEMES]
)
def test_exported_encoder_takes_any_batch_and_length(name, padded):
    model = build(name)
    program = exported(model, batch(3, 11, padded)).module()
    for inputs in (batch(3, 11, padded), batch(2, 29, padded)):
        assert_same(program(**inputs).last_hidden_state, model(**inputs).last_hidden_state, inputs)


@pytest.mark.long
def test_exported_file_needs_no_code_of_ours(tmp_path):
    model = build("dstg", ww.EncoderForSequenceClassification)
    torch.export.save(exported(model, batch(3, 11, True)), tmp_path / "model.pt2")
    inputs = batch(4, 20, True)
    torch.testing.assert_close(
        torch.export.load(tmp_path / "model.pt2").module()(**inputs).logits, model(**inputs).logits
    )


@pytest.mark.parametrize("name", ["dstg", "tupe-r"])
def test_compiled_encoder_is_one_graph(name):
    model = build(name)
    inputs = batch(3, 11, True)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")  # raises where the graph would break
    with torch.no_grad():
        assert_same(compiled(**inputs).last_hidden_state, model(**inputs).last_hidden_state, inputs)


# The choice of the labelled tokens breaks the graph in two; torch looks at hidden states there in a way that warns.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    "name", [pytest.param("tupe-r", marks=pytest.mark.long), pytest.param("dstg", marks=pytest.mark.slow)]
)
def test_compiled_training_has_the_gradients_of_the_plain_model(name):
    model = build(name, ww.EncoderForMaskedLM).train()
    inputs = batch(3, 11, True)
    ids = inputs["input_ids"]
    mask = inputs["attention_mask"]
    labels = torch.where((ids % 3 == 1) & mask.bool(), ids, -100)
    found = []
    for step in (model, torch.compile(model, backend="aot_eager")):
        model.zero_grad()
        loss = step(**inputs, labels=labels).loss
        loss.backward()
        found.append(
            (loss.detach(), {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None})
        )
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-5)
