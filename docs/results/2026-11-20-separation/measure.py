"""Position tables over training against SST-2: the records of this folder (see README.md)."""

import sys

import numpy as np

import whatwhere as ww
from whatwhere.analysis.corpus_geometry import CorpusDistances
from whatwhere.analysis.course import separation_records
from whatwhere.analysis.matrices import condition_records, scores_of_model
from whatwhere.analysis.record_context import RecordContext
from whatwhere.corpus import load_tokenizer, open_source
from whatwhere.corpus.counting import count_source
from whatwhere.geometry import corrected_hellinger, hellinger, positional_distributions
from whatwhere.records.record import write_records
from whatwhere.study.finetune_run import finetune_records

pretraining, pretrained, scratch, sst2, out = sys.argv[1:]
counts = count_source(open_source(sst2, field="sentence"), load_tokenizer(pretraining), 127, workers=1)
kept = positional_distributions(counts.total())
groups = [counts.group(g) for g in range(counts.groups)]
corrected = corrected_hellinger(groups, kept.positions)
corpus = CorpusDistances(hellinger(kept.p), kept.positions, corrected.distances)
records = separation_records(pretraining, RecordContext("pretraining", 0), corpus=corpus)
for run in (pretrained, scratch):
    records += finetune_records(run, corpus)
halves = []
for split in range(10):
    order = np.random.default_rng(split).permutation(len(groups))
    halves.append(
        [
            positional_distributions(counts.of(half), min_support=0).p[kept.positions]
            for half in np.array_split(order, 2)
        ]
    )
for name, folder in (("untrained", f"{pretraining}/checkpoints/step-0"), ("pretrained", pretraining)):
    model = ww.EncoderForMaskedLM.from_pretrained(folder)
    records += condition_records(scores_of_model(model), kept.p, RecordContext(name, 0), halves=halves)
write_records(out, records)
print(len(records), "records,", len(kept.positions), "positions")
