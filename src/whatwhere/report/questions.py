"""What each kind of page asks: questions in their order, each with what leads to its answer, its figures and tables."""

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import schemes
from .figures import attention, buys, corpus, fits, heads, shape, spectra, structure, where
from .page import Section
from .run import Run

Draw = Callable[[Run], Any]  # -> a figure or table, several, or None


def drawn(run: Run, *draws: Draw) -> list[Any]:
    """What a run has of some figures and tables, naming only those records and arrays that it has too."""
    made = (draw(run) for draw in draws)
    return [
        _traced(run, thing)
        for things in made
        for thing in (things if isinstance(things, list) else [things])
        if thing is not None
    ]


def _traced(run: Run, thing: Any) -> Any:
    files = [f"arrays/{stem}.npz" for stem in run.arrays]
    held = []
    for entry in thing.records:
        names, _, columns = entry.partition(":")
        known = files if names.startswith("arrays/") else run.table.metrics
        recorded = ", ".join(name for name in names.split(", ") if fnmatch.filter(known, name))
        held += [recorded + (f":{columns}" if columns else "")] if recorded else []
    return replace(thing, records=tuple(held))


@dataclass(frozen=True)
class Question:
    """A section: a question, what leads to its answer, and what is drawn and listed. short: its name in the bar."""

    id: str
    title: str
    intro: str | Callable[[Run], str]
    figures: Sequence[Draw] = ()
    tables: Sequence[Draw] = ()
    short: str = ""

    def section(self, run: Run, above: str = "") -> Section:
        """The section of a run; `above`: the figure that stands on the first screen."""
        intro = self.intro if isinstance(self.intro, str) else self.intro(run)
        figures = [f for f in drawn(run, *self.figures) if f.id != above]
        return Section(self.id, self.title, intro, figures, drawn(run, *self.tables), self.short)


STUDY = (
    Question(
        "where",
        "Where is position kept?",
        lambda run: (
            "A linear probe reads where a token stands from the hidden state after every layer: from all of it, or "
            "from one stream alone. R² of 1 is a perfect reading, 0 no better than the mean. "
            + (
                "Each panel holds the models of one family, or one stream of those that have two; all others stand "
                "behind in grey."
                if schemes.many(run)
                else "Each panel is one model; the others stand behind it in grey."
            )
        ),
        [where.figures],
        short="Position",
    ),
    Question(
        "moves",
        "Does meaning move with position?",
        "The same text is read twice, the second time further on along the positions. Where distances alone count, the "
        "states stay as they were, a change of 0; the notes behind `split` say the same of its semantic states, whose "
        "values never see position while the attention weights do.",
        [where.SHIFT.draw],
        short="Shift",
    ),
    Question(
        "shape",
        "What shape does it take?",
        "A position table is a list of vectors, one a position. The principal components of a learned one show what "
        "the training made of it; a fixed one stays what it was. What the layers make of it is seen in the flatness of "
        "the hidden states, and in the distances that the attention of each layer still sees.",
        [shape.figures],
        short="Shape",
    ),
    Question(
        "heads",
        "Who uses it?",
        "The scores of attention are a sum of terms. What becomes of the attention, or of the loss, when one is taken "
        "away says which head, and which layer, goes by meaning, by absolute or by relative position.",
        [heads.figures, attention.figures],
        short="Heads",
    ),
    Question(
        "structure",
        "Does it know structure?",
        "Sentences and lines are structure that needs no labels. The hidden states of a document show whether tokens "
        "of one sentence lie together; neighbouring tokens are alike anyway, so every distance stands beside that of "
        "random cuts. A regression shows whether another model holds what a stream holds.",
        [structure.figures],
        short="Structure",
    ),
    Question(
        "corpus",
        "What does the corpus say?",
        "Before any model: how far the words at one position differ from those at another. Where they hardly do, a "
        "text gives a position table little to learn; the stress says how well a table's distances follow those of the "
        "text. Positions count from the start of a document, special tokens left out; where windows run on, models see "
        "later parts too.",
        [fits.of_study],
        [corpus.overview],
        short="Corpus",
    ),
    Question(
        "buys",
        "What does it buy?",
        lambda run: (
            "All models see the same batches with the same masks, so their losses can be compared step by step. "
            + (schemes.cost_differences(run) or schemes.matched(run) or "")
        ),
        [buys.figures],
        [buys.costs],
        short="Training",
    ),
)

GEOMETRY = (
    Question(
        "support",
        "What is counted?",
        "A position that few documents reach is counted on few tokens, and its distances are mostly noise.",
        [corpus.SUPPORT.draw],
        [corpus.overview],
    ),
    Question(
        "distances",
        "How far apart?",
        "Two positions are close if the same tokens stand there equally often.",
        [corpus.MATRIX.draw, corpus.BETWEEN.draw],
    ),
    Question(
        "shape",
        "What shape?",
        "Distances can be drawn as points in space. Few components hold most of a simple shape; noise needs a "
        "component of its own for every position.",
        [corpus.maps_of, corpus.SPECTRUM.draw],
    ),
    Question(
        "fit",
        "Which encoding fits?",
        "A position encoding also puts positions at distances from each other. Here these are held against the "
        "distances of the corpus.",
        [fits.STRESS.draw, fits.scatter, fits.HELD_OUT.draw, fits.DIMENSIONS.draw, fits.VIOLATIONS.draw],
        [fits.correlations, fits.parameters],
    ),
    Question(
        "training",
        "Over training",
        "Position tables of models at their kept checkpoints.",
        [corpus.SEPARATIONS.draw],
        [corpus.hypotheses],
    ),
)

SPECTRA = (
    Question(
        "dimensions",
        "How many dimensions does it use?",
        "Principal components in the order of their variance. Few hold most of a table of learned positions; words "
        "need many.",
        [spectra.SHARES.draw, shape.SPECTRUM.draw],
        [spectra.table],
    ),
    Question(
        "path",
        "What path do positions take?",
        "From the first position to the last, the vectors of a learned table draw a curve. Seen along single "
        "components it is a wave, seen along two an arc or a circle.",
        [shape.table_map, spectra.rotations, spectra.SCORES.draw, spectra.ALL.draw],
    ),
    Question(
        "waves",
        "How fast does it vary?",
        "The same scores, taken apart into waves along the positions: cosines of half waves, and Fourier's whole "
        "turns.",
        [shape.FREQUENCIES.draw, spectra.MAGNITUDES.draw, spectra.COMPONENT_MAGNITUDES.draw],
    ),
    Question(
        "distance",
        "Does distance alone count?",
        "If the inner product of two positions depends on their distance alone, the matrix of all inner products has "
        "equal entries along every diagonal.",
        [spectra.EQUIVARIANCE.draw, spectra.FIRST.draw, spectra.PRODUCTS.draw],
    ),
)
