"""Made-up trees in CoNLL-U: a hundred sentences of a small grammar, in three splits."""

import numpy as np

SPLITS = {"train": 90, "dev": 40, "test": 40}
_NOUNS = {"Sing": ("river", "song", "album"), "Plur": ("rivers", "songs", "albums")}
_VERBS = {"Past": ("saw", "made"), "Pres": ("see", "make")}


def clause(rng, first):
    """Lines (form, tag, features, head, label) of a clause, heads counted from `first`, its verb third."""
    number = rng.choice(["Sing", "Plur"], 2)
    tense = rng.choice(["Past", "Pres"])
    subject, other = (rng.choice(_NOUNS[each]) for each in number)
    verb = first + 2
    return [
        ("the", "DET", "_", first + 1, "det"),
        (str(subject), "NOUN", f"Number={number[0]}", verb, "nsubj"),
        (str(rng.choice(_VERBS[tense])), "VERB", f"Tense={tense}|VerbForm=Fin", 0, "root"),
        ("the", "DET", "_", first + 4, "det"),
        (str(other), "NOUN", f"Number={number[1]}", verb, "obj"),
        ("quickly", "ADV", "_", verb, "advmod:how"),
    ][: 6 if rng.random() < 0.5 else 5]


def sentence(rng):
    """Lines of one or two clauses and a full stop."""
    lines = clause(rng, 1)
    if rng.random() < 0.6:
        more = clause(rng, len(lines) + 3)
        verb = len(lines) + 5
        more[2] = (*more[2][:3], 3, "conj")
        lines += [(",", "PUNCT", "_", verb, "punct"), ("and", "CCONJ", "_", verb, "cc"), *more]
    return [*lines, (".", "PUNCT", "_", 3, "punct")]


def conllu(lines):
    """A sentence as CoNLL-U."""
    rows = [
        "\t".join([str(i), form, form, tag, "_", features, str(head), label, "_", "_"])
        for i, (form, tag, features, head, label) in enumerate(lines, 1)
    ]
    return "\n".join(["# text = made up", *rows]) + "\n\n"


def write_trees(folder, splits=SPLITS):
    """The three files of a small treebank, in the folder's `ud-ewt`."""
    rng = np.random.default_rng(0)
    (folder / "ud-ewt").mkdir(parents=True)
    for split, count in splits.items():
        text = "".join(conllu(sentence(rng)) for _ in range(count))
        (folder / f"ud-ewt/en_made-ud-{split}.conllu").write_text(text, encoding="utf-8")
    return folder
