"""What each kind of page asks: questions in their order, each with what leads to its answer, its figures and tables."""

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .figures import (
    attention_maps as attention,
)
from .figures import (
    buys,
    corpus,
    downstream,
    fits,
    longer,
    shape,
)
from .figures import (
    head_map as heads,
)
from .figures import (
    hidden_states as states,
)
from .figures import (
    table_shapes as spectra,
)
from .folder import Run
from .page import Section

Draw = Callable[[Run], Any]  # -> a figure or table, several, or None


def drawn(run: Run, *draws: Draw) -> list[Any]:
    """What a run has of some figures and tables, naming only those records and arrays that it has too."""
    made = [things if isinstance(things := draw(run), list) else [things] for draw in draws]
    return [replace(thing, records=_held(run, thing.records)) for things in made for thing in things if thing]


def _held(run: Run, records: Sequence[str]) -> tuple[str, ...]:
    files = [f"arrays/{stem}.npz" for stem in run.arrays]
    held = []
    for entry in records:
        names, colon, columns = entry.partition(":")
        known = files if names.startswith("arrays/") else run.table.metrics
        if recorded := [name for name in names.split(", ") if fnmatch.filter(known, name)]:
            held.append(", ".join(recorded) + colon + columns)
    return tuple(held)


@dataclass(frozen=True)
class Question:
    """A section: a question, what leads to its answer, what is drawn and listed; its fields as in `Section`."""

    id: str
    title: str
    intro: str
    figures: Sequence[Draw] = ()
    tables: Sequence[Draw] = ()
    short: str = ""
    more: Sequence[Draw] = ()
    folded: bool = False

    def section(self, run: Run, above: str = "") -> Section:
        """The section of a run; `above`: the figure that stands on the first screen. Of a run in which nothing was
        learned only the losses stand open."""
        folded = self.folded or (self.id != "learning" and 0 < len(run.stuck) == len(run.models))
        figures, more = ([f for f in drawn(run, *draws) if f.id != above] for draws in (self.figures, self.more))
        return Section(self.id, self.title, self.intro, figures, drawn(run, *self.tables), self.short, more, folded)


STUDY = (
    Question(
        "learning",
        "How fast does each learn?",
        "All models see the same batches with the same masks, so their losses can be compared step by step.",
        [buys.loss, buys.convergence],
        short="Learning",
    ),
    Question(
        "heads",
        "Who does the work in attention?",
        "The scores of attention are a sum of terms. What becomes of the attention, or of the loss, when one is taken "
        "away says which head goes by meaning, by absolute or by relative position.",
        [heads.taxonomy, heads.ablation, attention.neighbours],
        short="Attention",
        more=[heads.by_layer, heads.by_head, *attention.LOOKS_AT],
    ),
    Question(
        "shape",
        "What shape does position take?",
        "A position table is a list of vectors, one a position; its principal components show what training made of "
        "it.",
        [shape.table_map, shape.spectrum, states.variance],
        short="Shape",
        more=shape.MORE,
    ),
    Question(
        "structure",
        "What structure does it know?",
        "Sentences and lines are structure that needs no labels. A linear probe reads where a token stands, in its "
        "document and in its sentence: R² of 1 is a perfect reading, 0 no better than the mean.",
        [states.probes, states.sentences],
        short="Structure",
        more=[states.components, states.shift, states.others],
    ),
    Question(
        "downstream",
        "What are they good for?",
        "Each encoder is held against tasks with labels or against grammar, and with `--untrained` beside it the same "
        "encoder with weights drawn anew: what pre-training gave is the difference.",
        [
            downstream.ranks,
            downstream.glue,
            downstream.courses,
            downstream.answers,
            downstream.read_off,
            downstream.streams,
            downstream.layers,
            downstream.grammar,
            downstream.fields,
            downstream.vectors,
            downstream.types,
        ],
        short="Tasks",
        more=[downstream.gains, downstream.phenomena],
    ),
    Question(
        "longer",
        "What happens beyond the training length?",
        "A table of positions ends where the training did; here it is continued in several ways, and rotations are "
        "slowed down. What costs nothing is to read a long text in pieces as long as those of the training: a way is "
        "worth taking where it is better than that.",
        [longer.gain, longer.loss, longer.copies],
        short="Length",
        more=[longer.drift, longer.probes],
    ),
    Question(
        "corpus",
        "What does the corpus say?",
        "Before any model: how far the words at one position differ from those at another. Where they hardly do, a "
        "text gives a position table little to learn; the stress says how well a table's distances follow those of the "
        "text. Positions count from the start of a document, special tokens left out.",
        [fits.of_study],
        [corpus.overview],
        short="Corpus",
        folded=True,
    ),
)

GEOMETRY = (
    Question(
        "support",
        "What is counted?",
        "A position that few documents reach is counted on few tokens, and its distances are mostly noise.",
        [corpus.support],
        [corpus.overview],
    ),
    Question(
        "distances",
        "How far apart?",
        "Two positions are close if the same tokens stand there equally often.",
        [corpus.matrix, corpus.between],
    ),
    Question(
        "shape",
        "What shape?",
        "Distances can be drawn as points in space. Few components hold most of a simple shape; noise needs a "
        "component of its own for every position.",
        [corpus.maps_of, corpus.spectrum],
    ),
    Question(
        "fit",
        "Which encoding fits?",
        "A position encoding also puts positions at distances from each other. Here these are held against the "
        "distances of the corpus.",
        [fits.stress, fits.scatter, fits.held_out, fits.dimensions, fits.violations],
        [fits.correlations, fits.parameters],
    ),
    Question(
        "training",
        "Over training",
        "Position tables of models at their kept checkpoints.",
        [corpus.separations],
        [corpus.hypotheses],
    ),
)

SPECTRA = (
    Question(
        "dimensions",
        "How many dimensions does it use?",
        "Principal components in the order of their variance. Few hold most of a table of learned positions; words "
        "need many.",
        [spectra.shares, shape.spectrum],
        [spectra.table],
    ),
    Question(
        "path",
        "What path do positions take?",
        "From the first position to the last, the vectors of a learned table draw a curve. Seen along single "
        "components it is a wave, seen along two an arc or a circle.",
        [shape.table_map, spectra.rotations, spectra.scores, spectra.all_scores],
    ),
    Question(
        "waves",
        "How fast does it vary?",
        "The same scores, taken apart into waves along the positions: cosines of half waves, and Fourier's whole "
        "turns.",
        [shape.frequencies, spectra.magnitudes, spectra.component_magnitudes],
    ),
    Question(
        "distance",
        "Does distance alone count?",
        "If the inner product of two positions depends on their distance alone, the matrix of all inner products has "
        "equal entries along every diagonal.",
        [spectra.equivariance, spectra.first, spectra.products],
    ),
)
