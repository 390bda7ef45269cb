"""Made-up data of the evaluations, in the files of their releases: SQuAD, BLiMP, Holmes, vectors of texts."""

import csv
import json
import lzma

import numpy as np
import yaml
from made_trees import write_trees

from whatwhere.evaluation.holmes import data_sets

ROWS = {  # kind -> inputs and context of a row that says "river" or "song"
    "SENTENCE": lambda w: ([f"The {w} is long ."], ""),
    "SENTENCE_PAIR_BI": lambda w: ([f"The {w} .", "It is long ."], ""),
    "SENTENCE_PAIR_CROSS": lambda w: (["It is long .", f"The {w} ."], ""),
    "SENTENCE_TOKENS": lambda w: ([(w, 0, 4, 4 + len(w))], [f"The {w} is long ."]),
    "SENTENCE_PAIR_TOKENS_BI": lambda w: ([("It", 0, 0, 2), (w, 1, 4, 4 + len(w))], ["It is long .", f"The {w} ."]),
    "SENTENCE_PAIR_TOKENS_CROSS": lambda w: ([("It", 0, 0, 2), (w, 1, 4, 4 + len(w))], ["It is long .", f"The {w} ."]),
    "SENTENCE_SPANS": lambda w: (
        [("The", 0, 0, 3, 0), (w, 0, 4, 4 + len(w), 0), ("long", 0, 8 + len(w), 12 + len(w), 1)],
        [f"The {w} is long ."],
    ),
}
HEAD = ["id", "inputs", "context", "label", "set-0"]
WORDS = [["river", "water", "lake", "valley"], ["music", "song", "album", "band"], ["war", "army", "battle", "king"]]


def about(topic, rng, words=5):
    return " ".join(rng.choice(WORDS[topic], words))


def put(path, text, pack=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    if pack:
        path.with_name(path.name + ".xz").write_bytes(lzma.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")


def lines(rows, end="\n"):
    return "".join("\t".join(map(str, row)) + end for row in rows)


CRANFIELD = {
    "cran.all.1400": ".I 1\n.T\nwings\n.A\nsmith,j.\n.B\n\n.W\nriver water .\n lake .\n.I 2\n.T\n\n.A\n\n.B\n\n.W\n"
    ".I 3\n.T\nsongs\n.A\n\n.B\n\n.W\nmusic song .\n",
    "cran.qry": ".I 004\n.W\nwhat water\nis there .\n.I 009\n.W\nwhat song .\n.I 011\n.W\nnothing .\n",
    "cranqrel": "1 1 2 \r\n1 3 -1\n2 3 4 \n3 2 -1\n",
}


def write_data_set(folder, kind, rows=48, numbers=False):
    """A data set of that kind: which word is it? numbers: as a regression."""
    folder.mkdir(parents=True)
    with (folder / "samples.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(HEAD)
        for i in range(rows):
            inputs, context = ROWS[kind](("river", "song")[i % 2])
            split = ("train", "train", "dev", "test")[i // 2 % 4]
            table.writerow([i, str(inputs), str(context) if context else "", i % 2 + 0.5 * numbers, split])
    settings = {"probe_name": folder.name, "probe_task_type": kind, "num_labels": 1 if numbers else 2}
    settings |= {"control_task_type": "NONE", "probes_samples_path": f"{folder.name}/samples.csv"}
    (folder / "config-none.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return folder


def write_holmes(place):
    """Flash-Holmes as its repository has it: data sets in a folder, which is returned, published tables in another."""
    folder = place / "flash-holmes"
    for kind in ROWS:
        write_data_set(folder / kind.lower(), kind)
    write_data_set(folder / "flesch", "SENTENCE", numbers=True)
    (place / "leaderboards").mkdir()
    lines = [
        ",probing dataset,linguistic subfield,linguistic phenomena,probe type,train portion,probe,some/model,reference"
    ]
    for i, name in enumerate(data_sets(folder)):
        field = ("syntax", "discourse")[i % 2]
        for share in (0.25, 0.5, 1.0)[: 3 if i else 2]:  # of the largest not all are there, as in the published table
            lines.append(
                f"{i},{name},{field},{field} {i // 3} ,sentence classification,{share},{name},{share * i / 10},"
            )
    (place / "leaderboards/flash-holmes.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def write_vectors(folder):
    """Every file of MTEB's local tasks in small, as released: a header or none, quotes, wider rows, packed or plain."""
    rng = np.random.default_rng(0)
    pairs = [(round(5 * rng.random(), 2), about(i % 3, rng), about(i * i % 3, rng)) for i in range(60)]
    years = [(2012 + i % 5, "news", *pair) for i, pair in enumerate(pairs)]
    put(folder / "sts/sts12-16.tsv", lines([("year", "subset", "score", "sentence1", "sentence2"), *years]), True)
    sick = [(("TRAIN", "trial", "test", "test")[i % 4], i, a, b, s, "NEUTRAL") for i, (s, a, b) in enumerate(pairs)]
    head = ("split", "pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
    put(folder / "sts/SICK.tsv", lines([head, *sick]))
    labelled = [("main", "f", "2012", i, *pair, *["licence"] * (i % 2)) for i, pair in enumerate(pairs)]
    put(folder / "glue/STS-B/sts-test-labelled.tsv", lines(labelled, "\r\n"), True)
    for split, n in (("train", 30), ("test", 12)):
        rows = "".join(f'"{about(i % 3, rng)}, ""so""",class_{"cab"[i % 3]}\n' for i in range(n))
        put(folder / f"sentence-classification/banking77/{split}.csv", "text,category\n" + rows, split == "train")
    for name in ("MR", "CR", "SUBJ", "MPQA"):
        for split, n in (("train", 80), ("dev", 20)):
            rows = [(i % 2, about(i % 2, rng)) for i in range(n)]
            put(folder / f"sentence-classification/{name}/{split}.tsv", lines(rows))
    messages = [{"id": str(i), "group": "abc"[i % 3], "subject": about(i % 3, rng), "text": "-"} for i in range(150)]
    put(folder / "clustering/20newsgroups.jsonl", "".join(json.dumps(m) + "\n" for m in messages), True)
    for name, text in CRANFIELD.items():
        put(folder / "retrieval/cranfield" / name, text)
    return folder


def write_pairs(folder, count=6):
    """Pairs of two paradigms, in the folder's `blimp`."""
    (folder / "blimp").mkdir()
    right = {"sentence_good": "The rivers run .", "sentence_bad": "The rivers runs .", "field": "syntax"}
    lines = [json.dumps(right | {"UID": f"p{i % 2}"}) for i in range(count)]
    (folder / "blimp/all.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def question(name="q1", text="Who came?", begin=0, answer="Rollo", **more):
    return {"id": name, "question": text, "answers": [{"answer_start": begin, "text": answer}], **more}


def paragraph(*questions, context="Rollo came to Rouen."):
    return {"context": context, "qas": list(questions)}


def squad(*paragraphs, title="Normans"):
    """The official format: one article."""
    return {"version": "1.1", "data": [{"title": title, "paragraphs": list(paragraphs)}]}


def write(folder, read, name="dev-v1.1.json", pack=False):
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(read).encode()
    (folder / f"{name}{'.xz' * pack}").write_bytes(lzma.compress(text) if pack else text)
    return folder


def made_up(n, seed, articles=5, none=0.0):
    """Paragraphs of words with a year and a name, of which one is asked for; in a share of them that one is missing."""
    rng = np.random.default_rng(seed)
    found = [{"title": f"article {i}", "paragraphs": []} for i in range(articles)]
    things = {"Which year?": ["1912", "1945", "1960"], "Who was it?": ["John", "Mary", "Henry"]}
    for i in range(n):
        texts = list(things)[:: int(rng.choice([1, -1]))]
        right, other = (str(rng.choice(things[text])) for text in texts)
        words = [*map(str, rng.choice(["river", "music", "lake", "song"], 5)), other, *[right] * (rng.random() >= none)]
        words = [words[at] for at in rng.permutation(len(words))]
        context = " ".join(words)
        given = [{"answer_start": context.index(right), "text": right}] if right in words else []
        asked = {"id": f"{seed}-{i}", "question": texts[0], "answers": given}
        found[i % articles]["paragraphs"].append(paragraph(asked, context=context))
    return {"version": "", "data": found}


def write_every_task(folder, texts):
    """Write a few rows for every family of evaluations, of the given texts where their length matters."""
    folder = write_trees(write_vectors(folder))
    pairs = [(text, texts[i // 2][:20]) for i, text in enumerate(texts[:24])]
    for split in ("train", "dev"):
        rows = [f"{i}\t{one}\t{two}\t{'not_' * (i % 2)}entailment\n" for i, (one, two) in enumerate(pairs)]
        put(folder / f"glue/RTE/{split}.tsv", "index\tsentence1\tsentence2\tlabel\n" + "".join(rows))
        write(folder / "squad", made_up(12, len(split)), f"{split}-v1.1.json")
    return folder
