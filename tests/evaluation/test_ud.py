"""Trees are read as they stand in CoNLL-U, and what is asked of them is true of them."""

import lzma
from collections import Counter

import numpy as np
import pytest
from made_trees import write_trees

from whatwhere.evaluation.examples import examples, numbered
from whatwhere.evaluation.ud import SPLITS, TASKS, read_trees, tree_file

# From the documentation of CoNLL-U and in the style of EWT: a contraction, an empty node, a word without a space.
WORKED = """# sent_id = 1
# text = Sue can't swim, and Paul dances well.
1\tSue\tSue\tPROPN\tNNP\tNumber=Sing\t4\tnsubj\t_\t_
2-3\tcan't\t_\t_\t_\t_\t_\t_\t_\t_
2\tca\tcan\tAUX\tMD\tVerbForm=Fin\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tswim\tswim\tVERB\tVB\tVerbForm=Inf\t0\troot\t_\tSpaceAfter=No
5\t,\t,\tPUNCT\t,\t_\t8\tpunct\t_\t_
6\tand\tand\tCCONJ\tCC\t_\t8\tcc\t_\t_
7\tPaul\tPaul\tPROPN\tNNP\tNumber=Sing\t8\tnsubj\t_\t_
8\tdances\tdance\tVERB\tVBZ\tTense=Pres|VerbForm=Fin\t4\tconj:and\t_\t_
8.1\tgreatly\t_\t_\t_\t_\t_\t_\t8:x\t_
9\twell\twell\tADV\tRB\t_\t8\tadvmod\t_\tSpaceAfter=No
10\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\tSpaceAfter=No

1\tWanna\twanna\tVERB\tVBP\t_\t0\troot\t_\t_
2-3\tau\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
2\tà\tà\tADP\t_\t_\t1\tcase\t_\t_
3\tle\tle\tDET\t_\t_\t1\tdet\t_\t_
4\t?\t?\tPUNCT\t.\t_\t1\tpunct\t_\t_
"""


@pytest.fixture
def worked(tmp_path):
    for split in SPLITS:
        (tmp_path / f"en_x-ud-{split}.conllu.xz").write_bytes(lzma.compress(WORKED.encode()))
    return tmp_path


def rows_of(name, sentence, seed=0):
    return list(TASKS[name].rows(sentence, np.random.default_rng(seed)))


def test_words_stand_on_their_characters(worked):
    first, second = read_trees(worked, "train")
    assert first.text == "Sue can't swim, and Paul dances well." and second.text == "Wanna au?"
    assert all(first.text[w.start : w.end] == w.form for w in first.words) and len(first.words) == 10
    assert [second.text[w.start : w.end] for w in second.words] == ["Wanna", "au", "au", "?"]
    assert first.depths() == [1, 1, 1, 0, 2, 2, 2, 1, 2, 1] and first.root == 3
    assert [first.words[i].form for i in first.below(7)] == [",", "and", "Paul", "dances", "well"]
    assert len(read_trees(worked, "dev", 1)) == 1


def test_questions_are_true_of_the_tree(worked):
    first = read_trees(worked, "train")[0]
    assert [row.label for row in rows_of("pos", first)][:3] == ["PROPN", "AUX", "PART"]
    assert [row.label for row in rows_of("deprel", first)][7] == "conj"
    assert [row.label for row in rows_of("depth", first)] == ["2"]
    assert [row.label for row in rows_of("constituents", first)] == ["subject root conjunct"]
    assert [row.label for row in rows_of("length", first)] == ["9-12"]
    assert rows_of("tense", first) == []  # "can" has none
    assert [row.label for row in rows_of("subject-number", first)] == ["Sing"]
    for seed in range(6):
        arcs = rows_of("arc", first, seed)
        heads = {(w.start, w.end): (h.start, h.end) for w in first.words if w.head >= 0 for h in [first.words[w.head]]}
        assert len(arcs) == 7 and all((heads[r.spans[0]] == r.spans[1]) == (r.label == "head") for r in arcs)


def test_inverted_and_shifted_sentences_keep_their_words(worked):
    """Inverted coordinations and shifted bigrams are their sentences in another order."""
    first = read_trees(worked, "train")[0]
    inverted = {row.label: row.text for seed in range(9) for row in rows_of("coordination", first, seed)}
    assert inverted == {
        "as it was": "Sue ca n't swim , and Paul dances well .",
        "inverted": "Paul dances well , and Sue ca n't swim .",
    }
    forms = [word.form for word in first.words]
    for seed in range(20):
        (row,) = rows_of("bigram-shift", first, seed)
        moved = [i for i, form in enumerate(row.text.split()) if form != forms[i]]
        assert len(moved) == (2 if row.label == "shifted" else 0) and sorted(row.text.split()) == sorted(forms)
        assert not moved or (moved[1] - moved[0] == 1 and moved[0] > 0 and not {4, 9} & set(moved))


def test_every_task_of_a_treebank_has_valid_examples(tmp_path):
    """Examples are equal in a second call, within the limit, and their places lie inside the texts."""
    data = write_trees(tmp_path)
    for name, task in TASKS.items():
        task.check(data)
        made = {split: task.examples(data, split, 50) for split in SPLITS}
        again = task.examples(data, "train", 50)
        assert made["train"].places == again.places and made["train"].labels == again.labels, name
        for each in made.values():
            counts = Counter(each.labels)
            assert 0 < len(each) <= 50 and len(counts) > 1, name
            if task.balanced and len(each) < 50:
                assert len(set(counts.values())) == 1, name
            places = [slot for row in each.places for slots in row for slot in slots]
            assert all(0 <= s.start < s.end <= len(each.texts[s.text]) for s in places)


def test_rare_classes_share_one_number():
    """Classes beyond the most frequent ones become `other`; without a limit an untrained class is -1."""
    rows = {split: examples([]) for split in SPLITS}
    rows["train"].labels.extend("aaabbcd")
    rows["test"].labels.extend("cax")
    assert numbered(rows, 2)[0] == ["a", "b", "other"] and numbered(rows, 2)[1]["test"].tolist() == [2, 0, 2]
    assert numbered(rows)[0] == ["a", "b", "c", "d"] and numbered(rows)[1]["test"].tolist() == [2, 0, -1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("\t_\t_\n2-3", "\t_\n2-3"), "line 3: 9 columns, where CoNLL-U has 10"),
        (("\t4\taux", "\tfour\taux"), "head 'four' ends no tree"),
        (("\t0\troot\t_\tSpace", "\t2\troot\t_\tSpace"), "has no single root"),
    ],
)
def test_damaged_trees_are_named(worked, change, said):
    path = tree_file(worked, "train")
    path.write_bytes(lzma.compress(WORKED.replace(*change).encode()))
    with pytest.raises(ValueError, match=said):
        read_trees(worked, "train")


def test_missing_trees_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"no \*-ud-dev.conllu .* Bring UD_English-EWT"):
        read_trees(tmp_path, "dev")
