"""Text to text: every encoder with a decoder, its languages, and every key of `generation_config.json`."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import transformers as tf
from tokenizers import processors
from transformers import pipeline
from transformers.convert_slow_tokenizer import SpmConverter
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

import archs
import place
import seq2seq
import tokenizer_kinds
import vocab
from common import Json, Repository, demand, randomise, steady
from place import ABSENT, answered, attempt, repository, seeded, varied
from scratch import folder
from seq2seq import DECODERS, LONG, SENTENCE
from text_tasks import TEXTS, save, vocabulary

SHAPE = dict(
    d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
    max_position_embeddings=160, tie_word_embeddings=False,
)
T5 = dict(d_model=24, d_kv=8, d_ff=32, num_layers=2, num_decoder_layers=2, num_heads=2, decoder_start_token_id=0, tie_word_embeddings=False, relative_attention_num_buckets=8, n_positions=160)
BART = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2)
NETWORKS: dict[str, tuple[str, str, Json, Json]] = {
    "t5": ("t5", "text2text-generation", T5, dict(decoder_start_token_id=0, eos_token_id=1, pad_token_id=0)),
    "mt5": ("t5-new", "text2text-generation", {**T5, "feed_forward_proj": "gated-gelu"}, dict(decoder_start_token_id=0, eos_token_id=1, pad_token_id=0)),
    "longt5": ("t5", "summarization", {**T5, "local_radius": 3}, dict(decoder_start_token_id=0, eos_token_id=1, pad_token_id=0)),
    "bart": ("bart", "summarization", {**SHAPE, **BART}, {**BART, "forced_eos_token_id": 2}),
    "mbart": ("mbart", "translation", {**SHAPE, **BART}, {**BART, "forced_eos_token_id": 2}),
    "mbart50": ("mbart50", "translation", {**SHAPE, **BART}, {**BART, "forced_eos_token_id": 2}),
    "nllb": ("nllb", "translation", {**SHAPE, **BART}, BART),
    "pegasus": ("pegasus", "summarization", {**SHAPE, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "static_position_embeddings": True}, dict(decoder_start_token_id=0, eos_token_id=1, pad_token_id=0)),
    "blenderbot": ("blenderbot", "text2text-generation", {**SHAPE, **BART, "decoder_start_token_id": 0}, {**BART, "decoder_start_token_id": 0}),
    "blenderbot-small": ("bart", "text2text-generation", {**SHAPE, **BART}, BART),
    "bigbird_pegasus": ("bart", "summarization", {**SHAPE, **BART, "attention_type": "original_full"}, BART),
    "m2m100": ("", "translation", {**SHAPE, **BART}, BART),
    "marian": ("", "translation", {}, {}),
}
KIND = {"mbart50": "mbart", "nllb": "m2m_100", "m2m100": "m2m_100"}
LANGUAGES = {"mbart": ("en_XX", "de_DE"), "mbart50": ("en_XX", "de_DE"), "nllb": ("eng_Latn", "deu_Latn"), "m2m100": ("en", "de")}
JOBS: dict[str, Json] = {
    "plain": {"text": SENTENCE}, "beams": {"text": SENTENCE, "num_beams": 3}, "right-to-left": {"text": TEXTS["right-to-left"], "max_new_tokens": 10},
    "accents": {"text": TEXTS["accents"], "num_beams": 2, "max_new_tokens": 12}, "chinese": {"text": TEXTS["chinese"], "max_new_tokens": 8},
    "long": {"text": LONG, "truncate": True, "max_new_tokens": 12}, "penalties": {"text": SENTENCE, "repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "max_new_tokens": 20},
}
KEYS = {"summarization": "summary_text", "text2text-generation": "generated_text", "translation": "translation_text"}


def generate(model: Any, tokenizer: Any, task: str, **languages: str) -> place.Run:
    model.config.prefix = None
    run = pipeline(task, model=model, tokenizer=tokenizer, **languages)

    def answer(given: Json) -> Json:
        options = {option: value for option, value in given.items() if option not in ("text", "source", "target", "truncate")}
        # The pipeline's own four beams would replace those of the repository, against its documentation.
        if model.generation_config.num_beams != 1:
            options.setdefault("num_beams", model.generation_config.num_beams)
        found = steady(model, lambda: run(given["text"], truncation=True, **options)[0][KEYS[task]])
        demand(len(found.strip()) > 0, "an empty text")
        return {"text": found}

    return answer


def built(kind: str, name: str) -> tuple[Repository, Any, str]:
    """A repository, its network, and its task."""
    tokens, task, sizes, settings = NETWORKS[kind]
    made = repository(name, task, architecture=kind)
    if kind == "marian":
        tokenizer = seq2seq.marian_tokenizer("parity-marian", made, limit=90)
        model = seq2seq.marian_model(seeded(name), tokenizer)
        model.generation_config.num_beams = 1
        made.export(model, "text2text-generation-with-past", drop=DECODERS)
        return made, model, task
    tokenizer = m2m100_tokenizer(made) if kind == "m2m100" else tokenizer_kinds.KINDS[tokens](f"parity-{tokens}")
    config = archs.AutoConfig.for_model(KIND.get(kind, kind), vocab_size=vocabulary(tokenizer), **sizes)
    model = randomise(tf.AutoModelForSeq2SeqLM.from_config(config), seeded(name), gain=1.5, embedding=0.5)
    seq2seq.lively(model, vocabulary(tokenizer), 1.3, tokenizer(SENTENCE, return_tensors="pt", return_token_type_ids=False))
    model.generation_config = tf.GenerationConfig(**settings, max_length=24)
    made.export(model, "text2text-generation-with-past", drop=DECODERS)
    # The exporter sets this of the stack that has no cache.
    if hasattr(model, "encoder"):
        model.encoder.config.use_cache = False
    if kind == "m2m100":
        # The library reads its vocabulary's own files.
        tokenizer.save_vocabulary(str(made.model))
    else:
        save(made, tokenizer)
    return made, model, task


class M2M100Converter(SpmConverter):
    """The tokenizer of M2M100, which the library does not convert, in the form that published conversions have."""

    def vocab(self, proto: Any) -> list[tuple[str, float]]:
        return [(token, 0.0) for token in M2M100] + [(piece.piece, piece.score) for piece in proto.pieces[3:]]

    def post_processor(self) -> None:
        return None


M2M100 = ["<s>", "<pad>", "</s>", "<unk>"]


def m2m100_tokenizer(made: Repository) -> Any:
    """The library's own tokenizer of M2M100, over SentencePiece, and beside it its tokenizer.json."""
    place_of = folder("parity-m2m100")
    pieces = vocab.sentencepiece_model("parity-m2m100", size=200, kind="bpe")
    order = M2M100 + [piece for piece, _score in vocab.pieces(pieces)[3:]]
    words = vocab.write_json(place_of / "vocab.json", {piece: index for index, piece in enumerate(order)})
    # As published repositories list them; the library's own list leaves them out.
    languages = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    tokenizer = tf.M2M100Tokenizer(
        str(words), str(pieces), src_lang="en", tgt_lang="de", additional_special_tokens=languages, model_max_length=tokenizer_kinds.LIMIT,
    )
    converted = M2M100Converter(SimpleNamespace(vocab_file=str(pieces))).converted()
    converted.add_special_tokens([*map(vocab.special, M2M100), *map(vocab.special, languages)])
    begin = "__en__"
    converted.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A </s>", pair=f"{begin} $A $B </s>", special_tokens=[(begin, tokenizer.lang_token_to_id[begin]), ("</s>", 2)],
    )
    made.save(tokenizer)
    converted.save(str(made.model / "tokenizer.json"))
    for sentence in (SENTENCE, LONG, *TEXTS.values()):
        assert converted.encode(sentence).ids == tokenizer(sentence)["input_ids"], sentence
    return tokenizer


def loaded(made: Repository, model: Any, kind: str, task: str) -> place.Run:
    """The reference with the repository's tokenizer and settings."""
    if kind == "marian":
        tokenizer = tf.PreTrainedTokenizerFast.from_pretrained(made.model)
    else:
        tokenizer = tf.AutoTokenizer.from_pretrained(made.model)
    if (made.model / "generation_config.json").exists():
        model.generation_config = tf.GenerationConfig.from_pretrained(made.model)
    else:
        model.generation_config = tf.GenerationConfig.from_model_config(tf.AutoConfig.from_pretrained(made.model))
    source, target = LANGUAGES.get(kind, ("", ""))
    return generate(model, tokenizer, task, **({"src_lang": source, "tgt_lang": target} if source else {}))


def jobs(kind: str, chosen: dict[str, Json] = JOBS) -> dict[str, Json]:
    source, target = LANGUAGES.get(kind, ("", ""))
    return {name: {**given, **({"source": source, "target": target} if source else {})} for name, given in chosen.items()}


def networks(only: Callable[[str], bool]) -> None:
    """Every architecture by its task."""
    for kind in NETWORKS:
        name = f"seq2seq--{kind}"
        if not only(name):
            continue

        def make() -> None:
            made, model, task = built(kind, name)
            answered(made, loaded(made, model, kind, task), jobs(kind), 1e-4)

        attempt(name, make)


def changes(end: int, pad: int) -> dict[str, Json]:
    return {
        "beams-2": {"num_beams": 2}, "beams-4": {"num_beams": 4}, "early": {"num_beams": 3, "early_stopping": True}, "never": {"num_beams": 3, "early_stopping": "never"},
        "late": {"num_beams": 3, "early_stopping": False}, "longer": {"num_beams": 3, "length_penalty": 2.0}, "shorter": {"num_beams": 3, "length_penalty": 0.2},
        "negative": {"num_beams": 3, "length_penalty": -1.0}, "sample-one": {"do_sample": True, "top_k": 1}, "unsampled": {"do_sample": False, "temperature": 0.5, "top_k": 2, "top_p": 0.4},
        "repetition-up": {"repetition_penalty": 1.6}, "repetition-down": {"repetition_penalty": 0.7}, "repetition-beams": {"repetition_penalty": 1.6, "num_beams": 3},
        "encoder-up": {"encoder_repetition_penalty": 1.6}, "encoder-down": {"encoder_repetition_penalty": 0.6}, "ngram-2": {"no_repeat_ngram_size": 2}, "ngram-1": {"no_repeat_ngram_size": 1},
        "ngram-beams": {"no_repeat_ngram_size": 2, "num_beams": 3}, "encoder-ngram": {"encoder_no_repeat_ngram_size": 2}, "encoder-ngram-1": {"encoder_no_repeat_ngram_size": 1},
        "bad-words": {"bad_words_ids": [[11], [12, 13], [20]]}, "bad-end": {"bad_words_ids": [[end]]}, "bad-beams": {"bad_words_ids": [[11], [14]], "num_beams": 3},
        "bias": {"sequence_bias": [[[15], 3.0], [[16, 17], 5.0]]}, "bias-down": {"sequence_bias": [[[15], -3.0], [[21], -4.0]]}, "bias-beams": {"sequence_bias": [[[15], 2.0]], "num_beams": 3},
        "decay": {"exponential_decay_length_penalty": [3, 1.3]}, "decay-beams": {"exponential_decay_length_penalty": [4, 1.2], "num_beams": 3},
        "renormalize": {"renormalize_logits": True, "num_beams": 3, "repetition_penalty": 1.5}, "suppress": {"suppress_tokens": [11, 12, 13, 14]}, "suppress-end": {"suppress_tokens": [end]},
        "begin-suppress": {"begin_suppress_tokens": [15, 16, 17]}, "forced-bos": {"forced_bos_token_id": 25}, "forced-eos": {"forced_eos_token_id": end, "max_length": 8},
        "forced-eos-list": {"forced_eos_token_id": [end, 11], "max_length": 8}, "no-forced-eos": {"forced_eos_token_id": None, "max_length": 8},
        "start": {"decoder_start_token_id": 26}, "start-list": {"decoder_start_token_id": [27]}, "min-length": {"min_length": 12}, "min-new": {"min_new_tokens": 10}, "max-length": {"max_length": 7},
        "max-new": {"max_new_tokens": 5}, "both-maxima": {"max_new_tokens": 5, "max_length": 12}, "min-beams": {"min_length": 9, "num_beams": 3}, "ends": {"eos_token_id": [end, 19, 23]},
        "ends-beams": {"eos_token_id": [end, 19, 23], "num_beams": 3}, "pad": {"pad_token_id": 5}, "no-settings": {"max_length": ABSENT}, "groups": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5},
        "contrastive": {"penalty_alpha": 0.6, "top_k": 4}, "typical": {"typical_p": 0.5}, "epsilon": {"epsilon_cutoff": 0.01}, "eta": {"eta_cutoff": 0.01}, "guidance": {"guidance_scale": 2.0},
        "stop": {"stop_strings": ["e"]}, "returned": {"num_return_sequences": 2, "num_beams": 3}, "healing": {"token_healing": True}, "time": {"max_time": 60.0}, "words": {"force_words_ids": [[15]], "num_beams": 3},
        "cache": {"use_cache": False}, "cache-static": {"cache_implementation": "static"}, "cache-quantized": {"cache_implementation": "quantized"}, "scores": {"output_scores": True}, "unknown": {"shiny_new_penalty": 2.0},
        "lacking": {"eos_token_id": ABSENT, "pad_token_id": ABSENT}, "min-p": {"min_p": 0.2}, "invalid": {"remove_invalid_values": True}, "assistant": {"prompt_lookup_num_tokens": 3},
    }


def settings(only: Callable[[str], bool]) -> None:
    """Keys of `generation_config.json`, of jobs, and of old repositories' `config.json`."""
    chosen = {name: JOBS[name] for name in ("plain", "beams", "right-to-left", "long")}
    for kind in ("bart", "t5", "marian"):
        name = f"generation--{kind}"
        if not only(name):
            continue

        def make() -> None:
            base, model, task = built(kind, name)
            answered(base, loaded(base, model, kind, task), jobs(kind, chosen), 1e-4)
            end, pad = model.generation_config.eos_token_id, model.generation_config.pad_token_id
            for label, keys in changes(end, pad).items():
                def vary() -> None:
                    made = varied(base, label, {"generation_config.json": keys})
                    answered(made, loaded(made, model, kind, task), jobs(kind, chosen), 1e-4, base)

                def vary_old() -> None:
                    # As repositories have them that are older than generation_config.json.
                    written = json.loads((base.model / "generation_config.json").read_text())
                    made = varied(base, f"{label}-in-config", {"config.json": {**written, **keys}})
                    (made.model / "generation_config.json").unlink()
                    answered(made, loaded(made, model, kind, task), jobs(kind, chosen), 1e-4, base)

                attempt(f"{name}--{label}", vary, draws=1)
                attempt(f"{name}--{label}-in-config", vary_old, draws=1)

        attempt(name, make)


FAMILIES = {"seq2seq-architectures": networks, "seq2seq-settings": settings}
