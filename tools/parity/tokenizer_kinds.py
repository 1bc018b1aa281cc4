"""Small tokenizers of every class that the reference converts, trained on a few sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers as tf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import text
import vocab
from scratch import folder
from text import saved

LIMIT = 126
Make = Callable[[str], Any]


def wordpiece(fast: str, cased: bool = False, **options: Any) -> Make:
    return lambda name: getattr(tf, fast)(str(vocab.wordpiece(folder(name), cased)), do_lower_case=not cased, model_max_length=LIMIT, **options)


def bytes_of(fast: str, specials: list[str], **options: Any) -> Make:
    """A class over byte-level pieces with these special tokens first."""

    def make(name: str) -> Any:
        trained = vocab.byte_bpe(specials)
        words, merges = vocab.bpe_files(trained, folder(name))
        return getattr(tf, fast)(words, merges, model_max_length=LIMIT, **options)

    return make


ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def pieces_of(stem: str, kind: str = "unigram", size: int = 150, spm: dict[str, Any] | None = None, fast: str | None = None, **options: Any) -> Make:
    """A class over SentencePiece, converted from its slow form."""

    def make(name: str) -> Any:
        model = vocab.sentencepiece_model(name, size=size, kind=kind, **(spm or {}))
        slow = getattr(tf, f"{stem}Tokenizer")(str(model), model_max_length=LIMIT, **options)
        return getattr(tf, fast or f"{stem}TokenizerFast").from_pretrained(saved(slow, name), model_max_length=LIMIT)

    return make


def plain(build: Callable[[], Tokenizer], **options: Any) -> Make:
    """The class for any tokenizer.json."""
    specials = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    return lambda name: tf.PreTrainedTokenizerFast(tokenizer_object=build(), model_max_length=LIMIT, **{**specials, **options})


SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def framed(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def trained(model: Any, trainer: Any, normalizer: Any, splitter: Any, decoder: Any = None) -> Tokenizer:
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    if decoder is not None:
        tokenizer.decoder = decoder
    tokenizer.train_from_iterator(vocab.CORPUS, trainer)
    return framed(tokenizer)


def word_level() -> Tokenizer:
    return trained(
        models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(vocab_size=200, special_tokens=SPECIALS, show_progress=False),
        normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), pre_tokenizers.Whitespace(),
    )


def unigram() -> Tokenizer:
    return trained(
        models.Unigram(), trainers.UnigramTrainer(vocab_size=200, special_tokens=SPECIALS, unk_token="[UNK]", show_progress=False),
        normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), pre_tokenizers.Metaspace(), decoders.Metaspace(),
    )


def bpe_words() -> Tokenizer:
    return trained(
        models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>"),
        trainers.BpeTrainer(vocab_size=250, special_tokens=SPECIALS, end_of_word_suffix="</w>", show_progress=False),
        normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.BPEDecoder(),
    )


def digits() -> Tokenizer:
    split = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return trained(
        models.BPE(), trainers.BpeTrainer(vocab_size=380, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False),
        normalizers.NFC(), split, decoders.ByteLevel(),
    )


def fallback() -> Tokenizer:
    """BPE over replaced spaces whose unknown characters become bytes, as Llama 2 and Gemma have it."""
    tokens = SPECIALS + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.train_from_iterator(vocab.CORPUS, trainers.BpeTrainer(vocab_size=420, special_tokens=tokens, show_progress=False))
    return framed(tokenizer)


MT5 = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
KINDS: dict[str, Make] = {
    "bert": wordpiece("BertTokenizerFast"),
    "bert-cased": wordpiece("BertTokenizerFast", cased=True),
    "distilbert": wordpiece("DistilBertTokenizerFast"),
    "electra": wordpiece("ElectraTokenizerFast"),
    "mobilebert": wordpiece("MobileBertTokenizerFast"),
    "squeezebert": wordpiece("SqueezeBertTokenizerFast"),
    "convbert": wordpiece("ConvBertTokenizerFast"),
    "funnel": lambda name: tf.FunnelTokenizerFast(str(_funnel(name)), model_max_length=LIMIT),
    "layoutlm": wordpiece("LayoutLMTokenizerFast"),
    "mpnet": lambda name: tf.MPNetTokenizerFast(str(_mpnet(name)), model_max_length=LIMIT),
    "roberta": bytes_of("RobertaTokenizerFast", ROBERTA),
    "roberta-space": bytes_of("RobertaTokenizerFast", ROBERTA, add_prefix_space=True),
    "bart": bytes_of("BartTokenizerFast", ROBERTA),
    "longformer": bytes_of("LongformerTokenizerFast", ROBERTA),
    "led": bytes_of("LEDTokenizerFast", ROBERTA),
    "blenderbot": bytes_of("BlenderbotTokenizerFast", ROBERTA),
    "deberta": bytes_of("DebertaTokenizerFast", ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]),
    "gpt2": bytes_of("GPT2TokenizerFast", ["<|endoftext|>", "<pad>", "<mask>"], pad_token="<pad>", mask_token="<mask>"),
    "qwen2": bytes_of("Qwen2TokenizerFast", ["<|endoftext|>", "<mask>"], mask_token="<mask>"),
    "gpt-neox": lambda name: tf.GPTNeoXTokenizerFast(
        tokenizer_object=vocab.byte_bpe(["<|endoftext|>", "<pad>", "<mask>"]), pad_token="<pad>", mask_token="<mask>", model_max_length=LIMIT,
    ),
    "bloom": lambda name: tf.BloomTokenizerFast(tokenizer_object=vocab.byte_bpe(["<unk>", "<s>", "</s>", "<pad>", "<mask>"]), mask_token="<mask>", model_max_length=LIMIT),
    "clip": lambda name: tf.CLIPTokenizerFast(*_clip(name), model_max_length=LIMIT),
    "xlm-roberta": pieces_of("XLMRoberta"),
    "camembert": pieces_of("Camembert"),
    "albert": pieces_of("Albert", spm=dict(pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols="[CLS],[SEP],[MASK]", pad_piece="<pad>"), ),
    "deberta-v2": pieces_of("DebertaV2", spm=vocab.DEBERTA_IDS),
    "t5": pieces_of("T5", spm=MT5, extra_ids=10, legacy=True),
    "t5-new": pieces_of("T5", spm=MT5, extra_ids=10, legacy=False),
    "mbart": pieces_of("MBart", src_lang="en_XX", tgt_lang="de_DE"),
    "mbart50": pieces_of("MBart50", src_lang="en_XX", tgt_lang="de_DE"),
    "nllb": pieces_of("Nllb", kind="bpe", size=200, src_lang="eng_Latn", tgt_lang="deu_Latn"),
    "xlnet": pieces_of("XLNet", spm=dict(unk_id=0, bos_id=1, eos_id=2, control_symbols="<cls>,<sep>,<pad>,<mask>")),
    "big-bird": pieces_of("BigBird", spm=dict(pad_id=0, eos_id=1, bos_id=2, unk_id=3, control_symbols="[SEP],[MASK],[CLS]")),
    "rembert": pieces_of("RemBert", spm=dict(pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols="[CLS],[SEP],[MASK]")),
    "pegasus": pieces_of("Pegasus", spm=dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1), offset=8),
    "llama": pieces_of("Llama", kind="bpe", size=440, spm=dict(byte_fallback=True, unk_id=0, bos_id=1, eos_id=2, pad_id=3), pad_token="<pad>", mask_token="<mask>"),
    "llama-new": pieces_of("Llama", kind="bpe", size=440, spm=dict(byte_fallback=True, unk_id=0, bos_id=1, eos_id=2, pad_id=3), legacy=False, pad_token="<pad>", mask_token="<mask>"),
    "word-level": plain(word_level),
    "unigram": plain(unigram),
    "bpe-words": plain(bpe_words),
    "digits": plain(digits),
    "byte-fallback": plain(fallback),
    "plain-wordpiece": lambda name: _modern(name),
}


def _funnel(name: str) -> Any:
    file = vocab.wordpiece(folder(name))
    swaps = {"[PAD]": "<pad>", "[UNK]": "<unk>", "[CLS]": "<cls>", "[SEP]": "<sep>", "[MASK]": "<mask>"}
    return _renamed(file, swaps)


def _mpnet(name: str) -> Any:
    return _renamed(vocab.wordpiece(folder(name)), {"[PAD]": "<pad>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"})


def _renamed(file: Any, swaps: dict[str, str]) -> Any:
    lines = [swaps.get(line, line) for line in file.read_text().splitlines()]
    file.write_text("\n".join(lines) + "\n")
    return file


def _clip(name: str) -> tuple[str, str]:
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=640, special_tokens=["<|startoftext|>", "<|endoftext|>"], initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False,
    )
    tokenizer.train_from_iterator(vocab.CORPUS, trainer)
    return vocab.bpe_files(tokenizer, folder(name))


def _modern(name: str) -> Any:
    """WordPiece under the class that changes nothing."""
    fast = text.bert_tokenizer(name, limit=LIMIT)
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=fast.backend_tokenizer, model_max_length=LIMIT, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_input_names=["input_ids", "attention_mask"],
    )
