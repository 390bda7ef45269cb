"""Linear probes over cached features, all at once: every layer, stream, seed and control in the same matrix products.

The protocol is Holmes' (Waldis et al. 2024): one linear layer behind dropout, Adam, a rate that rises and falls
linearly, the epoch that is best on the development rows. Beside it the controls of Hewitt & Liang (2019) and the online
code of Voita & Titov (2020). Without dropout and with a penalty it converges to scikit-learn's LogisticRegression.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

CHUNK = 4096  # rows of a product where nothing is trained
# Shares of the training rows after which the online code trains anew (Voita & Titov, section 4.1).
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Protocol:
    """Protocol by which a probe is trained: features, optimizer, schedule, batches and regularisation.

    rate: of Adam; it rises over the share `warmup` of all steps of `epochs` passes and falls to 0. batch_size: most
    rows of a step; batches: fewest steps of a pass, where there are 16 rows for each. dropout: of the features.
    patience: passes without a lower loss of the development rows after which a probe stops; 0: it never does, and the
    last pass is kept. penalty: λ of λ/2 |W|² beside the mean loss; scikit-learn's C is 1 / (λ · rows). standardise:
    columns to mean 0 and deviation 1 over the training rows. twice: the loss takes the softmax of the softmax, as the
    published code of Holmes does. normed: the last layer is read after the encoder's final norm, as that code reads it.
    """

    rate: float = 0.02
    epochs: int = 10
    batch_size: int = 256
    batches: int = 32
    dropout: float = 0.0
    warmup: float = 0.1
    patience: int = 5
    penalty: float = 0.0
    standardise: bool = True
    twice: bool = False
    normed: bool = False

    def batch_of(self, rows: int) -> int:
        """Return the rows of a training step for a number of training rows."""
        return min(self.batch_size, rows, max(16, rows // max(self.batches, 1)))


PLAIN = Protocol()  # as good as a converged LogisticRegression on the states of a small encoder, in a tenth of the time
OF_HOLMES = Protocol(
    rate=1e-3, epochs=20, batch_size=16, batches=0, dropout=0.2, standardise=False, twice=True, normed=True
)


@dataclass(frozen=True, eq=False)
class Rows:
    """Features and labels of the rows that probes read.

    features: (f, n, d) float32, one (n, d) for each layer. labels: (v, n), several labellings of the same rows: class
    numbers, or numbers to regress.
    """

    features: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return self.features.shape[1]

    def part(self, begin: int, end: int) -> "Rows":
        """Return the rows from `begin` to `end`, without `end`."""
        return Rows(self.features[:, begin:end], self.labels[:, begin:end])


@dataclass(frozen=True, eq=False)
class Probes:
    """Trained probes (f, s, p, v): of each layer, seed, set of columns and labelling.

    weights: (f, s, d + 1, p · v · c), the last row for a column of ones; classes: c, or 0 of a regression. mean, scale:
    (f, 1, d); the probes read (features - mean) · scale, and scale is 1 / deviation, 0 for constant columns, 1 where
    features are not standardised. losses: (f, s, p, v) of the development rows, at the epoch that is kept. twice: as in
    `Protocol`.
    """

    weights: Tensor
    mean: Tensor
    scale: Tensor
    losses: np.ndarray
    classes: int
    twice: bool

    def map_outputs(self, features: np.ndarray, say: Callable[[Tensor, slice], Tensor]) -> np.ndarray:
        """Apply a function to the outputs of all probes, chunk by chunk of the rows: (f, s, p, v, n).

        Args:
            features: (f, n, d) float32. say: takes outputs (f, rows, s, p, v, c) and the slice of their rows, and
                returns (f, rows, s, p, v).
        """
        f, s, d, width = self.weights.shape
        weights = self.weights.transpose(1, 2).reshape(f, d, s * width)
        results = []
        for begin in range(0, features.shape[1], CHUNK):
            rows = slice(begin, begin + CHUNK)
            x = _with_ones((torch.from_numpy(features[:, rows]) - self.mean) * self.scale)
            outputs = torch.bmm(x, weights).view(f, x.shape[1], *self.losses.shape[1:], -1)
            results.append(say(outputs, rows))
        return np.moveaxis(torch.cat(results, 1).numpy(), 1, -1)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predict the class number, or number, of each row from features (f, n, d): (f, s, p, v, n)."""
        return self.map_outputs(features, lambda out, _: out.argmax(-1) if self.classes else out[..., 0])

    def row_losses(self, rows: Rows) -> np.ndarray:
        """Compute the loss of each row: (f, s, p, v, n), in nats, or Huber's of a regression."""
        labels = torch.from_numpy(rows.labels)

        def say(outputs: Tensor, part: slice) -> Tensor:
            return _losses(outputs, labels[:, part].T[None, :, None, None], self.classes, self.twice)

        return self.map_outputs(rows.features, say)


def _with_ones(x: Tensor) -> Tensor:
    """Append a column of ones, whose weights are the intercepts: (f, n, d + 1)."""
    return torch.cat([x, torch.ones(*x.shape[:2], 1)], -1)


def _losses(outputs: Tensor, labels: Tensor, classes: int, twice: bool) -> Tensor:
    """Compute the loss of each output (..., c) with a label (...), which may be broadcast."""
    if not classes:
        off = (outputs[..., 0] - labels).abs()
        return torch.where(off < 1, off**2 / 2, off - 0.5)
    logs = torch.log_softmax(outputs.softmax(-1) if twice else outputs, -1)
    return -logs.gather(-1, labels.expand(outputs.shape[:-1])[..., None])[..., 0]


def train_probes(
    train: Rows, dev: Rows, columns: np.ndarray, classes: int, seeds: Sequence[int], protocol: Protocol = PLAIN
) -> Probes:
    """Train a probe for each layer, seed, set of columns and labelling, all in the same matrix products.

    A seed draws first weights, the order of the rows and dropout; its probes are the same whatever else is
    trained with them. Each stops for itself, and keeps the epoch of its lowest loss on the development rows.

    Args:
        columns: (p, d) bool, the columns of the features that each probe reads.
        classes: number of classes, 0 for a regression with Huber's loss.

    Raises:
        ValueError: no rows, features that are not finite, or labels that are no class.
    """
    _check(train, dev, classes)
    x = torch.from_numpy(train.features)
    y = torch.from_numpy(train.labels)
    (f, n, d) = x.shape
    v = len(y)
    p = len(columns)
    s = len(seeds)
    c = max(classes, 1)
    b = protocol.batch_of(n)
    mean = torch.zeros(f, 1, d)
    scale = torch.ones(f, 1, d)
    if protocol.standardise:
        mean = x.mean(1, keepdim=True)
        spread = x.std(1, correction=0, keepdim=True)
        scale = torch.where(spread > 1e-6 * mean.abs().clamp(min=1e-6), 1 / spread, 0.0)
    x = _with_ones((x - mean) * scale)
    generators = [torch.Generator().manual_seed(int(seed)) for seed in seeds]
    read = torch.from_numpy(np.pad(columns, ((0, 0), (0, 1)), constant_values=True)).float()  # (p, d + 1)
    first = torch.stack([_drawn(read, v * c, g) for g in generators])
    read = read.T[:, :, None].expand(d + 1, p, v * c).reshape(d + 1, -1)
    weights = first.expand(f, *first.shape).reshape(f * s, d + 1, -1).clone()
    adam = torch.optim.Adam([weights], lr=0.0, fused=True)
    probes = Probes(weights.view(f, s, d + 1, -1), mean, scale, np.zeros((f, s, p, v)), classes, protocol.twice)
    best_weights = probes.weights.clone()
    best = np.full((f, s, p, v), np.inf)
    waited = np.zeros((f, s, p, v), int)
    step = 0
    steps = -(-n // b) * protocol.epochs
    for _ in range(protocol.epochs):
        order = torch.stack([torch.randperm(n, generator=g) for g in generators])  # (s, n)
        for begin in range(0, n, b):
            at = order[:, begin : begin + b]
            batch = torch.empty(f, at.numel(), d + 1)
            for layer, rows in zip(x, batch, strict=True):  # whole rows: several times as fast as x[:, at]
                torch.index_select(layer, 0, at.flatten(), out=rows)
            batch = batch.view(f, s, -1, d + 1)
            if protocol.dropout:
                batch *= _dropped(at.shape[1], d, protocol.dropout, generators)
            batch = batch.view(f * s, -1, d + 1)
            outputs = torch.bmm(batch, weights)
            slope = _slope(outputs.view(f, s, -1, p, v, c), y[:, at].permute(1, 2, 0), classes, protocol.twice)
            weights.grad = torch.bmm(batch.transpose(1, 2), slope.view(outputs.shape)).mul_(read / at.shape[1])
            if protocol.penalty:
                weights.grad[:, :-1] += protocol.penalty * weights[:, :-1]
            adam.param_groups[0]["lr"] = protocol.rate * _share(step, steps, protocol.warmup)
            adam.step()
            step += 1
        losses = probes.row_losses(dev).mean(-1)
        better = (losses < best) & (waited < protocol.patience) if protocol.patience else np.full(best.shape, True)
        best = np.where(better, losses, best)
        waited = np.where(better, 0, waited + (waited < protocol.patience))
        where = torch.from_numpy(better)[:, :, None, :, :, None]
        shape = (f, s, d + 1, p, v, c)
        best_weights = torch.where(where, probes.weights.view(shape), best_weights.view(shape)).view(best_weights.shape)
        if protocol.patience and (waited >= protocol.patience).all():
            break
    return replace(probes, weights=best_weights, losses=best)


def _check(train: Rows, dev: Rows, classes: int) -> None:
    for rows, name in ((train, "training"), (dev, "development")):
        if not len(rows):
            raise ValueError(f"There are no {name} rows to probe. Give more text.")
        if not np.isfinite(rows.features).all():
            raise ValueError(f"The features of the {name} rows have NaN or infinite values. Train the model anew.")
        if classes and not (0 <= rows.labels.min() and rows.labels.max() < classes):
            strange = rows.labels.min() if rows.labels.min() < 0 else rows.labels.max()
            raise ValueError(
                f"A label of the {name} rows is {strange}, not a class from 0 to {classes - 1}. Correct it."
            )


def _drawn(read: Tensor, width: int, generator: torch.Generator) -> Tensor:
    """Draw first weights (d + 1, p · width) of one seed, as torch's Linear; 0 in columns that a probe does not read."""
    drawn = []
    for mask in read:
        most = float((mask.sum() - 1).clamp(min=1) ** -0.5)
        drawn.append(torch.rand(len(mask), width, generator=generator).mul_(2).sub_(1).mul_(most) * mask[:, None])
    return torch.cat(drawn, 1)


def _dropped(rows: int, d: int, share: float, generators: Sequence[torch.Generator]) -> Tensor:
    """Draw the factors of dropout for the features: (seeds, rows, d + 1); the column of ones stays."""
    drawn = torch.ones(len(generators), rows, d + 1)
    for factors, generator in zip(drawn, generators, strict=True):
        factors[:, :d] = (torch.rand(rows, d, generator=generator) >= share).float().div_(1 - share)
    return drawn


def _slope(outputs: Tensor, labels: Tensor, classes: int, twice: bool) -> Tensor:
    """Compute the gradient of the summed loss of a batch, for outputs (f, s, b, p, v, c) and labels (s, b, v)."""
    if not classes:
        return (outputs - labels[None, :, :, None, :, None]).clamp_(-1, 1)
    if classes == 2 and not twice:  # softmax over two is slow, and is a sigmoid
        slope = (outputs[..., 1] - outputs[..., 0]).sigmoid_().sub_(labels[None, :, :, None, :])
        return torch.stack([-slope, slope], -1)
    index = labels[None, :, :, None, :, None].expand(*outputs.shape[:-1], 1)
    minus = torch.full((), -1.0).expand(index.shape)
    shares = outputs.softmax(-1)
    if not twice:
        return shares.scatter_add_(-1, index, minus)
    slope = shares.softmax(-1).scatter_add_(-1, index, minus)
    return shares * (slope - (shares * slope).sum(-1, keepdim=True))


def _share(step: int, steps: int, warmup: float) -> float:
    """Compute the share of the rate at a step from 0: it rises over the first steps and falls to 0 at the last."""
    rise = warmup * steps
    return step / max(rise, 1) if step < rise else max(0.0, (steps - step) / max(1.0, steps - rise))


def codelength(
    train: Rows, dev: Rows, columns: np.ndarray, classes: int, seeds: Sequence[int], protocol: Protocol = PLAIN
) -> np.ndarray:
    """Compute the online codelength of the training labels in their order, (f, s, p, v) bits (Voita & Titov 2020, 3.2).

    The first share of `PORTIONS` costs log2(classes) a label; each further block costs what probes say of it that are
    trained on all before it. The uniform code costs rows · log2(classes): its length over this is the compression.

    Args:
        columns, classes, seeds: as `train_probes`.

    Raises:
        ValueError: fewer than two classes, or as `train_probes`.
    """
    if classes < 2:
        raise ValueError(f"The online code is of two classes or more. Got classes={classes}.")
    ends = sorted({round(share * len(train)) for share in PORTIONS} - {0})
    bits = np.full((train.features.shape[0], len(seeds), len(columns), len(train.labels)), ends[0] * np.log2(classes))
    for end, following in zip(ends, ends[1:], strict=False):
        probes = train_probes(train.part(0, end), dev, columns, classes, seeds, replace(protocol, twice=False))
        bits += probes.row_losses(train.part(end, following)).sum(-1) / np.log(2)
    return bits


def control_labels(types: Sequence[Sequence[str]], labels: np.ndarray, seed: int = 0) -> list[np.ndarray]:
    """Draw the labels of a control task: each word type gets one label of the training rows.

    The control is from Hewitt & Liang (2019, section 2).

    Args:
        types: of each split the word type of each row. labels: (n,) of the training rows.

    Returns:
        Of each split (rows,) labels.
    """
    rng = np.random.default_rng(seed)
    all_types = sorted({word for split in types for word in split})
    label = dict(zip(all_types, rng.choice(labels, len(all_types)), strict=True))
    return [np.array([label[word] for word in split], labels.dtype) for split in types]


def commonest_by(train_keys: Sequence[str], labels: np.ndarray, keys: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Guess the class of rows without a model: the commonest of all training rows, and of those with the same key.

    Args:
        labels: (n,) class numbers of the training rows. keys: of the rows to guess.

    Returns:
        Two guesses (rows,): of all rows, and by the key (where training has no such key, of all); of classes that are
        equally common the first.
    """
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for key, label in zip(train_keys, labels.tolist(), strict=True):
        counts[key][label] += 1
    first = int(np.bincount(labels).argmax())
    of = {key: min(of.items(), key=lambda pair: (-pair[1], pair[0]))[0] for key, of in counts.items()}
    return np.full(len(keys), first), np.array([of.get(key, first) for key in keys], int)
