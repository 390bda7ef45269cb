"""Which held-out documents are probed, their targets, and how the model is called."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from whatwhere.analysis.passes import choose_windows, hidden_states, model_inputs


def window(n, segments=None, positions=None, first=0):
    segments = np.array([-1] + [0] * (n - 2) + [-1] if segments is None else segments, dtype=np.int32)
    progress = np.full(n, np.nan, dtype=np.float32)
    for k in set(segments) - {-1}:
        inside = np.flatnonzero(segments == k)
        if len(inside) > 1:
            progress[inside] = np.arange(len(inside)) / (len(inside) - 1)
    positions = np.arange(n) if positions is None else np.array(positions)
    return SimpleNamespace(
        input_ids=np.arange(first, first + n, dtype=np.uint16),
        position_ids=positions.astype(np.int32),
        document_ids=np.cumsum(positions == 0) - 1,
        segments=segments,
        progress=progress,
    )


class Echo(torch.nn.Module):
    """hidden[l] = input id + 100 · l in every feature; notes how it was called."""

    def __init__(self, layers=2, width=3, returned=None):
        super().__init__()
        self.config = SimpleNamespace(hidden_size=width, position_size=0, num_hidden_layers=layers)
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.returned = returned or layers + 1
        self.calls = []

    def forward(self, input_ids, position_ids, document_ids=None, output_hidden_states=False):
        self.calls.append((self.training, torch.is_grad_enabled(), position_ids, document_ids))
        states = [(input_ids[..., None] + 100.0 * l) * self.weight for l in range(self.returned)]
        return SimpleNamespace(hidden_states=tuple(states) if output_hidden_states else None)


def test_only_windows_of_the_maximum_length_are_chosen():
    chosen = choose_windows([window(8, first=i) if i % 3 else window(5, first=i) for i in range(30)])
    assert chosen.length == 8 and list(chosen.input_ids[:, 0]) == [i for i in range(30) if i % 3]


def test_more_windows_than_wanted_are_spaced_over_the_set():
    chosen = choose_windows([window(6, first=i) for i in range(100)], windows=10)
    assert list(chosen.input_ids[:, 0]) == list(range(0, 100, 10))


def test_fewer_windows_than_wanted_are_used_and_said_once(caplog):
    """A study of two models said it nine times."""
    for wanted in (500, 100):
        assert len(choose_windows([window(6)] * 13, windows=wanted)) == 13
    assert caplog.text.count("Analyses read 13 windows of 6 tokens: the held-out part has no more.") == 1


def test_exactly_as_many_windows_give_no_remark(caplog):
    assert len(choose_windows([window(6)] * 10, windows=10)) == 10 and not caplog.records


def test_known_lengths_need_no_reading_of_windows():
    """A set that knows its lengths is not read through."""

    class OnDisk(list):
        read = 0

        def lengths(self):
            return np.array([len(w.input_ids) for w in self])

        def __getitem__(self, i):
            self.read += 1
            return super().__getitem__(i)

    windows = OnDisk([window(6, first=i) for i in range(100)] + [window(4)] * 100)
    assert list(choose_windows(windows, windows=10).input_ids[:, 0]) == list(range(0, 100, 10)) and windows.read == 10


@pytest.mark.parametrize(
    ("windows", "documents", "message"),
    [
        ([window(6)] * 9 + [window(5)] * 20, 500, "Got 9 of 29 with 6 tokens"),
        ([], 500, "Got 0 of 0"),
        ([window(6)] * 30, 9, "Got windows=9"),
    ],
)
def test_too_few_documents_are_an_error(windows, documents, message):
    with pytest.raises(ValueError, match=message):
        choose_windows(windows, documents)


def test_targets_are_position_segment_and_progress():
    chosen = choose_windows([window(8, segments=[-1, 0, 0, 0, 1, 2, 2, -1])] * 10)
    assert list(chosen.regular[0]) == [False] + [True] * 6 + [False]
    np.testing.assert_allclose(chosen.targets["token"][3], np.arange(8) / 8)
    assert list(chosen.targets["segment"][0, 1:7]) == [0, 0, 0, 1, 2, 2]
    np.testing.assert_allclose(chosen.targets["intra"][0, 1:7], [0, 0.5, 1, np.nan, 0, 1])


def test_hidden_states_come_in_batches_in_the_order_asked():
    windows = choose_windows([window(4, first=10 * i) for i in range(10)])
    seen = []
    batches = list(
        hidden_states(Echo(), windows, np.arange(10)[::-1], batch_size=4, progress=lambda *p: seen.append(p))
    )
    assert [list(i) for i, _ in batches] == [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]
    assert seen == [(4, 10), (8, 10), (10, 10)]
    for indices, hidden in batches:
        for l, h in enumerate(hidden):
            np.testing.assert_array_equal(h[:, 0, 0].numpy(), 10 * indices + 100 * l)


@pytest.mark.parametrize("mode", [True, False])
def test_the_model_runs_in_eval_mode_without_gradients(mode):
    """Model runs without gradients in eval mode and keeps its mode."""
    model = Echo().train(mode)
    list(hidden_states(model, choose_windows([window(4)] * 10)))
    assert model.training is mode
    for training, gradients, positions, document_ids in model.calls:
        assert (training, gradients, document_ids) == (False, False, None) and positions[0].tolist() == [0, 1, 2, 3]


def test_gradients_stay_on_for_the_caller_between_batches():
    for _ in hidden_states(Echo(), choose_windows([window(4)] * 10), batch_size=5):
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_mode_comes_back_when_the_caller_stops_early():
    model = Echo().train()
    states = hidden_states(model, choose_windows([window(4)] * 10), batch_size=5)
    next(states)
    states.close()
    assert model.training


def test_isolated_documents_are_passed_on():
    model = Echo()
    windows = choose_windows([window(6, positions=[0, 1, 2, 0, 1, 2])] * 10)
    list(hidden_states(model, windows))
    assert model.calls[0][3][0].tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(windows.targets["token"][0], np.array([0, 1, 2, 0, 1, 2]) / 6)


def test_the_vocabulary_head_is_not_run():
    class WithHead(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.base_model = Echo()
            self.config = self.base_model.config

    assert len(list(hidden_states(WithHead(), choose_windows([window(4)] * 10)))) == 1


@pytest.mark.parametrize("change", [{"returned": 2}, {"returned": 4}])
def test_wrong_number_of_hidden_states_is_an_error(change):
    with pytest.raises(ValueError, match="configuration says 3 of shape"):
        list(hidden_states(Echo(**change), choose_windows([window(4)] * 10)))


def test_wrong_width_is_an_error():
    model = Echo()
    model.config.hidden_size = 5
    with pytest.raises(ValueError, match="Check num_hidden_layers and hidden_size"):
        list(hidden_states(model, choose_windows([window(4)] * 10)))


def transformers_model(kind):
    from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

    torch.manual_seed(0)
    sizes = {
        "vocab_size": 40,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    config, model = {"bert": (BertConfig, BertModel), "roberta": (RobertaConfig, RobertaModel)}[kind]
    return model(config(**sizes, max_position_embeddings=14, pad_token_id=1)).eval()


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_other_encoders_count_their_positions_themselves(kind):
    model = transformers_model(kind)
    documents = choose_windows([window(12, first=i + 2) for i in range(10)])
    hidden = next(iter(hidden_states(model, documents)))[1]
    with torch.no_grad():
        expected = model(torch.from_numpy(documents.input_ids), output_hidden_states=True).hidden_states
    torch.testing.assert_close(hidden[-1], expected[-1])


@pytest.mark.parametrize(("kind", "offset"), [("bert", 0), ("roberta", 2)])
def test_other_positions_are_counted_from_where_the_table_begins(kind, offset):
    model = transformers_model(kind)
    documents = choose_windows([window(8, first=i + 2) for i in range(10)])
    moved = replace(documents, position_ids=documents.position_ids + 3)
    hidden = next(iter(hidden_states(model, moved)))[1]
    with torch.no_grad():
        positions = torch.arange(3, 11).expand(10, 8) + offset
        expected = model(
            torch.from_numpy(documents.input_ids), position_ids=positions, output_hidden_states=True
        ).hidden_states
    torch.testing.assert_close(hidden[-1], expected[-1])
    assert not torch.allclose(hidden[-1], next(iter(hidden_states(model, documents)))[1][-1])


def test_positions_at_padding_do_not_count():
    model = transformers_model("bert")
    documents = choose_windows([window(8, first=i + 2) for i in range(10)])
    mask = np.ones((10, 8), dtype=np.int64)
    mask[:, 6:] = 0
    padded = replace(documents, position_ids=documents.position_ids * mask, attention_mask=mask)
    assert "position_ids" not in model_inputs(model, padded) and "position_ids" in model_inputs(Echo(), padded)


def test_packed_documents_are_refused_for_other_encoders():
    windows = choose_windows([window(6, positions=[0, 1, 2, 0, 1, 2], first=2)] * 10)
    with pytest.raises(ValueError, match="BertModel cannot keep the documents of a packed window apart"):
        next(iter(hidden_states(transformers_model("bert"), windows)))


def test_rows_are_documents_in_the_order_asked():
    windows = choose_windows([window(6, positions=[0, 1, 2, 0, 1, 2], first=i) for i in range(10)])
    some = windows.rows(np.array([4, 2]))
    assert (
        len(some) == 2
        and list(some.input_ids[:, 0]) == [4, 2]
        and some.document_ids.shape == (2, 6)
        and some.attention_mask is None
    )
    assert set(some.targets) == set(windows.targets) and some.targets["token"].shape == some.regular.shape == (2, 6)
