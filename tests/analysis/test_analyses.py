"""The list of analyses and what runs them: all that the subject has what they need for, readers in one pass."""

import numpy as np
import pytest
import torch
from small_documents import documents

import whatwhere as ww
from whatwhere.analysis import ALWAYS, ANALYSES, OF_WINDOWS, TRAINING, Analysis, AnalysisInput, analyses_of
from whatwhere.analysis.passes import Reader
from whatwhere.analysis.record_context import RecordContext
from whatwhere.study.measurements import join_measurements, measure, split_analyses

ME = RecordContext("m", 0, "s")


class Counter(Reader):
    """Counts the batches and tokens that it is shown."""

    wants_hidden = True

    def __init__(self, model):
        self.batches = 0

    def hidden(self, batch, hidden):
        self.batches += 1

    def records(self, context):
        return [context.record("corpus.windows", self.batches)]

    def arrays(self):
        return {"batches": np.array(self.batches)}


def encoder():
    torch.manual_seed(0)
    return ww.Encoder(ww.preset("ap", "tiny", vocab_size=40, num_hidden_layers=1, max_position_embeddings=24)).eval()


def fail(*arguments):
    raise ValueError("nothing of the kind.")


def test_readers_share_one_pass():
    """Readers share one pass and what is missing is not done."""
    model = encoder()
    calls = []
    model.register_forward_hook(lambda *given: calls.append(1))
    told = []
    subject = AnalysisInput(
        ME, model, documents(20), progress=lambda done, total, part: told.append((part, done, total))
    )
    analyses = [
        Analysis("a", OF_WINDOWS, reader=Counter),
        Analysis("b", OF_WINDOWS, reader=Counter, array_stem="counts"),
        Analysis("c", OF_WINDOWS, fail, needs=("windows", "corpus")),
        Analysis("d", OF_WINDOWS, fail, needs=("has_loss",)),  # a body alone has no loss
        Analysis("e", OF_WINDOWS, lambda s: [s.context.record("corpus.documents", len(s.evenly_spaced(4)))]),
    ]
    measured = measure(subject, analyses)
    assert len(calls) == 3 and told[-1] == ("heads", 20, 20)
    assert [(r.metric, r.value, r.model) for r in measured.records] == [
        ("corpus.windows", 3.0, "m"),  # once, though two analyses say it
        ("corpus.documents", 4.0, "m"),
    ]
    assert list(measured.arrays) == ["counts-m-seed-0"] and measured.left_out == {}


def test_groups_of_analyses_join_to_the_whole():
    """Analyses that workers did apart give the records, in their order, the arrays and the reasons of one `measure`."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "num_hidden_layers": 1, "max_position_embeddings": 24}
    model = ww.EncoderForMaskedLM(ww.preset("dstg", "tiny", **sizes)).eval()
    inputs = AnalysisInput(ME, model, documents(12), ablation_windows=4)
    (shared, *others) = split_analyses(inputs, analyses_of(OF_WINDOWS))
    analyses = analyses_of(OF_WINDOWS)
    assert len(shared) > 3 and all(len(group) == 1 for group in others) and len(others) > 5
    whole = measure(inputs, analyses)
    joined = join_measurements([measure(inputs, group) for group in (shared, *others)], analyses)
    assert len(whole.records) > 50 and list(map(vars, joined.records)) == list(map(vars, whole.records))
    assert list(joined.left_out.items()) == list(whole.left_out.items()) and joined.arrays.keys() == whole.arrays.keys()
    for stem, arrays in whole.arrays.items():
        for name, values in arrays.items():
            assert np.array_equal(joined.arrays[stem][name], values, equal_nan=values.dtype.kind == "f"), (stem, name)


@pytest.mark.parametrize("way", ["reader", "measure"])
def test_only_optional_analyses_may_find_nothing(way):
    """An analysis that finds nothing of the kind is left out only if it may."""
    subject = AnalysisInput(ME, encoder(), documents(2))
    measured = measure(subject, [Analysis("x", OF_WINDOWS, **{way: fail}, optional=True)])
    assert measured.left_out == {"x": "nothing of the kind."} and measured.records == []
    with pytest.raises(ValueError, match="nothing of the kind"):
        measure(subject, [Analysis("x", OF_WINDOWS, **{way: fail})])


def test_readers_need_models_with_terms():
    """A reader is for models with terms a function for others."""
    both = Analysis(
        "x", OF_WINDOWS, lambda s: [s.context.record("corpus.documents", len(s.evenly_spaced()))], reader=Counter
    )
    (of_terms,) = measure(AnalysisInput(ME, encoder(), documents(4)), [both]).records
    (of_others,) = measure(AnalysisInput(ME, object(), documents(4)), [both]).records
    assert (of_terms.metric, of_others.metric) == ("corpus.windows", "corpus.documents")


def test_every_entry_is_complete():
    assert (*analyses_of(ALWAYS), *analyses_of(OF_WINDOWS), *analyses_of(TRAINING)) == ANALYSES
    for analysis in ANALYSES:
        assert analysis.reader is not None or analysis.measure is not None, analysis.name
        assert all(
            hasattr(AnalysisInput, need) or need in AnalysisInput.__dataclass_fields__ for need in analysis.needs
        ), analysis.name
    assert len({analysis.name for analysis in ANALYSES}) == len(ANALYSES)


def test_some_documents_are_evenly_spaced():
    subject = AnalysisInput(ME, None, documents(10))
    assert np.array_equal(subject.evenly_spaced(4).input_ids, documents(10).input_ids[[0, 2, 5, 7]])
    assert len(subject.evenly_spaced(50)) == len(subject.evenly_spaced()) == 10


def test_a_table_of_zeros_is_left_out():
    """A control without its table ended its study: such a table has no components."""
    model = encoder()
    torch.nn.init.zeros_(model.position_table())
    measured = measure(AnalysisInput(ME, model), analyses_of(ALWAYS))
    assert measured.records == [] and "rows of the table are equal" in measured.left_out["position table"]
