"""BLiMP (Warstadt et al. 2020): pairs of sentences that differ in what makes one of them wrong; a masked-language model
is right where the good one has the higher pseudo-log-likelihood (Salazar et al. 2020)."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..analysis.record_context import RecordContext
from ..corpus.batches import padded
from ..corpus.sources import hub_configs, hub_rows
from ..corpus.text_files import json_rows
from ..records.intervals import share_interval
from ..records.record import Record
from ..run.progress import Progress, ignore_progress
from .examples import Examples, Row, examples, for_one_command

ENDINGS = (".jsonl", ".jsonl.xz", ".jsonl.gz", ".jsonl.zst")
BATCH_TOKENS = 16_384  # of one forward pass, padding included
HUB = "nyu-mll/blimp"
_BRING = "Bring its data/*.jsonl (github.com/alexwarstadt/blimp)"
FIELDS = ("sentence_good", "sentence_bad", "field", "UID")


@dataclass(frozen=True)
class Pair:
    """Minimal pair of BLiMP: two sentences that differ in what makes one of them wrong.

    field: syntax, morphology, semantics or syntax_semantics; paradigm: one of 67; term: the phenomenon that it shows,
    one of 13 such as island_effects; "" where the file does not tell.
    """

    good: str
    bad: str
    field: str
    paradigm: str
    term: str = ""


def blimp_files(data: Path) -> list[Path]:
    """List the files of JSON lines in a folder, or in its folder `blimp`."""
    folder = data / "blimp" if (data / "blimp").is_dir() else data
    return sorted(p for p in folder.glob("*") if p.name.endswith(ENDINGS) and p.is_file()) if folder.is_dir() else []


def read_blimp(data: Path | None, limit: int | None = None) -> list[Pair]:
    """Read the pairs of BLiMP from a folder of JSON lines, plain or packed, or from the Hub.

    Args:
        data: a folder with one file, or one of each paradigm; None: the Hub.
        limit: number of pairs of each paradigm that are read, from the first on.

    Raises:
        ValueError: no such file, a line without a field or with an empty sentence, or the Hub cannot be reached.
    """
    pairs = []
    counts = dict[str, int]()
    for place, row in _of_hub() if data is None else _of_files(data):
        if missing := [name for name in FIELDS if not isinstance(row.get(name), str) or not row[name].strip()]:
            raise ValueError(f"{place}: no text in {missing[0]!r}. Bring a complete copy of BLiMP.")
        paradigm = row["UID"]
        counts[paradigm] = counts.get(paradigm, 0) + 1
        if limit is None or counts[paradigm] <= limit:
            field = row["field"].replace("/", "_")
            term = str(row.get("linguistics_term") or "")
            pairs.append(Pair(row["sentence_good"], row["sentence_bad"], field, paradigm, term))
    return pairs


def _of_files(data: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    files = blimp_files(data)
    if not files:
        raise ValueError(f"{data} holds no BLiMP: no {', '.join(ENDINGS)} there. {_BRING} and give the folder.")
    for path in files:
        yield from json_rows(path)


@for_one_command
def _of_hub() -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Fetch the rows of all paradigms, each a configuration; once a command, as there are 67 of them."""
    advice = f"Without a network: {_BRING} and give the folder: --data FOLDER."
    return [
        (f"{HUB}, {paradigm}, row {number}", row)
        for paradigm in hub_configs(HUB, advice)
        for number, row in enumerate(hub_rows(HUB, paradigm, "train", advice))
    ]


@torch.no_grad()
def pseudo_log_likelihoods(
    model: Any,
    tokenizer: Any,
    sentences: Sequence[str],
    *,
    batch_tokens: int = BATCH_TOKENS,
    progress: Progress = ignore_progress,
) -> np.ndarray:
    """Compute the pseudo-log-likelihood of each sentence in nats: (n,), by masking its tokens one at a time.

    It is the sum over the tokens of the log-probability of a token where it alone is masked (Salazar et al. 2020).
    Special tokens are neither masked nor counted. One row a token, in batches of rows of nearly one length.

    Raises:
        ValueError: a sentence without a token, a tokenizer without a mask token, or more tokens than the model reads.
    """
    if tokenizer.mask_token_id is None:
        raise ValueError("The tokenizer has no mask token, so nothing can be masked. Give a masked-language model.")
    encoded = tokenizer(list(sentences), return_special_tokens_mask=True, verbose=False)
    ids = [np.array(row, np.int64) for row in encoded["input_ids"]]
    places = [np.flatnonzero(np.array(mask) == 0) for mask in encoded["special_tokens_mask"]]
    if empty := [i for i, at in enumerate(places) if not len(at)]:
        raise ValueError(f"The sentence {sentences[empty[0]]!r} has no token. Leave it out.")
    rows = [(i, int(at)) for i in sorted(range(len(ids)), key=lambda i: len(ids[i])) for at in places[i]]
    sums = np.zeros(len(ids))
    for done, part in _batches(rows, ids, batch_tokens):
        sentence_numbers = np.array([i for i, _ in part])
        at = torch.tensor([place for _, place in part])
        input_ids = padded([ids[i] for i in sentence_numbers], tokenizer.pad_token_id)
        lengths = np.array([len(ids[i]) for i in sentence_numbers])
        inputs = torch.from_numpy(input_ids)
        masked = torch.arange(len(part)), at
        targets = inputs[masked].clone()
        inputs[masked] = tokenizer.mask_token_id
        mask = torch.from_numpy((np.arange(inputs.shape[1]) < lengths[:, None]).astype(np.int64))
        logits = _logits(model, inputs, mask, masked, targets)
        log_probabilities = torch.log_softmax(logits.double(), -1)[masked[0], targets]
        np.add.at(sums, sentence_numbers, log_probabilities.cpu().numpy())
        progress(done, len(rows), "pairs")
    return sums


def _batches(
    rows: Sequence[tuple[int, int]], ids: Sequence[np.ndarray], tokens: int
) -> Iterator[tuple[int, Sequence[tuple[int, int]]]]:
    """Yield pieces of rows, sorted by length, of at most `tokens` tokens, and the number of rows up to each end."""
    begin = 0
    while begin < len(rows):
        end = begin + 1
        while end < len(rows) and (end + 1 - begin) * len(ids[rows[end][0]]) <= tokens:
            end += 1
        yield end, rows[begin:end]
        begin = end


def _logits(
    model: Any, inputs: torch.Tensor, mask: torch.Tensor, masked: tuple[Any, Any], targets: torch.Tensor
) -> Any:
    """Compute logits at the masked places: (rows, vocabulary). Ours projects the vocabulary there alone."""
    device = model.device
    if model.config.model_type == "whatwhere":
        labels = torch.full_like(inputs, -100)
        labels[masked] = targets
        options = {"labels": labels.to(device), "targets_only": True}
        return model(input_ids=inputs.to(device), attention_mask=mask.to(device), **options).logits.cpu()
    return model(input_ids=inputs.to(device), attention_mask=mask.to(device)).logits[masked].cpu()


def right(model: Any, tokenizer: Any, pairs: Sequence[Pair], **how: Any) -> np.ndarray:
    """Judge each pair: 1 where the good sentence is likelier, 0.5 at a tie, else 0; (n,) float64.

    Raises:
        ValueError: as `pseudo_log_likelihoods`.
    """
    values = pseudo_log_likelihoods(model, tokenizer, [s for pair in pairs for s in (pair.good, pair.bad)], **how)
    good = values[::2]
    bad = values[1::2]
    return np.where(good == bad, 0.5, (good > bad).astype(float))


@dataclass(frozen=True)
class Acceptability:
    """Probing task made of BLiMP: is this sentence, alone, the good one of its pair?

    One probe reads the mean state of sentences of all paradigms; of each paradigm eight of ten pairs train, one is of
    the development part, one of the test.
    """

    words: bool = False
    most: int | None = None
    number: bool = False

    def has_files(self, data: Path | None) -> bool:
        """Tell if a folder has files of BLiMP, whole or not; the Hub always has."""
        return data is None or bool(blimp_files(data))

    def check(self, data: Path | None) -> None:
        """Refuse a missing or damaged BLiMP.

        Raises:
            ValueError: as `read_blimp`, or fewer than 10 pairs of a paradigm.
        """
        counts = Counter(pair.paradigm for pair in read_blimp(data, 10))
        if few := [name for name, count in counts.items() if count < 10]:
            raise ValueError(f"{few[0]} has {counts[few[0]]} pairs; a probe needs 10. Bring a complete copy of BLiMP.")

    def examples(self, data: Path | None, split: str, limit: int | None) -> Examples:
        """Read both sentences of the pairs of a split, of all paradigms in turn.

        Of every ten pairs of a paradigm the first eight train, the ninth is of "dev", the tenth of "test".

        Raises:
            ValueError: as `read_blimp`.
        """
        place = {"train": range(8), "dev": (8,), "test": (9,)}[split]
        counts: dict[str, int] = defaultdict(int)
        numbered_pairs = []
        for pair in read_blimp(data):
            if counts[pair.paradigm] % 10 in place:
                numbered_pairs.append((counts[pair.paradigm], pair))
            counts[pair.paradigm] += 1
        numbered_pairs.sort(key=lambda numbered: numbered[0])
        return examples(
            (
                Row(text, ((0, -1),), label, pair.paradigm)
                for _, pair in numbered_pairs
                for text, label in ((pair.good, "good"), (pair.bad, "bad"))
            ),
            limit,
        )


def paradigm_mean(shares: np.ndarray, paradigms: np.ndarray) -> float:
    """Return the mean over paradigms of the share of pairs that are right, in [0, 1].

    Args:
        shares: (n,) what `right` gives. paradigms: (n,) the number of each pair's paradigm, from 0.
    """
    counts = np.bincount(paradigms)
    return float((np.bincount(paradigms, shares)[counts > 0] / counts[counts > 0]).mean())


def paradigm_numbers(pairs: Sequence[Pair]) -> np.ndarray:
    """Number the paradigms in the order in which they come; return the number of each pair's paradigm, (n,)."""
    number: dict[str, int] = {}
    return np.array([number.setdefault(pair.paradigm, len(number)) for pair in pairs], int)


def blimp_records(context: RecordContext, pairs: Sequence[Pair], judged: np.ndarray) -> list[Record]:
    """Return the records of BLiMP: the share of pairs that a model has right, by paradigm, field, term and over all.

    Shares of fields, terms and of all are means of paradigms.

    Args:
        judged: (n,) as `right` returns for the pairs.
    """
    of: dict[str, list[float]] = defaultdict(list)
    for pair, share in zip(pairs, judged, strict=True):
        of[pair.paradigm].append(float(share))
    shares = {paradigm: float(np.mean(values)) for paradigm, values in of.items()}
    records = [
        context.record("blimp.paradigm", share, *share_interval(round(sum(of[p])), len(of[p])), part=p, n=len(of[p]))
        for p, share in shares.items()
    ]
    for metric, group_of in (
        ("blimp.field", {pair.paradigm: pair.field for pair in pairs}),
        ("blimp.term", {pair.paradigm: pair.term for pair in pairs if pair.term}),
    ):
        for group in dict.fromkeys(group_of.values()):
            within = [paradigm for paradigm, name in group_of.items() if name == group]
            mean = float(np.mean([shares[paradigm] for paradigm in within]))
            records.append(context.record(metric, mean, part=group, n=sum(len(of[paradigm]) for paradigm in within)))
    return [*records, context.record("blimp", float(np.mean(list(shares.values()))), n=len(pairs))]
