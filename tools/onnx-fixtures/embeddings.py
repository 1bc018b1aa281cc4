"""Sentence embeddings, with sentence-transformers as the reference."""

from __future__ import annotations

import json
import shutil
from typing import Any

import torch
import transformers as tf
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
from torch import nn

import text
from common import Json, Repository, capture, randomise
from scratch import folder

TEXTS = ["The ship lies in Hamburg.", "Das Wetter ist schön 🙂", "🙂"]
LONG = "the river is calm and the boat is small. " * 12


def sentence_model(name: str, model: Any, tokenizer: Any, pooling: Json, normalise: bool, limit: int) -> SentenceTransformer:
    """A sentence-transformers model around a transformer, by way of the scratch folder."""
    place = folder(f"{name}-transformer")
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    transformer = Transformer(str(place), max_seq_length=limit)
    modules = [transformer, Pooling(transformer.get_word_embedding_dimension(), **pooling)]
    return SentenceTransformer(modules=[*modules, *([Normalize()] if normalise else [])], device="cpu")


def copy_settings(sentences: SentenceTransformer, repository: Repository) -> None:
    """Copies what describes pooling, prompts and length in the library's present form, and no weights."""
    place = folder(f"{repository.name}-sentences")
    sentences.save(str(place), create_model_card=False)
    for file in place.rglob("*.json"):
        target = repository.model / file.relative_to(place)
        if not target.exists() and file.name != "vocab.json":
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)


POOLING_KEYS = {
    "cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean_tokens", "lasttoken": "lasttoken",
}


def write_settings(sentences: SentenceTransformer, repository: Repository, pooling: str) -> None:
    """Writes the same in the form that most published repositories have."""
    modes = {f"pooling_mode_{key}": mode == pooling for mode, key in POOLING_KEYS.items()}
    width = sentences.get_sentence_embedding_dimension()
    names = ["Transformer", "Pooling", "Normalize"][: len(sentences)]
    modules = [
        {"idx": index, "name": str(index), "path": f"{index}_{name}" if index else "",
         "type": f"sentence_transformers.models.{name}"}
        for index, name in enumerate(names)
    ]
    settings = {
        "1_Pooling/config.json": {"word_embedding_dimension": width, **modes, "include_prompt": sentences[1].include_prompt},
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": sentences.max_seq_length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "__version__": {"sentence_transformers": "2.7.0"},
            "prompts": sentences.prompts,
            "default_prompt_name": sentences.default_prompt_name,
        },
    }
    for name, value in settings.items():
        file = repository.model / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(value))


def embed(repository: Repository, sentences: SentenceTransformer, cases: dict[str, Json], graph: str) -> None:
    """Cases of feature extraction, one text at a time and in one batch alike."""
    for index, (name, given) in enumerate(cases.items()):
        inputs = [given["input"]] if isinstance(given["input"], str) else given["input"]
        options = {"prompt_name": given.get("prompt"), "truncate_dim": given.get("dimensions")}
        # A shortened vector is normalized again: the library does so only on request.
        options["normalize_embeddings"] = any(isinstance(module, Normalize) for module in sentences)
        with capture(sentences[0].auto_model) as calls:
            found = sentences.encode(inputs, batch_size=16, **options)
        output = {"embeddings": found.tolist(), "dimensions": found.shape[1]}
        arrays = text.first_tensors(repository, calls, graph, None) if index == 0 else {}
        repository.case(name, given, output, tolerance=1e-5, **arrays)


def minilm() -> None:
    name = "minilm"
    tokenizer = text.bert_tokenizer(name)
    model = randomise(tf.BertModel(tf.BertConfig(vocab_size=len(tokenizer), **text.small())), name)
    repository = Repository(name, "feature-extraction")
    repository.export(model, "feature-extraction")
    repository.save(tokenizer)
    sentences = sentence_model(name, model, tokenizer, {"pooling_mode": "mean"}, True, 96)
    write_settings(sentences, repository, "mean")
    cases = {
        "one": {"input": TEXTS[0]},
        "batch": {"input": TEXTS},
        "truncated": {"input": [LONG, "a"]},
    }
    embed(repository, sentences, cases, "onnx/model.onnx")
    repository.write()


def bge() -> None:
    name = "bge"
    tokenizer = text.bert_tokenizer(name)
    model = randomise(tf.BertModel(tf.BertConfig(vocab_size=len(tokenizer), **text.small())), name)
    repository = Repository(name, "feature-extraction")
    repository.export(model, "feature-extraction")
    repository.save(tokenizer)
    sentences = sentence_model(name, model, tokenizer, {"pooling_mode": "cls"}, True, 128)
    sentences.prompts = {"query": "Represent this sentence for searching relevant passages: "}
    write_settings(sentences, repository, "cls")
    cases = {
        "document": {"input": TEXTS},
        "query": {"input": TEXTS[0], "prompt": "query"},
        "short": {"input": TEXTS[:2], "dimensions": 8},
    }
    embed(repository, sentences, cases, "onnx/model.onnx")
    repository.write()


def e5() -> None:
    name = "multilingual-e5"
    tokenizer = text.xlmr_tokenizer(name)
    config = tf.XLMRobertaConfig(
        vocab_size=len(tokenizer), type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2, **text.small()
    )
    model = randomise(tf.XLMRobertaModel(config), name)
    repository = Repository(name, "feature-extraction")
    repository.export(model, "feature-extraction")
    repository.save(tokenizer)
    sentences = sentence_model(name, model, tokenizer, {"pooling_mode": "mean"}, True, 126)
    sentences.prompts = {"query": "query: ", "passage": "passage: "}
    sentences.default_prompt_name = "passage"
    write_settings(sentences, repository, "mean")
    cases = {
        "default-prompt": {"input": TEXTS},
        "query": {"input": TEXTS[:2], "prompt": "query"},
        "truncated": {"input": LONG, "prompt": "query"},
    }
    embed(repository, sentences, cases, "onnx/model.onnx")
    repository.write()


class WithSentence(nn.Module):
    """A sentence-transformers model as its exporter sees it: token and sentence embeddings."""

    def __init__(self, sentences: SentenceTransformer):
        super().__init__()
        self.sentences = sentences

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.sentences({"input_ids": input_ids, "attention_mask": attention_mask})
        return found["token_embeddings"], found["sentence_embedding"]


def sentence_output() -> None:
    name = "sentence-output"
    tokenizer = text.distilbert_tokenizer(name)
    config = tf.DistilBertConfig(
        vocab_size=len(tokenizer), dim=24, n_layers=2, n_heads=2, hidden_dim=48, max_position_embeddings=128,
    )
    model = randomise(tf.DistilBertModel(config), name)
    repository = Repository(name, "feature-extraction")
    sentences = sentence_model(name, model, tokenizer, {"pooling_mode": "max"}, False, 128)
    sentences[0].auto_model.set_attn_implementation("eager")
    example = (torch.ones(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.long))
    batch = {0: "batch_size", 1: "sequence_length"}
    inputs = {"input_ids": batch, "attention_mask": batch}
    outputs = {"token_embeddings": batch, "sentence_embedding": {0: "batch_size"}}
    repository.trace(WithSentence(sentences), example, inputs, outputs, "onnx/model.onnx")
    config.architectures = ["DistilBertModel"]
    repository.save(config, tokenizer)
    copy_settings(sentences, repository)
    cases = {"one": {"input": TEXTS[0]}, "batch": {"input": TEXTS}}
    embed(repository, sentences, cases, "onnx/model.onnx")
    repository.write()


FAMILIES = {"minilm": minilm, "bge": bge, "multilingual-e5": e5, "sentence-output": sentence_output}
