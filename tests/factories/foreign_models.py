"""Folders as transformers writes them: BERT, RoBERTa, ELECTRA, ModernBERT, MPNet, DistilBERT, ALBERT with tiny random
weights, whose vocabulary is exactly as long as the table of their words, as that of the official ones is."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from cli_runner import sentences
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertTokenizerFast,
    BertConfig,
    BertForMaskedLM,
    BertTokenizerFast,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ElectraConfig,
    ElectraForPreTraining,
    ElectraTokenizerFast,
    ModernBertConfig,
    ModernBertForMaskedLM,
    MPNetConfig,
    MPNetForMaskedLM,
    MPNetTokenizerFast,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaTokenizerFast,
)

TEXTS = sentences(120).split("\n\n")
KINDS = ("bert", "roberta", "electra", "modernbert")
EVERY = (*KINDS, "mpnet", "distilbert")
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}


def _word_pieces(
    texts: list[str], special: tuple[str, ...] = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
) -> dict[str, int]:
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=list(special), show_progress=False)
    backend.train_from_iterator(texts, trainer)
    return backend.get_vocab()


def _byte_pairs(texts: list[str], special: list[str]) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    return backend


def tokenizer_of(kind: str, texts: list[str] = TEXTS) -> PreTrainedTokenizerFast:
    """The tokenizer of that class, trained on the texts; none of them has a token for line breaks."""
    if kind in ("bert", "distilbert", "electra"):
        return (ElectraTokenizerFast if kind == "electra" else BertTokenizerFast)(vocab=_word_pieces(texts))
    if kind == "albert":
        special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
        backend = Tokenizer(models.Unigram())
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=200, special_tokens=special, unk_token="<unk>", show_progress=False
        )
        backend.train_from_iterator([text.lower() for text in texts], trainer)
        pieces = json.loads(backend.to_str())["model"]["vocab"]
        return AlbertTokenizerFast(vocab=[tuple(piece) for piece in pieces])
    if kind == "mpnet":
        return MPNetTokenizerFast(vocab=_word_pieces(texts, ("<s>", "<pad>", "</s>", "[UNK]", "<mask>")))
    if kind == "roberta":
        model = json.loads(_byte_pairs(texts, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]).to_str())["model"]
        return RobertaTokenizerFast(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]])
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    backend = _byte_pairs(texts, [*names.values(), "[MASK]"])
    ids = [(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=ids
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="[MASK]", **names)


def save(kind: str, folder: Path, texts: list[str] = TEXTS) -> Path:
    """A model of that kind with its tokenizer, 32 positions, as `save_pretrained` leaves them."""
    tokenizer = tokenizer_of(kind, texts)
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, **SIZES}
    torch.manual_seed(0)
    model = {
        "bert": lambda: BertForMaskedLM(BertConfig(max_position_embeddings=32, **sizes)),
        "electra": lambda: ElectraForPreTraining(ElectraConfig(max_position_embeddings=32, embedding_size=16, **sizes)),
        "albert": lambda: AlbertForMaskedLM(AlbertConfig(max_position_embeddings=32, embedding_size=8, **sizes)),
        "roberta": lambda: RobertaForMaskedLM(RobertaConfig(max_position_embeddings=34, type_vocab_size=1, **sizes)),
        "mpnet": lambda: MPNetForMaskedLM(MPNetConfig(max_position_embeddings=34, **sizes)),
        "distilbert": lambda: DistilBertForMaskedLM(
            DistilBertConfig(
                max_position_embeddings=32,
                dim=16,
                n_layers=2,
                n_heads=2,
                hidden_dim=16,
                vocab_size=len(tokenizer),
                pad_token_id=tokenizer.pad_token_id,
            )
        ),
        "modernbert": lambda: ModernBertForMaskedLM(
            ModernBertConfig(
                max_position_embeddings=32,
                local_attention=8,
                cls_token_id=tokenizer.cls_token_id,
                sep_token_id=tokenizer.sep_token_id,
                bos_token_id=tokenizer.cls_token_id,
                eos_token_id=tokenizer.sep_token_id,
                **sizes,
            )
        ),
    }[kind]()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    assert len(model.get_input_embeddings().weight) == len(tokenizer)
    return folder


def put_in_hub_cache(folder: Path, name: str, cache: Path) -> None:
    """Put a model's folder into a cache of the Hub, as if it had been fetched under a name."""
    place = cache / f"models--{name.replace('/', '--')}"
    shutil.copytree(folder, place / "snapshots/abc123")
    (place / "refs").mkdir()
    (place / "refs/main").write_text("abc123")


def sentence_model(folder: Path) -> Any:
    """A folder as sentence-transformers opens it.

    Its import takes seconds, which a file that is only collected need not spend.
    """
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder))
