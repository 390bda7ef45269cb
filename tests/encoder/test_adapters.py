"""Adapters of PEFT on every head: they reach all linear layers and come back with equal logits."""

import pytest
import torch
from encoder_models import VOCAB

import whatwhere as ww

peft = pytest.importorskip("peft", reason="adapters need peft: pip install peft")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, at a name that peft reads

HEADS = {
    "SEQ_CLS": ww.EncoderForSequenceClassification,
    "TOKEN_CLS": ww.EncoderForTokenClassification,
    "QUESTION_ANS": ww.EncoderForQuestionAnswering,
    "FEATURE_EXTRACTION": ww.EncoderForMaskedLM,
    "choices": ww.EncoderForMultipleChoice,
}
SIZES = {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 32}
SPREAD = {"initializer_range": 0.3, "embedding_initializer_range": 0.5}  # large enough that all layers matter
LAYERS = ["qkv.0", "up.0", "down.0", "out.0"]


def small(preset: str) -> ww.EncoderConfig:
    own = {"position_size": 8} if preset == "dstg" else {}
    return ww.preset(preset, "tiny", vocab_size=VOCAB, num_labels=3, **SIZES, **SPREAD, **own)


def adapter(head: str) -> peft.LoraConfig:
    """An adapter of all linear layers; PEFT leaves out heads that it saves whole of itself for SEQ_CLS alone, whose
    head is that of choices, too."""
    head = "SEQ_CLS" if head == "choices" else head
    whole = {"TOKEN_CLS": ["classifier"], "QUESTION_ANS": ["qa_outputs"]}.get(head)
    return peft.LoraConfig(task_type=head, target_modules="all-linear", exclude_modules=whole, r=4)


def batch(head: str) -> dict[str, torch.Tensor]:
    ids = torch.randint(5, VOCAB, (8, 9), generator=torch.Generator().manual_seed(2))
    ids[:, 0] = 2
    ids[:, -1] = 3
    if head == "choices":
        return {"input_ids": ids.view(4, 2, 9), "labels": (ids[::2, 1] < ids[1::2, 1]).long()}
    if head == "SEQ_CLS":
        return {"input_ids": ids, "labels": ids[:, 1] % 3}
    if head == "QUESTION_ANS":
        return {"input_ids": ids, "start_positions": ids[:, 1] % 5, "end_positions": ids[:, 1] % 5 + 2}
    return {"input_ids": ids, "labels": ids % 3 if head == "TOKEN_CLS" else ids}


def outputs(model, given) -> torch.Tensor:
    with torch.no_grad():
        found = model.eval()(**given)
    return torch.stack([found.start_logits, found.end_logits]) if "start_logits" in found else found.logits


def train(model, given, steps: int = 10) -> float:
    """Train an adapter and return by how much its loss fell."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = model.train()(**given).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses[0] - losses[-1]


@pytest.mark.parametrize("preset", ["dstg", "tupe-r"])
@pytest.mark.parametrize("head", HEADS)
def test_saved_adapter_gives_equal_logits(head, preset, tmp_path):
    """An adapter on a pretrained folder, reloaded onto that folder, predicts what it predicted.

    The pooler and the layer of answers were drawn anew at each opening: logits were off by 2 and more.
    """
    ww.EncoderForMaskedLM(small(preset)).save_pretrained(tmp_path / "pretrained")
    kind = HEADS[head]
    config = adapter(head)
    model = peft.get_peft_model(kind.from_pretrained(tmp_path / "pretrained", num_labels=3), config)
    given = batch(head)
    assert train(model, given) > 0.05
    expected = outputs(model, given)
    model.save_pretrained(tmp_path / "adapter")
    torch.manual_seed(99)
    fresh = kind.from_pretrained(tmp_path / "pretrained", num_labels=3)
    again = peft.PeftModel.from_pretrained(fresh, tmp_path / "adapter")
    assert torch.equal(outputs(again, given), expected)


@pytest.mark.parametrize("head", ["SEQ_CLS", "QUESTION_ANS", "TOKEN_CLS", "choices"])
def test_new_heads_are_trained_whole(head):
    """What a pretrained folder lacks is a module that PEFT trains and saves."""
    model = peft.get_peft_model(HEADS[head](small("dstg")), adapter(head))
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    head_names = [name for name in trained if "encoder." not in name and ".lora_" not in name]
    of_head = sum(p.numel() for name, p in HEADS[head](small("dstg")).named_parameters() if "encoder." not in name)
    assert sum(model.get_parameter(name).numel() for name in head_names) == of_head


def test_all_linear_reaches_every_projection():
    """Queries, keys, values and the feed-forward are adapted: all linear layers of both streams in both blocks."""
    for preset, layers in (("dstg", 2 + 2 + 1 + 2), ("bert-a", 4)):
        model = peft.get_peft_model(ww.Encoder(small(preset)), peft.LoraConfig(target_modules="all-linear"))
        assert len([name for name, _ in model.named_modules() if name.endswith("lora_A")]) == 2 * layers


@pytest.mark.parametrize(
    "config",
    [
        peft.LoraConfig(target_modules="all-linear", use_dora=True),
        peft.LoHaConfig(target_modules=LAYERS),
        peft.IA3Config(target_modules=LAYERS, feedforward_modules=["down.0"]),
    ],
    ids=["dora", "loha", "ia3"],
)
def test_kinds_of_adapters_learn_and_merge(config):
    """DoRA, LoHa and IA3 change the logits by training, and merged into the weights give them again."""
    torch.manual_seed(0)
    given = batch("TOKEN_CLS")
    model = ww.EncoderForTokenClassification(small("dstg")).double()
    before = outputs(model, given)
    adapted = peft.get_peft_model(model, config).double()
    torch.testing.assert_close(outputs(adapted, given), before, rtol=1e-9, atol=1e-9)
    assert train(adapted, given) > 1e-3
    after = outputs(adapted, given)
    assert (after - before).abs().max() > 1e-3
    torch.testing.assert_close(outputs(adapted.merge_and_unload(), given), after, rtol=1e-9, atol=1e-9)
