"""What each kind of page asks: questions in their order, each with what leads to its answer.

The figures of a question stand in `FIGURES`, `MORE` and `TABLES` at the end of the files that it names.
"""

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from .figures import (
    attention_maps,
    buys,
    corpus,
    downstream,
    fits,
    head_map,
    hidden_states,
    longer,
    shape,
    table_shapes,
)
from .loaded_run import Run
from .page import Section

Draw = Callable[[Run], Any]  # -> a figure or table, several, or None


def drawn(run: Run, *draws: Draw) -> list[Any]:
    """Return the figures and tables that a run has data for, naming only records and arrays that it has, too."""
    drawings = [things if isinstance(things := draw(run), list) else [things] for draw in draws]
    return [
        replace(drawing, records=_select_records(run, drawing.records))
        for things in drawings
        for drawing in things
        if drawing
    ]


def _select_records(run: Run, records: Sequence[str]) -> tuple[str, ...]:
    files = [f"arrays/{stem}.npz" for stem in run.arrays]
    kept_records = []
    for entry in records:
        names, colon, columns = entry.partition(":")
        known = files if names.startswith("arrays/") else run.table.metrics
        if recorded := [name for name in names.split(", ") if fnmatch.filter(known, name)]:
            kept_records.append(", ".join(recorded) + colon + columns)
    return tuple(kept_records)


@dataclass(frozen=True)
class Question:
    """Section of a page: a question with its figures and tables.

    Its fields are as in `Section`. kind: page that asks it. files: modules whose figures and tables answer it, in their
    order. apart: `intro` on a page of runs that differ, where that is another.
    """

    kind: str
    id: str
    title: str
    intro: str
    files: Sequence[ModuleType]
    short: str = ""
    folded: bool = False
    apart: str = ""

    def draws(self, name: str) -> list[Draw]:
        """Return the functions that `FIGURES`, `MORE` or `TABLES` of the files list for this question."""
        return [draw for file in self.files for draw in getattr(file, name, {}).get(f"{self.kind}.{self.id}", ())]

    def section(self, run: Run, above: str = "") -> Section:
        """Return the section of a run.

        Where the run has learned nothing, only the losses stand open.

        above: id of the figure that stands on the first screen.
        """
        folded = self.folded or (self.id != "learning" and 0 < len(run.stuck) == len(run.models))
        figures = [f for f in drawn(run, *self.draws("FIGURES")) if f.id != above]
        more = [f for f in drawn(run, *self.draws("MORE")) if f.id != above]
        tables = drawn(run, *self.draws("TABLES"))
        intro = self.apart if run.apart and self.apart else self.intro
        return Section(self.id, self.title, intro, figures, tables, self.short, more, folded)


STUDY = (
    Question(
        "study",
        "learning",
        "How fast does each learn?",
        "All models see the same batches with the same masks, so their losses can be compared step by step.",
        (buys,),
        short="Learning",
        apart="Within a run, all models see the same batches with the same masks, so their losses can be compared step "
        "by step.",
    ),
    Question(
        "study",
        "heads",
        "Who does the work in attention?",
        "The scores of attention are a sum of terms. What becomes of the attention, or of the loss, when one is taken "
        "away says which head goes by meaning, by absolute or by relative position.",
        (
            head_map,
            attention_maps,
        ),
        short="Attention",
    ),
    Question(
        "study",
        "shape",
        "What shape does position take?",
        "A position table is a list of vectors, one a position; its principal components show what training made of "
        "it.",
        (
            shape,
            hidden_states,
        ),
        short="Shape",
    ),
    Question(
        "study",
        "structure",
        "What structure does it know?",
        "Sentences and lines are structure that needs no labels. A linear probe reads where a token stands, in its "
        "document and in its sentence: R² of 1 is a perfect reading, 0 no better than the mean.",
        (hidden_states,),
        short="Structure",
    ),
    Question(
        "study",
        "downstream",
        "What are they good for?",
        "Each encoder is held against tasks with labels or against grammar, and with `--untrained` beside it the same "
        "encoder with weights drawn anew: what pre-training gave is the difference.",
        (downstream,),
        short="Tasks",
    ),
    Question(
        "study",
        "longer",
        "What happens beyond the training length?",
        "A table of positions ends where the training did; here it is continued in several ways, and rotations are "
        "slowed down. What costs nothing is to read a long text in pieces as long as in training: a way is "
        "worth taking where it is better than that.",
        (longer,),
        short="Length",
    ),
    Question(
        "study",
        "corpus",
        "What does the corpus say?",
        "Before any model: how far the words at one position differ from the words at another. Where they hardly do, a "
        "text gives a position table little to learn; the stress says how well a table's distances follow the "
        "text's. Positions count from the start of a document, special tokens left out.",
        (
            fits,
            corpus,
        ),
        short="Corpus",
        folded=True,
    ),
)

GEOMETRY = (
    Question(
        "geometry",
        "support",
        "What is counted?",
        "A position that few documents reach is counted on few tokens, and its distances are mostly noise.",
        (corpus,),
    ),
    Question(
        "geometry",
        "distances",
        "How far apart?",
        "Two positions are close if the same tokens stand there equally often.",
        (corpus,),
    ),
    Question(
        "geometry",
        "shape",
        "What shape?",
        "Distances can be drawn as points in space. Few components hold most of a simple shape; noise needs a "
        "component of its own for every position.",
        (corpus,),
    ),
    Question(
        "geometry",
        "fit",
        "Which encoding fits?",
        "A position encoding also puts positions at distances from each other. Here these are held against the "
        "distances of the corpus.",
        (fits,),
    ),
    Question(
        "geometry",
        "training",
        "Over training",
        "Position tables of models at their kept checkpoints.",
        (corpus,),
    ),
)

SPECTRA = (
    Question(
        "spectra",
        "dimensions",
        "How many dimensions does it use?",
        "Principal components in the order of their variance. Few hold most of a table of learned positions; words "
        "need many.",
        (
            table_shapes,
            shape,
        ),
    ),
    Question(
        "spectra",
        "path",
        "What path do positions take?",
        "From the first position to the last, the vectors of a learned table draw a curve. Seen along single "
        "components it is a wave, seen along two an arc or a circle.",
        (
            shape,
            table_shapes,
        ),
    ),
    Question(
        "spectra",
        "waves",
        "How fast does it vary?",
        "The same scores, taken apart into waves along the positions: cosines of half waves, and Fourier's whole "
        "turns.",
        (
            shape,
            table_shapes,
        ),
    ),
    Question(
        "spectra",
        "distance",
        "Does distance alone count?",
        "If the inner product of two positions depends on their distance alone, the matrix of all inner products has "
        "equal entries along every diagonal.",
        (table_shapes,),
    ),
)
