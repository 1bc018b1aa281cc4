"""Tiny tokenizers of the real kinds: WordPiece, byte-level BPE, SentencePiece unigram and BPE."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from scratch import SCRATCH

CORPUS = [
    "the film was a joy to watch and the actors were good",
    "the food was bad, the room was cold and the staff was rude",
    "Paris is the capital of France and lies on the river Seine",
    "Angela works for Siemens in Munich and lives near the old town",
    "the train from Berlin to Hamburg leaves at nine in the morning",
    "a small boat came into the harbour when the storm was over",
    "she reads a book about the sea, and he writes a letter to London",
    "how many people live in the city, and who was its first mayor?",
    "the engine of the ship was repaired in the winter of 1912",
    "Das Wetter ist heute schön und der Fluss ist ruhig",
    "le café est ouvert et la rivière est calme",
    "we translate this sentence into another language and answer the question",
]
WORDS = "the a of and is was in to on he she it not good bad film paris france river train".split()
SUFFIXES = "ing ed er s ly ion".split()
PUNCTUATION = list(".,:;!?'\"-()/&%$#@*+=<>[]_")


def wordpiece(folder: Path, cased: bool = False) -> Path:
    """Writes a vocab.txt: specials first, then single characters, words and suffixes."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    if cased:
        letters += [letter.upper() for letter in letters] + list("éüß")
    singles = letters + list("0123456789")
    words = ["Paris", "France", "The", "New", "York", "##burg", *WORDS] if cased else WORDS
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *singles, *PUNCTUATION]
    entries += [f"##{single}" for single in singles] + [f"##{suffix}" for suffix in SUFFIXES] + words
    file = folder / "vocab.txt"
    file.write_text("\n".join(dict.fromkeys(entries)) + "\n")
    return file


def byte_bpe(specials: list[str], size: int = 380, prefix_space: bool = False, more: tuple[str, ...] = ()) -> Tokenizer:
    """A byte-level BPE with the special tokens first, trained on `more` texts besides the usual ones."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*CORPUS, *more], trainer)
    return tokenizer


def bpe_files(tokenizer: Tokenizer, folder: Path) -> tuple[str, str]:
    """The vocab.json and merges.txt of a BPE tokenizer."""
    return tuple(tokenizer.model.save(str(folder)))


DEBERTA_IDS = dict(
    pad_id=0, pad_piece="[PAD]", bos_id=1, bos_piece="[CLS]", eos_id=2, eos_piece="[SEP]", unk_id=3, unk_piece="[UNK]"
)
RULES = {"ﬁ": "fi", "№": "No", "…": "...", "\u00a0": " ", "Ａ": "A", "½": "1/2", "e\u0301": "é", "\t": " "}


def sentencepiece_model(name: str, size: int = 150, kind: str = "unigram", **options: object) -> Path:
    """Trains a SentencePiece model whose normalizer has a few rules of its own."""
    rules = SCRATCH / "rules.tsv"
    lines = (f"{codes(source)}\t{codes(target)}\n" for source, target in RULES.items())
    rules.write_text("".join(lines))
    data = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3),
        model_writer=data,
        vocab_size=size,
        model_type=kind,
        character_coverage=1.0,
        normalization_rule_tsv=str(rules),
        num_threads=1,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    file = SCRATCH / f"{name}.model"
    file.write_bytes(data.getvalue())
    return file


def codes(text: str) -> str:
    """A text as the hexadecimal code points of a normalizer's rule."""
    return " ".join(f"{ord(character):x}" for character in text)


def pieces(file: Path) -> list[tuple[str, float]]:
    """The pieces of a SentencePiece model with their scores."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return [(model.id_to_piece(index), model.get_score(index)) for index in range(len(model))]


def write_json(file: Path, value: object) -> Path:
    file.write_text(json.dumps(value, ensure_ascii=False))
    return file


def special(content: str, lstrip: bool = False) -> AddedToken:
    """A special token that is matched as it stands."""
    return AddedToken(content, lstrip=lstrip, normalized=False, special=True)


def charsmap(file: Path) -> str:
    """The normalizer of a SentencePiece model, as tokenizer.json holds it."""
    model = sentencepiece_model_pb2.ModelProto.FromString(file.read_bytes())
    return base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
