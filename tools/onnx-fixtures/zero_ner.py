"""Entities of labels that are given with the text: GLiNER."""

from __future__ import annotations

import json

import transformers as tf
from gliner import GLiNER

import text
import vocab
from common import Json, Repository, Session, demand, randomise
from scratch import folder
from shrink import shrink

SPAN_MODE = {
    "model_type": "gliner", "name": "span level gliner", "span_mode": "markerV0", "hidden_size": 24, "max_width": 6,
    "max_len": 64, "max_types": 25, "max_neg_type_ratio": 1, "ent_token": "<<ENT>>", "sep_token": "<<SEP>>",
    "dropout": 0.1, "fine_tune": True, "subtoken_pooling": "first", "words_splitter_type": "whitespace",
    "has_rnn": True, "embed_ent_token": True, "fuse_layers": False, "post_fusion_schema": "", "num_post_fusion_layers": 1,
    "labels_encoder": None, "vocab_size": -1, "class_token_index": -1,
}
TEXT = "Angela Merkel-Müller works for Siemens in New York 🙂, near Hamburg's café."
CASES: Json = {
    "two-labels": {"text": TEXT, "labels": ["person", "city"], "threshold": 0.4},
    "three-labels": {"text": TEXT, "labels": ["organisation", "a kind of place", "person"], "threshold": 0.7},  # words: ok
    "none": {"text": "a", "labels": ["city"], "threshold": 0.9999},
}


def gliner() -> None:
    name = "gliner"
    slow = tf.DebertaV2Tokenizer(str(vocab.sentencepiece_model(name, **vocab.DEBERTA_IDS)), model_max_length=256)
    tokenizer = tf.DebertaV2TokenizerFast.from_pretrained(text.saved(slow, name), model_max_length=256)
    backbone = tf.DebertaV2Config(
        vocab_size=len(tokenizer), type_vocab_size=0, relative_attention=True, position_buckets=16,
        norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"], position_biased_input=False,
        max_relative_positions=-1, **text.small(max_position_embeddings=256),
    )
    place = folder(f"{name}-backbone")
    backbone.save_pretrained(place)
    tokenizer.save_pretrained(place)
    model = GLiNER.from_config({**SPAN_MODE, "model_name": str(place)}, backbone_from_pretrained=False)
    randomise(model.model, name, gain=1.4)
    repository = Repository(name, "token-classification")
    model.export_to_onnx(str(repository.model / "onnx"))
    graph = repository.model / "onnx/model.onnx"
    shrink(graph)
    learnt = {key: getattr(model.config, key) for key in ("vocab_size", "class_token_index")}
    settings = {**SPAN_MODE, **learnt, "model_name": "microsoft/deberta-v3-small"}
    repository.save(model.data_processor.transformer_tokenizer)
    for file in (repository.model / "onnx").iterdir():
        if file.suffix != ".onnx":
            file.unlink()
    (repository.model / "gliner_config.json").write_text(json.dumps(settings))
    for index, (case, given) in enumerate(CASES.items()):
        found = model.predict_entities(given["text"], given["labels"], threshold=given["threshold"])
        every = model.predict_entities(given["text"], given["labels"], threshold=0.001, flat_ner=False, multi_label=True)
        scores = sorted(entry["score"] for entry in every)
        demand(all(abs(score - given["threshold"]) > 1e-3 for score in scores), "a score lies at the threshold")
        demand(index == 2 or 1 < len(found), f"{len(found)} entities")
        demand(index > 0 or len({entry["label"] for entry in found}) > 1, "one label only")
        entities = [{key: entry[key] for key in ("label", "score", "text", "start", "end")} for entry in found]
        repository.case(case, given, {"entities": entities}, **(arrays(model, graph, given) if index == 0 else {}))
    repository.write()


def arrays(model: GLiNER, graph: object, given: Json) -> Json:
    """The graph's inputs for a text, and what onnxruntime makes of them."""
    session = Session(graph)
    words = [word for word, _start, _end in model.data_processor.words_splitter(given["text"])]
    collator = model.data_collator_class(
        model.config, data_processor=model.data_processor, return_tokens=True, return_entities=True,
        return_id_to_classes=True, prepare_labels=False,
    )
    batch = collator([{"tokenized_text": words, "ner": None}], entity_types=given["labels"])
    feeds = {key: batch[key].numpy() for key in session.inputs}
    return {"tensors": feeds, "raw": session(feeds)}


FAMILIES = {"gliner": gliner}
