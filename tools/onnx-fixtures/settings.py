"""Settings that decide answers and that few published repositories have: each family shows what a wrong default would cost."""

from __future__ import annotations

import json
import shutil
from typing import Any

import torch
import transformers as tf
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, LayerNorm, Normalize, Pooling, Transformer

import embeddings
import seq2seq
import text
import vision
from common import Repository, randomise
from scratch import folder


def value() -> None:
    """A regression, whose values may be above 1."""
    name = "bert-value"
    tokenizer = text.bert_tokenizer(name)
    config = tf.BertConfig(vocab_size=len(tokenizer), problem_type="regression", **text.small(), **text.labels(["stars", "length"]))
    model = randomise(tf.BertForSequenceClassification(config), name)
    model.classifier.bias.data += 3
    repository = Repository(name, "text-classification")
    repository.export(model, "text-classification")
    repository.save(tokenizer)
    text.classify(repository, model, tokenizer, {"values": {"text": "The film was good."}}, "onnx/model.onnx")
    repository.write()


def ends() -> None:
    """Texts that are cut at their beginning, by a tokenizer whose class decides on letters, for classes without names."""
    name = "bert-ends"
    tokenizer = text.bert_tokenizer(name, cased=False)
    tokenizer.truncation_side = "left"
    model = randomise(tf.BertForSequenceClassification(tf.BertConfig(vocab_size=len(tokenizer), **text.small())), name)
    repository = Repository(name, "text-classification")
    repository.export(model, "text-classification")
    repository.save(tokenizer)
    settings = json.loads((repository.model / "tokenizer_config.json").read_text())
    del settings["do_lower_case"]
    (repository.model / "tokenizer_config.json").write_text(json.dumps({**settings, "truncation_side": "left"}))
    file = repository.model / "tokenizer.json"
    saved = json.loads(file.read_text())
    saved["normalizer"]["lowercase"] = False
    file.write_text(json.dumps(saved))
    config = json.loads((repository.model / "config.json").read_text())
    for key in ("id2label", "label2id"):
        config.pop(key, None)
    (repository.model / "config.json").write_text(json.dumps(config))
    loaded = tf.AutoTokenizer.from_pretrained(repository.model)
    cases = {"letters": {"text": "The FILM was Good."}, "cut": {"text": "He was rude. " + text.LONGER, "truncate": True}}
    text.classify(repository, model, loaded, cases, "onnx/model.onnx")
    repository.write()


def scheme() -> None:
    """Entities in a scheme with single words and ends."""
    name = "bert-bioes"
    tokenizer = text.bert_tokenizer(name, cased=True)
    names = ["O", "B-PER", "I-PER", "E-PER", "S-PER", "B-LOC", "I-LOC", "E-LOC", "S-LOC"]
    model = randomise(tf.BertForTokenClassification(tf.BertConfig(vocab_size=len(tokenizer), **text.small(), **text.labels(names))), name, gain=2.0)
    repository = Repository(name, "token-classification")
    model.classifier.weight.data *= 2
    repository.export(model, "token-classification")
    repository.save(tokenizer)
    text.find_entities(repository, model, tokenizer, {key: text.ENTITY_CASES[key] for key in ("default", "none", "first")})
    repository.write()


def windows() -> None:
    """Answers from a context of several windows, whose tokens have types."""
    name = "bert-qa"
    tokenizer = text.bert_tokenizer(name, limit=512)
    config = tf.BertConfig(vocab_size=len(tokenizer), **text.small(hidden_size=16, intermediate_size=32, max_position_embeddings=512))
    model = randomise(tf.BertForQuestionAnswering(config), name, gain=2.0)
    # The types decide.
    model.bert.embeddings.token_type_embeddings.weight.data *= 3
    model.qa_outputs.weight.data *= 3
    repository = Repository(name, "question-answering")
    repository.export(model, "question-answering")
    repository.save(tokenizer)
    text.answer(repository, model, tokenizer)
    repository.write()


def layers() -> None:
    """Two poolings, and layers after them that no graph contains."""
    name = "embedding-layers"
    tokenizer = text.bert_tokenizer(name)
    model = randomise(tf.BertModel(tf.BertConfig(vocab_size=len(tokenizer), **text.small())), name)
    repository = Repository(name, "feature-extraction")
    repository.export(model, "feature-extraction")
    repository.save(tokenizer)
    place = folder(f"{name}-transformer")
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    transformer = Transformer(str(place), max_seq_length=96)
    width = transformer.get_word_embedding_dimension()
    pooling = Pooling(width, pooling_mode=["cls", "weightedmean"], include_prompt=False)
    dense = Dense(2 * width, 16, activation_function=torch.nn.Tanh())
    randomise(dense, f"{name}-dense")
    norm = LayerNorm(16)
    randomise(norm, f"{name}-norm")
    norm.norm.weight.data += 0.5
    sentences = SentenceTransformer(modules=[transformer, pooling, dense, norm, Normalize()], device="cpu")
    sentences.prompts = {"query": "The film was good: "}
    embeddings.copy_settings(sentences, repository)
    for file in folder(f"{name}-sentences").glob("[1-9]_*/model.safetensors"):
        shutil.copy(file, repository.model / file.parent.name)
    cases = {"texts": {"input": embeddings.TEXTS}, "query": {"input": embeddings.TEXTS[0], "prompt": "query"}}
    embeddings.embed(repository, sentences, cases, "onnx/model.onnx")
    repository.write()


def biased() -> None:
    """A translation that many settings push at once."""
    name = "marian-biased"
    repository = Repository(name, "translation")
    tokenizer = seq2seq.marian_tokenizer(name, repository)
    model = seq2seq.marian_model("marian", tokenizer)
    more = dict(
        sequence_bias=[[[5], 1.5], [[7, 9], -2.0]], exponential_decay_length_penalty=[6, 1.15],
        bad_words_ids=[[tokenizer.pad_token_id], [0], [11], [12, 13]], length_penalty=0.6,
    )
    for key, setting in more.items():
        setattr(model.generation_config, key, setting)
    repository.export(model, "text2text-generation-with-past", drop=seq2seq.DECODERS)
    # Settings of generation in config.json are ignored beside the other file.
    config = json.loads((repository.model / "config.json").read_text())
    (repository.model / "config.json").write_text(json.dumps({**config, "num_beams": 1, "max_length": 5}))
    cases = {"beams": {"text": seq2seq.SENTENCE}, "greedy": {"text": seq2seq.SENTENCE, "num_beams": 1}}
    seq2seq.write(repository, model, tokenizer, "translation", cases)
    repository.write()


def pictures(name: str, processor: Any, calm: float = 0.2) -> None:
    """Pictures for a small network by the processor of another family."""
    model = randomise(tf.ResNetForImageClassification(vision.resnet_config(**text.labels(vision.PLACES))), name, gain=2.0)
    # Inputs of these processors are larger than those that the gain is made for.
    model.classifier[1].weight.data *= calm
    repository = Repository(name, "image-classification")
    repository.export(model, "image-classification")
    repository.save(processor)
    vision.classify(repository, model, processor, {"scene.png": {}, "tall.png": {"top_k": 3}})
    repository.write()


FAMILIES = {
    "bert-value": value,
    "bert-ends": ends,
    "bert-bioes": scheme,
    "bert-qa": windows,
    "embedding-layers": layers,
    "marian-biased": biased,
    "pictures-efficientnet": lambda: pictures(
        "pictures-efficientnet",
        tf.EfficientNetImageProcessor(size={"height": 48, "width": 56}, resample=2, rescale_factor=1 / 127.5, rescale_offset=True, **vision.IMAGENET),
        calm=0.005,
    ),
    "pictures-levit": lambda: pictures(
        "pictures-levit", tf.LevitImageProcessor(size={"shortest_edge": 48}, crop_size={"height": 48, "width": 48}),
    ),
    "pictures-poolformer": lambda: pictures(
        "pictures-poolformer", tf.PoolFormerImageProcessor(size={"shortest_edge": 48}, crop_size={"height": 48, "width": 48}, crop_pct=0.8),
    ),
    "pictures-donut": lambda: pictures(
        "pictures-donut", tf.DonutImageProcessor(size={"height": 72, "width": 48}, do_align_long_axis=True),
    ),
}
