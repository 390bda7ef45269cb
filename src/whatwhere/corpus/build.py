"""Documents to windows of token ids, in a folder whose facts and counts windows.py reads.

Text is read once, in order, into shards, none of which reaches over two `files` of a source; worker processes turn each
into rows (shards.py). A finished shard is on disk with the hash of its text, so a killed run goes on where it stopped.
Memory holds a few shards, whatever the size of the corpus.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from ..geometry.counts import in_lists
from ..run.cluster import Cluster
from ..run.executors import Job
from ..run.folder import RunFolder
from ..run.processes import check_not_spawned
from ..run.progress import estimate_total, progress_bar
from ..run.shard_pool import ShardPool
from .segments import SPECIAL
from .shards import (
    JOINS,
    PIECES,
    SHARD_CHARACTERS,
    SPLITS,
    Part,
    ShardSettings,
    document_share,
    files_of,
    write_shard,
)
from .source import Source, numbered_lists
from .tokenizer import has_newline_token, load_tokenizer, special_token_ids, tokenizer_hash
from .windows import BUILT, FACTS, FORMAT, Windows, WindowSet, allow_open_files, is_built

KIND = "windows"
SETTINGS = "settings.json"
REQUEST = "tokenizer_request"  # its key for what the tokenizer was loaded or made by
AUTO = "auto"  # first pieces where they are enough text, else all
ENOUGH = 20_000  # training windows of first pieces that are enough text: what the recipe of size `tiny` reads


def build_windows(
    source: Source,
    tokenizer: PreTrainedTokenizerFast,
    out: str | Path,
    length: int = 128,
    join: str = "run-on",
    pieces: str = AUTO,
    held_out: float = 0.05,
    workers: int | None = None,
    progress: bool = True,
    shard_characters: int = SHARD_CHARACTERS,
    tokenizer_request: Mapping[str, Any] | None = None,
    cluster: Cluster | None = None,
) -> Windows:
    """Cut the documents of `source` into windows of at most `length` tokens, [CLS] and [SEP] included, in `out`.

    A finished folder of the same settings and text is opened unchanged; an unfinished one is completed. One process
    works in it at a time (`RunFolder.open`).

    Args:
        join: "run-on" (documents follow each other in full rows), "none" (a window is a piece of one document) or
            "isolate" (several documents or pieces in a row, told apart by document_ids, positions restarted).
        pieces: where documents do not run on: "first" keeps the beginning of each alone, so that position 0 is always a
            document's (DSTG's code truncates so), "all" cuts a long document into several windows, "auto" takes the
            first pieces of join=none where they are `ENOUGH` windows to train on, else all; `Windows.facts` say which.
        held_out: share of the documents kept from training, by a hash of their text. Where that gives none, the
            document with the smallest hash is kept; where all the text is one document, none is, and the
            facts say so.
        workers: processes, this one included; default one a core. They start only for a large corpus
            (shard_pool.WORTH_PROCESSES).
        progress: a bar and a line of counts on stderr.
        tokenizer_request: what the tokenizer was loaded or made by, for `saved_tokenizer` of a later call.
        cluster: workers that tokenise in place of processes of this machine, which reads the text.

    Raises:
        ValueError: a setting is out of range, `out` holds windows of other settings or another text, or there is
            nothing to train on.
        InUse: another process makes them.
    """
    out = Path(out)
    _check_workers(workers)
    settings = _settings(source, tokenizer, held_out, length, join, pieces, shard_characters)
    if is_built(out):
        RunFolder.tidy(out)
        _check_settings(RunFolder.at(out), settings)
        return Windows(out)
    with RunFolder.open(out, KIND) as run:
        _check_settings(run, settings)
        if is_built(out):  # by another process meanwhile
            return Windows(out)
        _begin(run, tokenizer, settings, tokenizer_request)
        with _builder(run, source, tokenizer, settings, workers, progress, cluster) as build:
            pieces_now = _likely_pieces(join, pieces)
            shards = build(held_out, pieces_now)
            if pieces == AUTO and pieces_now == "first" and _total(shards, "windows")["train"] < ENOUGH:
                pieces_now = "all"
                shards = build(held_out, pieces_now)
            if held_out and _total(shards, "documents")["train"] > 1 and not _total(shards, "windows")["held_out"]:
                least = min(s["least_share"] for s in shards)  # too few documents: keep the smallest hash
                shards = build(float(np.nextafter(least, 1)), pieces_now)
            if _total(shards, "windows")["held_out"] and not _total(shards, "windows")["train"]:
                # The few documents, or one document again and again, all fell to the held-out side.
                shards = build(0.0, pieces_now)
        if not _total(shards, "windows")["train"]:
            run.remove("shards", "tokenizer", SETTINGS)
            count = sum(_total(shards, "documents").values())
            raise ValueError(
                f"Corpus {source.name} gives no window to train on: {count} documents with text. Give a corpus that "
                "has some."
            )
        windows = _finish(run, {**settings, "pieces": pieces_now}, shards)
    if progress:
        facts = {key: sum(windows.facts[key].values()) for key in ("documents", "characters", "tokens")}
        counts = ", ".join(f"{value:,} {key}" for key, value in facts.items())
        sizes = f"{len(windows['train']):,} windows to train on, {len(windows['held_out']):,} held out"
        print(f"{source.name}: {counts}; {sizes}; {describe_pieces(windows)}", file=sys.stderr)
    return windows


def _likely_pieces(join: str, pieces: str) -> str:
    """Return the pieces that are built first: "auto" begins with first pieces of documents that are kept apart."""
    if pieces != AUTO:
        return pieces
    return "first" if join == "none" else "all"


def _settings(
    source: Source,
    tokenizer: PreTrainedTokenizerFast,
    held_out: float,
    length: int = 128,
    join: str = "run-on",
    pieces: str = AUTO,
    shard_characters: int = SHARD_CHARACTERS,
) -> dict[str, Any]:
    """What settings.json says; wrong values are refused."""
    check_not_spawned("build_windows")
    if join not in JOINS:
        raise ValueError(f"join={join!r} is unknown. Give one of {', '.join(JOINS)}.")
    if pieces not in (AUTO, *PIECES):
        raise ValueError(f"pieces={pieces!r} is unknown. Give one of {', '.join((AUTO, *PIECES))}.")
    if pieces == "first" and join == "run-on":
        raise ValueError("pieces=first keeps documents apart, and join=run-on does not. Set join=none.")
    if length < 3:
        raise ValueError(f"length={length} leaves no room for text between [CLS] and [SEP]. Use 8 or more.")
    if not 0 <= held_out < 1:
        raise ValueError(f"held_out={held_out} is no share of the documents in [0, 1). Give for example 0.05.")
    return {
        "format": FORMAT,
        "length": length,
        "join": join,
        "pieces": pieces,
        "held_out": held_out,
        "vocab_size": len(tokenizer),
        "newline_token": has_newline_token(tokenizer),
        "special_token_ids": special_token_ids(tokenizer),
        "tokenizer_sha256": tokenizer_hash(tokenizer),
        "shard_characters": shard_characters,
        "source": {"name": source.name, **source.fingerprint()},
    }


def _check_workers(workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise ValueError(f"workers={workers} leaves nobody to tokenise. Give 1 (this process) or more.")


def saved_tokenizer(out: Path, request: Mapping[str, Any]) -> PreTrainedTokenizerFast | None:
    """Return the saved tokenizer of unfinished windows if this request would make the same one.

    Raises:
        ValueError: its files are damaged.
    """
    folder = out / "tokenizer"
    settings = _read_settings(RunFolder.at(out))
    if settings is None or not folder.is_dir() or settings.get(REQUEST) not in (None, request):
        return None
    RunFolder.at(folder).check_all()
    return load_tokenizer(str(folder))


def _begin(
    run: RunFolder,
    tokenizer: PreTrainedTokenizerFast,
    settings: dict[str, Any],
    request: Mapping[str, Any] | None,
) -> None:
    """Write the settings and the tokenizer of windows, unless an earlier call did."""
    if SETTINGS not in run.listed_files():
        run.write(SETTINGS, {**settings, REQUEST: request})
    folder = run.path / "tokenizer"
    if not folder.is_dir():
        with RunFolder.create(folder, "tokenizer") as new:
            tokenizer.save_pretrained(new)
    RunFolder.at(folder).check_all()


@contextmanager
def _builder(
    run: RunFolder,
    source: Source,
    tokenizer: PreTrainedTokenizerFast,
    settings: dict[str, Any],
    workers: int | None,
    progress: bool,
    cluster: Cluster | None = None,
) -> Iterator[Callable[[float, str], list[dict[str, Any]]]]:
    """Yield the function that builds the shards, of held-out share and kept pieces."""
    (run.path / "shards").mkdir(exist_ok=True)
    special = settings["special_token_ids"]
    ids = special["cls_token_id"], special["sep_token_id"], "uint16" if len(tokenizer) <= 2**16 else "uint32"
    with ShardPool(run.path / "tokenizer" / "tokenizer.json", workers, cluster) as pool:

        def build(threshold: float, pieces: str) -> list[dict[str, Any]]:
            def shard_of(number: int) -> ShardSettings:
                shards = str(run.path / "shards")
                return ShardSettings(shards, number, settings["length"], settings["join"], pieces, threshold, *ids)

            return _build(run, source, pool, shard_of, progress, settings["shard_characters"])

        yield build


def _check_settings(run: RunFolder, settings: dict[str, Any]) -> None:
    """Refuse settings that are not the ones which the folder was started with.

    Raises:
        ValueError: names the first that differs.
    """
    out = run.path
    before = _read_settings(run)
    if before is None:
        return
    differing = [key for key, value in settings.items() if content(before.get(key)) != content(value)]
    if differing:
        key = differing[0]
        others = f" (also another {', '.join(differing[1:])})" if differing[1:] else ""
        raise ValueError(
            f"{out} holds windows of another {key}: there {_difference(before.get(key), settings[key])}, "
            f"now {_difference(settings[key], before.get(key))}{others}. Give another folder."
        )


def _read_settings(run: RunFolder) -> dict[str, Any] | None:
    """Read the settings that windows were begun with; None in a folder without any.

    Raises:
        ValueError: the file is damaged.
    """
    path = run.path / SETTINGS
    if SETTINGS not in run.listed_files() and not path.is_file():
        return None
    settings = run.read(SETTINGS)
    if not isinstance(settings, dict):
        raise ValueError(f"{path} holds no settings of windows. Use a complete copy, or delete {run.path}.")
    return settings


def content(source: Any) -> Any:
    """Return the part of a source's fingerprint that is about its text, without its name and place."""
    plain = json.loads(json.dumps(source))
    if not isinstance(plain, dict):
        return plain
    files = plain.get("files")
    if isinstance(files, list):  # else of a damaged list, which is like no other
        files = [{k: v for k, v in file.items() if k != "file"} if isinstance(file, dict) else file for file in files]
    return {k: v for k, v in plain.items() if k not in ("name", "files")} | ({"files": files} if files else {})


def _difference(value: Any, other: Any) -> str:
    """`value` in brief; of a dictionary what differs from `other`."""
    if isinstance(value, dict) and isinstance(other, dict):
        value = {k: v for k, v in value.items() if other.get(k) != v}
    text = str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def describe_pieces(windows: Windows) -> str:
    """Say in half a sentence which pieces of documents the windows are, and how many of them begin a document."""
    share = windows["train"].from_start()
    begin = f", {share:.0%} begin with a document" if share is not None else ""
    if windows.facts["join"] == "run-on":
        return f"documents run on from one to the next{begin}"
    if windows.facts["pieces"] == "first":
        return "the first piece of each document"
    return f"all pieces of documents{begin}"


def _total(shards: list[dict[str, Any]], key: str) -> dict[str, int]:
    return {split: sum(s[key][split] for s in shards) for split in SPLITS}


def _parts(source: Source) -> Iterator[Part]:
    share = 0.0
    for first, text in source.parts():
        if first:
            share = document_share(text)
        yield Part(text, first, share)


def _build(
    run: RunFolder,
    source: Source,
    pool: ShardPool,
    shard_of: Callable[[int], ShardSettings],
    progress: bool,
    size: int,
) -> list[dict[str, Any]]:
    """Build the shards that are not finished yet; return the descriptions of all of them, in order."""
    done: dict[int, dict[str, Any]] = {}
    read = 0
    built = 0
    with progress_bar("windows", progress) as advance:

        def take(description: dict[str, Any]) -> None:
            nonlocal built
            done[int(description["name"])] = description
            built += sum(description["characters"].values())
            total = estimate_total(built, read, source.share_read())
            advance(built, total, note=f"{built / 1e6:.1f} million characters")

        def shards_of(file: Source) -> Iterator[list[Part]]:
            return in_lists(_parts(file), size, lambda part: len(part.text))

        def unfinished() -> Iterator[Job]:
            nonlocal read
            for number, parts in numbered_lists(source, shards_of):
                read += sum(len(text_part.text) for text_part in parts)
                shard = shard_of(number)
                digest = shard.digest(parts)
                step = _step(shard.name)
                if run.is_reusable(step, inputs={"digest": digest}):
                    take(run.read(f"shards/{shard.name}.json"))
                    continue
                if run.finished_step(step) is not None:  # it is made again: of other text or settings, or damaged
                    run.remove(*files_of(shard.name))
                yield pool.job_of_shard(write_shard, shard, parts, digest)

        for description, hashes in pool.map(unfinished(), lambda: (read, source.share_read())):
            _keep_shard(run, description, hashes)
            take(description)
    return [done[number] for number in sorted(done)]


def _step(name: str) -> str:
    return f"shard {name}"


def _keep_shard(run: RunFolder, description: dict[str, Any], hashes: Mapping[str, str]) -> None:
    """Add a shard that a worker has written to the manifest, and write its description."""
    run.add_to_manifest(hashes={f"shards/{name}": digest for name, digest in hashes.items()})
    about = f"shards/{description['name']}.json"
    run.write(about, description)
    files = [*(f"shards/{name}" for name in hashes), about]
    run.mark_done(_step(description["name"]), inputs={"digest": description["digest"]}, files=files)


def _finish(run: RunFolder, settings: dict[str, Any], shards: list[dict[str, Any]]) -> Windows:
    """Count the tokens of the train split, remove what an earlier attempt left, and write the facts, last."""
    files = {f"shards/{name}": size for s in shards for name, size in s["files"].items()}
    expected = {*files, *(f"shards/{s['name']}.json" for s in shards)}
    present = [f"shards/{path.name}" for path in sorted((run.path / "shards").iterdir())]
    if left := [name for name in present if name not in expected]:
        run.remove(*left)
    totals = {key: _total(shards, key) for key in ("documents", "characters", "tokens", "left_out", "windows")}
    facts = {**settings, **totals, "unigrams": "unigrams.npy", "files": files}
    facts["shards"] = [{"name": s["name"], "windows": s["windows"], "digest": s["digest"]} for s in shards]
    allow_open_files(len(files))
    counts = np.zeros(settings["vocab_size"], np.int64)
    for ids, marks, _ in WindowSet(run.path, "train", facts).shards():
        counts += np.bincount(ids[(marks & SPECIAL) == 0], minlength=len(counts))
    run.write("unigrams.npy", counts)
    files["unigrams.npy"] = (run.path / "unigrams.npy").stat().st_size
    run.write(FACTS, facts)
    run.mark_done(BUILT, files=[FACTS, "unigrams.npy"])
    return Windows(run.path)
