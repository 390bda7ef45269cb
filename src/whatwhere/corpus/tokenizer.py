"""Tokenizers: any fast one, loaded, or one made from the corpus: BERT-like word pieces, words, characters.

All can carry an [NL] token for line breaks, which BERT's normaliser drops and DSTG 3.2 needs to see a segment end.
"""

import hashlib
import json
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ..run.errors import one_line
from ..run.hub import check_hub, is_offline
from ..run.reference import model_source
from .source import Source, first_line, split_long

_NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NEWLINE_TOKEN = "[NL]"
# A run of line breaks with the white space round it becomes one token. Nothing is tried twice: a run of 32,000 spaces
# without a break took 13 seconds.
_LINE_BREAKS = Regex("(?<!\\s)[^\\S\\n\\r\u2028\u2029]*+[\\n\\r\u2028\u2029]\\s*+")
TRAINING_CHARACTERS = 50_000_000  # held in memory while a tokenizer is trained
_GIVE_A_TOKENIZER = "Give a vocabulary file, a tokenizer folder or a Hub name such as bert-base-uncased."
_LONGEST_WORD = 100  # characters of a word that is not [UNK], and of one that is trained on
_LONGEST_TRAINED = 1000
_MOST_CHARACTERS = 1000  # different characters of a trained vocabulary
# Tokenizers that are made from a corpus by name: what a token is, for text that is no prose (code, tags, protein
# strings).
UNITS: dict[str, pre_tokenizers.PreTokenizer] = {
    "words": pre_tokenizers.WhitespaceSplit(),
    "characters": pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"),
}
MOST_UNITS = 50_000


def build_tokenizer(
    spec: str | Path | None, texts: Iterable[str], vocab_size: int | None = None, newline_token: bool = False
) -> PreTrainedTokenizerFast:
    """Load the tokenizer that an argument names, or build one from texts: words, characters, or a WordPiece.

    Args:
        spec: as `load_tokenizer`; "words" or "characters": as `unit_tokenizer`; None: train a WordPiece.
        vocab_size: entries of one that is built; default 4,096 for a WordPiece, 50,000 for words and characters.
        newline_token: make it turn line breaks into [NL].

    Raises:
        ValueError: as `train_tokenizer`, `unit_tokenizer` and `load_tokenizer`.
    """
    if spec is None:
        return train_tokenizer(texts, vocab_size or 4096, newline_token=newline_token)
    builds = str(spec) in UNITS
    tokenizer = unit_tokenizer(str(spec), texts, vocab_size or MOST_UNITS) if builds else load_tokenizer(spec)
    return add_newline_token(tokenizer) if newline_token else tokenizer


def load_tokenizer(spec: str | Path) -> PreTrainedTokenizerFast:
    """Load a fast tokenizer from a vocabulary file, a tokenizer folder, a Hub name, or `reference`.

    A vocabulary file (one token a line) gives BERT's tokenizer, lower-cased unless it has upper-case letters itself. A
    Hub name needs the network.

    Raises:
        ValueError: nothing is there, the vocabulary lacks a special token, or the tokenizer is no fast one.
    """
    spec = model_source(spec)
    path = Path(spec)
    name = str(spec)
    looks_like_path = (
        path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or path.suffix in (".txt", ".json")
    )
    tokenizer: Any
    if path.is_file():
        tokenizer = _from_vocabulary(path)
    elif looks_like_path and not path.is_dir():
        raise ValueError(f"No tokenizer at {name}. {_GIVE_A_TOKENIZER}")
    else:
        try:
            tokenizer = _from_files(name)
        except Exception as error:  # the library of tokenizers raises no class of its own
            if path.is_dir() and (problem := without_file(path)):
                raise ValueError(problem) from None
            reason = first_line(error).rstrip(".")
            raise ValueError(f"No tokenizer {name!r}: {reason}. {_GIVE_A_TOKENIZER}") from error
    check_tokenizer(tokenizer, name)
    return tokenizer  # type: ignore[no-any-return]


def open_tokenizer(source: str) -> Any:
    """Open the tokenizer saved with a model, from its folder or Hub name; for a checkpoint, from its run.

    Raises:
        ValueError: there is none, or a damaged one.
    """
    folder = Path(source)
    local = folder.is_dir()
    if local and not _has_tokenizer(folder):
        run = folder.parent.parent
        if folder.parent.name != "checkpoints" or not _has_tokenizer(run):
            raise ValueError(
                f"{folder} has no tokenizer (tokenizer.json). Save the model's tokenizer there: "
                "tokenizer.save_pretrained."
            )
        source = str(run)
    try:
        return _from_files(source)
    except Exception as error:  # the library of tokenizers raises no class of its own
        if local and (problem := without_file(Path(source))):
            raise ValueError(problem) from None
        raise ValueError(f"The tokenizer of {source} does not load ({one_line(error)}). Use a complete copy.") from None


def _has_tokenizer(folder: Path) -> bool:
    names = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer_config.json")
    return any((folder / name).is_file() for name in names)


def _from_files(name: str) -> Any:
    """Open a tokenizer of transformers, without code of its folder; ask the Hub only for what is no folder."""
    local = Path(name).is_dir()
    if not local:
        check_hub(name, "tokenizer_config.json", "tokenizer.json", "vocab.txt")
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, local_files_only=local or is_offline())
    if isinstance(tokenizer, PreTrainedTokenizerFast):
        drop_limits(tokenizer)
    return tokenizer


def drop_limits(tokenizer: PreTrainedTokenizerFast) -> None:
    """Remove the fixed padding and truncation of a tokenizer, which its file and its latest call leave behind.

    Whoever reads its tokenizer.json without transformers would get texts of one length, padding counted as words.
    """
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()


def lower_case(tokenizer: PreTrainedTokenizerFast) -> None:
    """Make a tokenizer lower-case texts before all else, as sentence-transformers' `do_lower_case` does."""
    backend = tokenizer.backend_tokenizer
    before = [backend.normalizer] if backend.normalizer is not None else []
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *before])


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: str | Path) -> None:
    """Write a tokenizer's files without fixed padding and truncation, which its latest call may have left in it."""
    drop_limits(tokenizer)
    tokenizer.save_pretrained(folder)


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """Refuse a tokenizer that windows and evaluations cannot use.

    Raises:
        ValueError: it gives no character offsets, holds no tokens, or lacks a special token.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ValueError(
            f"Tokenizer {name!r} is a {type(tokenizer).__name__}, which gives no character offsets. Use a fast "
            "tokenizer."
        )
    if len(tokenizer) <= len(tokenizer.all_special_tokens):  # transformers opens a folder without files so
        raise ValueError(
            f"{name} holds no tokenizer: no token but {', '.join(tokenizer.all_special_tokens)}. {_GIVE_A_TOKENIZER}"
        )
    special_token_ids(tokenizer)


def _from_vocabulary(path: Path) -> PreTrainedTokenizerFast:
    try:
        tokens = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 (byte {error.start}), so it is no vocabulary file of one token a line. Convert it."
        ) from error
    while tokens and not tokens[-1]:
        tokens.pop()
    vocabulary = {token.rstrip("\r"): i for i, token in enumerate(tokens)}
    if missing := [t for t in SPECIAL_TOKENS if t not in vocabulary]:
        raise ValueError(
            f"{path} has no token {missing[0]}: a vocabulary file holds one token a line, among them "
            f"{' '.join(SPECIAL_TOKENS)}."
        )
    if len(vocabulary) != len(tokens):
        raise ValueError(
            f"{path} names a token twice: {len(tokens)} lines, {len(vocabulary)} different tokens. Leave one out."
        )
    lowercase = not any(t != t.lower() for t in vocabulary if not (t.startswith("[") and t.endswith("]")))
    return _wordpiece(vocabulary, lowercase, newline_token=False)


def _wordpiece(vocabulary: dict[str, int], lowercase: bool, newline_token: bool) -> PreTrainedTokenizerFast:
    """Build BERT's tokenizer round a vocabulary."""
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=_LONGEST_WORD))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    if newline_token:
        _see_line_breaks(backend)
    return _finished(backend)


def without_file(folder: Path) -> str:
    """Write the message that refuses a folder without tokenizer.json whose other files make no tokenizer; else ""."""
    if (folder / "tokenizer.json").is_file():
        return ""
    return f"{folder} lacks tokenizer.json, and its other files make no tokenizer. Use a complete copy."


def _named(texts: Iterable[str]) -> str:
    return f"the corpus {texts.name}" if isinstance(texts, Source) else "the texts"


def _finished(backend: Tokenizer) -> PreTrainedTokenizerFast:
    """Add BERT's special tokens and its [CLS] ... [SEP] template to a backend."""
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, **dict(zip(_NAMES, SPECIAL_TOKENS, strict=True)))


def _see_line_breaks(backend: Tokenizer) -> None:
    """Make a backend turn each run of line breaks into [NL]: an ordinary token, masked and predicted as others."""
    before = [backend.normalizer] if backend.normalizer is not None else []
    backend.normalizer = normalizers.Sequence([normalizers.Replace(_LINE_BREAKS, NEWLINE_TOKEN), *before])
    # normalized=True: the token is looked for after lower-casing, where "[NL]" reads "[nl]".
    backend.add_tokens([AddedToken(NEWLINE_TOKEN, normalized=True, special=False)])


def add_newline_token(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Copy a tokenizer so that the copy turns each run of line breaks into [NL].

    [NL] gets a new id at the end, unless the vocabulary has it; a tokenizer that does so already is returned itself.

    Raises:
        ValueError: a rule of the tokenizer changes the token before the vocabulary is asked for it.
    """
    if has_newline_token(tokenizer):
        return tokenizer
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    _see_line_breaks(backend)
    copy = PreTrainedTokenizerFast(tokenizer_object=backend, **{name: getattr(tokenizer, name) for name in _NAMES})
    if not has_newline_token(copy):  # a normalizer that puts a sign before every piece hides the token
        raise ValueError(
            f"The rules of the tokenizer leave no room for {NEWLINE_TOKEN}. Use --set newline_token=false."
        )
    return copy


def has_newline_token(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Tell if a tokenizer turns line breaks into [NL]."""
    encoding = tokenizer.backend_tokenizer.encode("a\nb", add_special_tokens=False)
    return tokenizer.get_vocab().get(NEWLINE_TOKEN) in encoding.ids


def special_token_ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    """Return the five ids that EncoderConfig wants: pad, unk, cls, sep and mask `_token_id`.

    Raises:
        ValueError: the tokenizer lacks one of them.
    """
    ids = {f"{name}_id": getattr(tokenizer, f"{name}_id") for name in _NAMES}
    if missing := [name for name, i in ids.items() if i is None]:
        name = f" {tokenizer.name_or_path}" if tokenizer.name_or_path else ""
        raise ValueError(
            f"The tokenizer{name} has no {missing[0].removesuffix('_id')}, which masked-language modelling needs. Use "
            "one in BERT's style, with all files of its folder."
        )
    return ids


def segment_end_ids(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Return the ids of the tokens that end a segment, ascending: [SEP], and tokens of . ! ? … or line breaks alone.

    A vocabulary without such tokens has [SEP] alone, which makes a text one segment. A full stop inside a word or after
    an abbreviation ends one, too: ids tell no more.
    """
    line_breaks = str.maketrans({"Ċ": "\n", "č": "\n", "\r": "\n"})  # Ċ, č: of byte-level vocabularies
    ends = {special_token_ids(tokenizer)["sep_token_id"]}
    for token, number in tokenizer.get_vocab().items():
        text = token.removeprefix("##").removeprefix("\u2581").removeprefix("Ġ").translate(line_breaks)
        if token.upper() == NEWLINE_TOKEN or (text and not set(text) - set(".!?…\n")):
            ends.add(number)
    return sorted(ends)


def _without_long_words(text: str, backend: Tokenizer) -> str:
    """Drop words of more than a thousand characters, over which the trainer takes far longer than in proportion.

    A word of 200,000 characters takes it half a minute; to the tokenizer such words are [UNK] in any case.
    """

    def short(run: re.Match[str]) -> str:
        words = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(run.group()))
        return " ".join(word for word, _ in words if len(word) <= _LONGEST_TRAINED)

    return re.sub(rf"\S{{{_LONGEST_TRAINED + 1},}}", short, text)


def train_tokenizer(
    texts: Iterable[str], vocab_size: int = 4096, newline_token: bool = True, max_characters: int = TRAINING_CHARACTERS
) -> PreTrainedTokenizerFast:
    """Train a lower-casing WordPiece on texts; the same texts give the same ids.

    Ids are [PAD] 0 [UNK] 1 [CLS] 2 [SEP] 3 [MASK] 4, then [NL] 5 if asked, then single characters, then longer pieces,
    each sorted. Reading stops after `max_characters`: a vocabulary of some thousand pieces hardly changes after ten
    million.

    Raises:
        ValueError: no text at all, or `vocab_size` leaves no room beside the special tokens.
    """
    special = list(SPECIAL_TOKENS)
    if newline_token:
        special.append(NEWLINE_TOKEN)
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    read_texts = [
        _without_long_words(text, backend) for text in _beginning(texts, max_characters, vocab_size, len(special))
    ]
    if not any(read_texts):
        why = f"it is empty, or its words all have more than {_LONGEST_TRAINED:,} characters"
        raise ValueError(f"No text to train a tokenizer on in {_named(texts)}: {why}. Give a corpus that has some.")
    # Left alone, the trainer numbers continuations in the order of a hash map and breaks ties by these numbers, so that
    # two runs differ. Named in advance they have a fixed order.
    characters = backend.normalizer.normalize_str(" ".join(sorted(set().union(*map(set, read_texts)))))
    alphabet = sorted(set(characters) - set(" "))
    if len(alphabet) > _MOST_CHARACTERS:  # of characters that are equally rare it would keep some by chance
        counts = Counter(backend.normalizer.normalize_str("\n".join(read_texts)))
        alphabet = sorted(alphabet, key=lambda c: (-counts[c], c))[:_MOST_CHARACTERS]
    continuations = [f"##{c}" for c in sorted(set(characters)) if _inside_words(c)][:_MOST_CHARACTERS]
    trainer = trainers.WordPieceTrainer(
        vocab_size=max(vocab_size, len(special) + len(continuations)),
        special_tokens=[*special, *continuations],
        limit_alphabet=_MOST_CHARACTERS,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    backend.train_from_iterator(read_texts, trainer)
    pieces = sorted(
        set(backend.get_vocab()) - set(special), key=lambda t: (len(t.removeprefix("##")), t.startswith("##"), t)
    )
    return _wordpiece({t: i for i, t in enumerate([*special, *pieces])}, True, newline_token)


def unit_tokenizer(
    unit: str, texts: Iterable[str], vocab_size: int = MOST_UNITS, max_characters: int = TRAINING_CHARACTERS
) -> PreTrainedTokenizerFast:
    """Build a tokenizer of the most frequent words (between white space) or characters of texts; others are [UNK].

    Special tokens as in `train_tokenizer`, then by falling count, equal counts by the alphabet. White space is a
    character too.

    Args:
        unit: "words" or "characters".

    Raises:
        ValueError: no text at all, or `vocab_size` leaves no room beside the special tokens.
    """
    backend = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    backend.pre_tokenizer = UNITS[unit]
    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=[], show_progress=False)
    backend.train_from_iterator(_beginning(texts, max_characters, vocab_size, len(SPECIAL_TOKENS)), trainer)
    counts = backend.get_vocab()
    if not counts:
        raise ValueError(f"No text to take {unit} from in {_named(texts)}: it is empty. Give a corpus that has some.")
    # A text may hold the names of special tokens.
    units = [token for token in sorted(counts, key=counts.__getitem__) if token not in SPECIAL_TOKENS]
    vocabulary = {token: i for i, token in enumerate([*SPECIAL_TOKENS, *units][:vocab_size])}
    backend.model = models.WordLevel(vocabulary, unk_token="[UNK]")
    return _finished(backend)


def _beginning(texts: Iterable[str], characters: int, vocab_size: int, special: int) -> Iterator[str]:
    """Yield the first texts, up to about `characters` characters."""
    if vocab_size <= special:
        raise ValueError(f"vocab_size={vocab_size} leaves no room beside {special} special tokens. Use 1000 or more.")
    for _, text in texts.parts() if isinstance(texts, Source) else split_long(texts):
        yield text
        characters -= len(text)
        if characters <= 0:
            return


def _inside_words(character: str) -> bool:
    """Tell if BERT's pre-tokeniser can leave the character inside a word: no space, punctuation, Chinese character."""
    return not (
        character.isspace()
        or character in string.punctuation
        or unicodedata.category(character)[0] == "P"
        or unicodedata.name(character, "").startswith("CJK")
    )


def tokenizer_hash(tokenizer: PreTrainedTokenizerFast) -> str:
    """Return the SHA-256 of a tokenizer as its library writes it: rules, vocabulary, how it cuts and fills texts."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()


def tokenizer_rules(backend: Tokenizer) -> dict[str, Any]:
    """Return the rules of a tokenizer that decide ids, without the rules that cut or fill up texts."""
    rules: dict[str, Any] = json.loads(backend.to_str())
    return {key: value for key, value in rules.items() if key not in ("version", "truncation", "padding")}
