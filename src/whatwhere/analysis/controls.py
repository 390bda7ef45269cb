"""Controls: the analyses of states, scores and ablations on the model before its training."""

from ..records.record import Record
from .ablation import KINDS, ablation_records
from .analyses import CONTROLS, SCORED, TRAINING, Analysis, AnalysisInput
from .hidden import PositionVariance, SentenceMaps
from .passes import read
from .patterns import score_records


def control_records(s: AnalysisInput) -> list[Record]:
    """Measure the untrained model, whose words and table alone produce some of each quantity."""
    start = s.context.at(0)
    sentences = SentenceMaps(s.untrained)
    variance = PositionVariance(s.untrained)
    read(s.untrained, s.evenly_spaced(CONTROLS), [sentences, variance])
    scores = score_records(s.untrained, s.evenly_spaced(SCORED), start)
    worth: list[Record] = []
    if s.has_loss:
        worth = ablation_records(
            s.untrained, s.evenly_spaced(min(s.ablation_windows, SCORED)), start, kinds=KINDS[:1], by=("all",)
        )
    removed = [r for r in worth if r.metric != "ablation.loss"]
    return sentences.records(start) + variance.records(start) + scores + removed


ANALYSES = (Analysis("untrained", TRAINING, control_records, needs=("windows", "untrained")),)
