"""Text to text: translation, summaries and instructions, greedy and with beams."""

from __future__ import annotations

from typing import Any

import torch
import transformers as tf
from transformers import pipeline

import text
import vocab
from cached import check_decoders
from common import Json, Repository, capture, close, demand, randomise, steady
from scratch import folder

DECODERS = ("decoder_model", "decoder_with_past_model")
MERGED = ("decoder_model_merged",)
SENTENCE = "The ship lies in Hamburg, on the river."
LONG = "The engine of the ship was repaired in the winter and the crew is calm. " * 14


def write(repository: Repository, model: Any, tokenizer: Any, task: str, cases: dict[str, Json], **translate: Any) -> None:
    """Cases of generation, stable under small changes of the weights; the library truncates on request."""
    model.config.prefix = None
    run = pipeline(task, model=model, tokenizer=tokenizer, **translate)
    key = {"summarization": "summary_text", "text2text-generation": "generated_text"}.get(task, "translation_text")
    results: list[str] = []
    for index, (name, given) in enumerate(cases.items()):
        options = {option: value for option, value in given.items() if option not in ("text", "source", "target", "truncate")}
        with capture(model.get_encoder()) as calls:
            found = steady(model, lambda: run(given["text"], truncation=True, **options)[0][key])
        results.append(found)
        # A text that is cut may be cut well or badly and be answered alike.
        arrays = first_step(repository, model, calls[0]) if index == 0 or given.get("truncate") else {}
        own = {} if task == repository.task else {"task": task.partition("_")[0]}
        repository.case(name, given, {"text": found}, **own, **arrays)
    demand(len(set(results)) > 0.6 * len(results), "cases give the same text")
    demand(sum(len(set(result)) > 4 for result in results) > len(results) / 2, f"dull: {results}")


def first_step(repository: Repository, model: Any, call: Json) -> Json:
    """The encoder's tensors, and onnxruntime's states, once these agree with the library's."""
    encoder = repository.session("onnx/encoder_model.onnx")
    feeds = {name: call[name] for name in encoder.inputs}
    check_decoders(repository, model, {name: torch.from_numpy(value) for name, value in feeds.items()})
    raw = encoder(feeds)
    with torch.no_grad():
        wanted = model.get_encoder()(**{name: torch.from_numpy(value) for name, value in feeds.items()})
    close(raw["last_hidden_state"], wanted.last_hidden_state.numpy())
    return {"tensors": feeds, "raw": raw}


def lively(model: Any, vocabulary: int, end: float, inputs: Json, unlike: bool = False) -> None:
    """Takes from the output what all positions share, which else would win each time, and favours the end a little.

    Where `unlike` is set, a token is also made less likely to follow itself.
    """
    head = model.get_output_embeddings()
    weight = head.weight.data
    noise = torch.Generator().manual_seed(5)
    states = decoded(model, head, torch.randint(3, vocabulary, (8, 24), generator=noise), inputs)
    mean = states.mean((0, 1))
    weight -= torch.outer(weight @ mean, mean) / mean.dot(mean)
    if unlike:
        own = decoded(model, head, torch.arange(vocabulary)[:, None].expand(-1, 12), inputs).mean(1) - mean
        own -= torch.outer(own @ mean, mean) / mean.dot(mean)
        share = (weight[:vocabulary] * own).sum(1) / (own * own).sum(1)
        weight[:vocabulary] -= 1.5 * share.clamp(min=0)[:, None] * own
    weight[model.config.eos_token_id] *= end


def decoded(model: Any, head: Any, tokens: torch.Tensor, inputs: Json) -> torch.Tensor:
    """The decoder's last states for some tokens."""
    states: list[torch.Tensor] = []
    handle = head.register_forward_pre_hook(lambda _head, args: states.append(args[0]))
    count = len(tokens)
    with torch.no_grad():
        model(**{name: value.expand(count, *value.shape[1:]) for name, value in inputs.items()}, decoder_input_ids=tokens)
    handle.remove()
    return states[0]


def marian_tokenizer(name: str, repository: Repository, limit: int = 96) -> Any:
    """Marian's own tokenizer, and beside it the tokenizer.json that published conversions have."""
    model = vocab.sentencepiece_model(name, bos_id=-1, eos_id=0, unk_id=1)
    entries = vocab.pieces(model)
    order = {piece: index for index, (piece, _score) in enumerate(entries)} | {"<pad>": len(entries)}
    place = folder(name)
    vocab.write_json(place / "vocab.json", order)
    for file in ("source.spm", "target.spm"):
        (place / file).write_bytes(model.read_bytes())
    files = [str(place / file) for file in ("source.spm", "target.spm", "vocab.json")]
    tokenizer = tf.MarianTokenizer(*files, source_lang="en", target_lang="de", model_max_length=limit)
    repository.save(tokenizer)
    scored = [[piece, score] for piece, score in entries] + [["<pad>", 0.0]]
    added = [
        {"id": order[token], "content": token, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for token in ("</s>", "<unk>", "<pad>")
    ]
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    first, second = ({"Sequence": {"id": letter, "type_id": 0}} for letter in "AB")
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    converted = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": vocab.charsmap(model)},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": {
            "type": "TemplateProcessing", "single": [first, end], "pair": [first, second, end],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [order["</s>"]], "tokens": ["</s>"]}},
        },
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": order["<unk>"], "vocab": scored, "byte_fallback": False},
    }
    vocab.write_json(repository.model / "tokenizer.json", converted)
    fast = tf.PreTrainedTokenizerFast(tokenizer_file=str(repository.model / "tokenizer.json"))
    for sentence in (SENTENCE, LONG, "Café № 1 🙂"):
        assert fast(sentence)["input_ids"] == tokenizer(sentence)["input_ids"], sentence
    return tokenizer


def marian_model(name: str, tokenizer: Any) -> Any:
    """A Marian model with the generation settings of a published pair."""
    pad = tokenizer.pad_token_id
    config = tf.MarianConfig(
        vocab_size=len(tokenizer), decoder_vocab_size=len(tokenizer), d_model=24, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
        max_position_embeddings=96, pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad, scale_embedding=True, tie_word_embeddings=False,
        activation_function="swish", static_position_embeddings=True, share_encoder_decoder_embeddings=True,
    )
    model = randomise(tf.MarianMTModel(config), name, gain=1.5, embedding=0.5)
    lively(model, len(tokenizer), 1.3, tokenizer(SENTENCE, return_tensors="pt"))
    model.generation_config = tf.GenerationConfig(
        bad_words_ids=[[pad]], bos_token_id=0, decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=0,
        max_length=48, num_beams=4, pad_token_id=pad, renormalize_logits=True,
    )
    return model


TRANSLATIONS = {
    "settings": {"text": SENTENCE},
    "greedy": {"text": SENTENCE, "num_beams": 1},
    "accents": {"text": "Où est le café № 2 ? 🙂", "num_beams": 1, "max_new_tokens": 12},
    "no-repeats": {"text": SENTENCE, "num_beams": 1, "no_repeat_ngram_size": 2, "max_new_tokens": 24},
    "minimum": {"text": "a", "num_beams": 2, "min_length": 10, "max_new_tokens": 16},
    "long-beams": {"text": SENTENCE, "num_beams": 3, "length_penalty": 2.0, "max_new_tokens": 20},
    "short-beams": {"text": SENTENCE, "num_beams": 3, "length_penalty": 0.2, "early_stopping": True},
    "penalty": {"text": SENTENCE, "num_beams": 1, "repetition_penalty": 1.5, "max_new_tokens": 16},
    "truncated": {"text": LONG, "truncate": True, "num_beams": 1, "max_new_tokens": 16},
}


def marian(name: str, drop: tuple[str, ...]) -> None:
    repository = Repository(name, "translation")
    tokenizer = marian_tokenizer(name, repository)
    model = marian_model("marian", tokenizer)
    repository.export(model, "text2text-generation-with-past", drop=drop)
    write(repository, model, tokenizer, "translation", TRANSLATIONS)
    repository.write()


def t5() -> None:
    name = "t5"
    repository = Repository(name, "translation")
    spm = vocab.sentencepiece_model(name, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    slow = tf.T5Tokenizer(str(spm), extra_ids=10, model_max_length=96, legacy=True)
    tokenizer = tf.T5TokenizerFast.from_pretrained(text.saved(slow, name), extra_ids=10, model_max_length=96)
    names = {"de": "German", "fr": "French"}
    tasks = {
        f"translation_en_to_{code}": {
            "early_stopping": True, "max_length": 30, "num_beams": 4, "prefix": f"translate English to {language}: "
        }
        for code, language in names.items()
    }
    summary = {
        "early_stopping": True, "length_penalty": 2.0, "max_length": 24, "min_length": 8, "no_repeat_ngram_size": 3,
        "num_beams": 4, "prefix": "summarize: ",
    }
    config = tf.T5Config(
        vocab_size=len(tokenizer), d_model=24, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0,
        tie_word_embeddings=False, relative_attention_num_buckets=8, relative_attention_max_distance=32, n_positions=96,
        task_specific_params={"summarization": summary, **tasks},
    )
    model = randomise(tf.T5ForConditionalGeneration(config), name, gain=1.2, embedding=1.0)
    lively(model, len(tokenizer), 1.3, tokenizer(SENTENCE, return_tensors="pt"))
    repository.save(tokenizer)
    model.generation_config = tf.GenerationConfig(decoder_start_token_id=0, eos_token_id=1, pad_token_id=0)
    repository.export(model, "text2text-generation-with-past", drop=DECODERS)
    model.encoder.config.use_cache = False
    given = {"text": SENTENCE, "source": "en", "target": "de"}
    write(repository, model, tokenizer, "translation_en_to_de", {
        "german": {**given, "max_new_tokens": 24}, "german-greedy": {**given, "num_beams": 1, "max_new_tokens": 20},
    })
    write(repository, model, tokenizer, "translation_en_to_fr", {"french": {**given, "target": "fr", "max_new_tokens": 24}})
    write(repository, model, tokenizer, "summarization", {
        "summary": {"text": LONG[:200], "truncate": True, "max_new_tokens": 24},
        "summary-greedy": {"text": SENTENCE, "num_beams": 1, "max_new_tokens": 24},
    })
    write(repository, model, tokenizer, "text2text-generation", {
        "instruction": {"text": f"question: Who is calm? context: {LONG[:90]}", "num_beams": 2, "max_new_tokens": 20},
    })
    repository.write()


def bart_cnn() -> None:
    name = "bart-cnn"
    tokenizer = text.bart_tokenizer(name, limit=128)
    config = tf.BartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=128,
        tie_word_embeddings=False, forced_bos_token_id=0,
    )
    model = randomise(tf.BartForConditionalGeneration(config), name, gain=1.5, embedding=0.5)
    lively(model, len(tokenizer), 1.3, tokenizer(SENTENCE, return_tensors="pt"))
    model.generation_config = tf.GenerationConfig(
        bos_token_id=0, decoder_start_token_id=2, early_stopping=True, eos_token_id=2, forced_bos_token_id=0,
        forced_eos_token_id=2, length_penalty=2.0, max_length=40, min_length=12, no_repeat_ngram_size=3, num_beams=4,
        pad_token_id=1,
    )
    repository = Repository(name, "summarization")
    repository.export(model, "text2text-generation-with-past", drop=DECODERS)
    repository.save(tokenizer)
    write(repository, model, tokenizer, "summarization", {
        "settings": {"text": LONG[:260]},
        "greedy": {"text": SENTENCE, "num_beams": 1, "min_length": 0},
        "truncated": {"text": LONG, "truncate": True, "max_length": 24},
        "never-early": {"text": "schön 🙂", "early_stopping": False, "length_penalty": 0.5, "min_length": 4},
    })
    repository.write()


FAMILIES = {
    "marian-merged": lambda: marian("marian-merged", DECODERS),
    "marian-split": lambda: marian("marian-split", MERGED),
    "t5": t5,
    "bart-cnn": bart_cnn,
}
