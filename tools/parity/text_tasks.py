"""Text to labels, spans, words and vectors: every encoder, every tokenizer, and every key of their settings."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.models import Dense, LayerNorm, Normalize, Pooling, Transformer
from transformers import pipeline

import archs
import place
import tokenizer_kinds
from common import Json, Repository, apart, demand, outline, randomise, steady
from place import ABSENT, answered, attempt, repository, seeded, varied
from scratch import folder
from text import labels

TOLERANCE = 1e-4
EMBEDDING = 2e-5
LONG = "the film was good and the train was bad. " * 20 + "he was rude in paris! " * 4
TEXTS: dict[str, str] = {
    "plain": "The film was good.",
    "capitals": "Paris, BERLIN and the River Seine",
    "accents": "Café au lait, naïve e\u0301tude № ½ ﬁlm",  # words: ok
    "emoji": "🙂 good 👩‍👩‍👧 film 🇩🇪",
    "right-to-left": "שלום עולם, the film مرحبا بالعالم",
    "chinese": "日本語のテキスト 中文 film",
    "spaces": "  the\tfilm \n\n was   good \u00a0 ",
    "marks": "film,was;good!!!??... \"$1,234.56\" 50% #tag it's don't",
    "invisible": "fi\u200blm \ufeffwas \u202egood\u00ad",
    "special": "the [SEP] film <s> was </s> good [MASK]<mask> <pad>",
    "one": "a",
}
ODD = {"empty": "", "blank": " \n "}


def texts(**more: Any) -> dict[str, Json]:
    return {name: {"text": line, **more} for name, line in TEXTS.items()} | {"long": {"text": LONG, "truncate": True, **more}}


def firm(model: Any, run: Callable[[], Any]) -> Any:
    """A result whose texts and labels are the same with slightly different weights."""
    steady(model, lambda: outline(run()))
    return run()


def classify(model: Any, tokenizer: Any) -> place.Run:
    run = pipeline("text-classification", model=model, tokenizer=tokenizer)

    def answer(given: Json) -> Json:
        found = run(given["text"], top_k=given.get("top_k"), truncation=True)
        apart([entry["score"] for entry in found], 3e-4)
        return {"label": found[0]["label"], "score": found[0]["score"], "scores": found}

    return answer


def zero_shot(model: Any, tokenizer: Any) -> place.Run:
    run = pipeline("zero-shot-classification", model=model, tokenizer=tokenizer)

    def answer(given: Json) -> Json:
        options = {key: given[key] for key in ("multi_label", "hypothesis_template") if key in given}
        found = run(given["text"], given["labels"], **options)
        apart(found["scores"], 3e-4)
        scores = [{"label": label, "score": score} for label, score in zip(found["labels"], found["scores"])]
        return {**scores[0], "scores": scores}

    return answer


def entities(model: Any, tokenizer: Any) -> place.Run:
    pipes: Json = {}

    def answer(given: Json) -> Json:
        strategy = given.get("aggregation", "simple")
        if strategy not in pipes:
            pipes[strategy] = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy=strategy)
        found = firm(model, lambda: pipes[strategy](given["text"]))
        least = given.get("threshold", 0)
        return {
            "entities": [
                {
                    "label": entry.get("entity_group") or entry["entity"], "score": entry["score"], "start": entry["start"], "end": entry["end"],
                    "text": given["text"][entry["start"] : entry["end"]],
                }
                for entry in found if entry["score"] >= least
            ]
        }

    return answer


def question(model: Any, tokenizer: Any) -> place.Run:
    run = pipeline("question-answering", model=model, tokenizer=tokenizer)

    def answer(given: Json) -> Json:
        count = given.get("top_k", 1)
        more = run(question=given["question"], context=given["context"], top_k=count + 1)
        demand(all(left["score"] > 1.01 * right["score"] for left, right in zip(more, more[1:])), "answers too near each other")
        # The reference adds the scores of candidates with one text, and their number depends on the number of answers.
        found = firm(model, lambda: run(question=given["question"], context=given["context"], top_k=count))
        found = found if isinstance(found, list) else [found]
        answers = [{key: entry[key] for key in ("answer", "score", "start", "end")} for entry in found]
        return {**answers[0], "answers": answers}

    return answer


def fill(model: Any, tokenizer: Any) -> place.Run:
    run = pipeline("fill-mask", model=model, tokenizer=tokenizer)

    def answer(given: Json) -> Json:
        found = run(given["text"], top_k=given.get("top_k", 5))
        apart([entry["score"] for entry in found], 3e-4)
        return {"candidates": [{"token": entry["token_str"], "score": entry["score"], "text": entry["sequence"]} for entry in found]}

    return answer


LABELS = {"text": "The train from Berlin was late.", "labels": ["travel", "food", "politics"]}
ZERO_SHOT = {
    "one-of": LABELS, "several": {**LABELS, "multi_label": True}, "one": {"text": "la rivière 🙂", "labels": ["sea"]},
    "template": {**LABELS, "hypothesis_template": "This is about {}, or not."}, "long": {"text": LONG, "labels": ["film", "boat"]},
    "right-to-left": {"text": TEXTS["right-to-left"], "labels": ["עולם", "film"]},
}
NER_TEXT = "Angela Merkel-Müller works for Siemens in New York 🙂, near Hamburg's café."
ENTITIES = {strategy: {"text": NER_TEXT, "aggregation": strategy} for strategy in ("none", "simple", "first", "average", "max")} | {
    "default": {"text": NER_TEXT}, **{name: {"text": TEXTS[name]} for name in ("capitals", "accents", "right-to-left", "chinese", "spaces", "marks", "invisible")},
}
CONTEXT = "The engine of the ship was repaired in 1912. She lies in Hamburg, on the river Elbe 🙂; the crew is at café Paris. "
QUESTIONS = {
    "short": {"question": "Where does the ship lie?", "context": CONTEXT},
    "several": {"question": "When was it repaired?", "context": CONTEXT, "top_k": 3},
    "windows": {"question": "Who is at the café?", "context": CONTEXT * 12},
    "right-to-left": {"question": "מי?", "context": "the film " + TEXTS["right-to-left"]},
    "accents": {"question": "Où?", "context": "Le café “Über” est près de la rivière"},
}


def masked(mask: str) -> dict[str, Json]:
    return {
        "five": {"text": f"the {mask} of France is Paris."}, "two": {"text": f"Café {mask}, 🙂 a good film!", "top_k": 2},
        "first": {"text": f"{mask} was cold", "top_k": 3}, "last": {"text": f"the river is {mask}", "top_k": 4}, "close": {"text": f"the riv{mask}er", "top_k": 2},
    }


CLASSES = labels(["negative", "neutral", "positive"])
MNLI = labels(["contradiction", "neutral", "entailment"])
BIO = labels(["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"])
TASKS: dict[str, tuple[str, Any, Callable[[Any, Any], place.Run], Json, Callable[[Any], dict[str, Json]]]] = {
    "text-classification": ("text-classification", tf.AutoModelForSequenceClassification, classify, CLASSES, lambda _: texts()),
    "zero-shot-classification": ("text-classification", tf.AutoModelForSequenceClassification, zero_shot, MNLI, lambda _: ZERO_SHOT),
    "token-classification": ("token-classification", tf.AutoModelForTokenClassification, entities, BIO, lambda _: ENTITIES),
    "question-answering": ("question-answering", tf.AutoModelForQuestionAnswering, question, {}, lambda _: QUESTIONS),
    "fill-mask": ("fill-mask", tf.AutoModelForMaskedLM, fill, {}, lambda tokenizer: masked(tokenizer.mask_token)),
}
"""Task: its export, the reference's class and answers, labels, and inputs."""

ROBERTA = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1)
SEQ2SEQ = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2)
ARCHITECTURES: dict[str, tuple[str, Json]] = {
    "bert": ("bert", {}), "albert": ("albert", {"embedding_size": 16}), "convbert": ("convbert", {"head_ratio": 2}), "electra": ("electra", {}),
    "squeezebert": ("squeezebert", {"q_groups": 1, "k_groups": 1, "v_groups": 1, "post_attention_groups": 1, "intermediate_groups": 1, "output_groups": 1}),
    "mobilebert": ("mobilebert", {"embedding_size": 16}), "nystromformer": ("bert", {}), "roformer": ("bert", {"rotary_value": False}), "megatron-bert": ("bert", {}),
    "distilbert": ("distilbert", {}), "mpnet": ("mpnet", {"pad_token_id": 1, "relative_attention_num_buckets": 32}), "rembert": ("rembert", {}),
    "big_bird": ("big-bird", {"attention_type": "original_full"}), "layoutlm": ("layoutlm", {}),
    "roberta": ("roberta", ROBERTA), "camembert": ("camembert", ROBERTA), "xlm-roberta": ("xlm-roberta", ROBERTA), "ibert": ("roberta", {**ROBERTA, "quant_mode": False}),
    "longformer": ("longformer", {**ROBERTA, "type_vocab_size": 2}), "data2vec-text": ("roberta", ROBERTA),
    "deberta": ("deberta", {"pos_att_type": ["c2p", "p2c"], "relative_attention": True, "type_vocab_size": 0}),
    "deberta-v2": ("deberta-v2", {"pos_att_type": ["c2p", "p2c"], "relative_attention": True, "type_vocab_size": 0, "position_buckets": 16, "share_att_key": True}),
    "modernbert": ("plain-wordpiece", {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}),
    "xlm": ("word-level", {"n_langs": 1, "pad_index": 0}), "flaubert": ("word-level", {"pad_index": 0}), "esm": ("word-level", {"pad_token_id": 0, "mask_token_id": 4}),
    "bart": ("bart", SEQ2SEQ), "mbart": ("mbart", {**SEQ2SEQ, "decoder_start_token_id": 1}),
    "gpt2": ("gpt2", {"pad_token_id": 1}), "gpt_neo": ("gpt2", {"pad_token_id": 1}), "gpt_neox": ("gpt-neox", {"pad_token_id": 1}), "opt": ("gpt2", {"pad_token_id": 1}),
    "llama": ("llama", {"pad_token_id": 3}), "qwen2": ("qwen2", {"pad_token_id": 0}), "qwen3": ("qwen2", {"pad_token_id": 0}), "bloom": ("bloom", {"pad_token_id": 3}),
    "gemma": ("llama", {"pad_token_id": 3}), "mistral": ("llama", {"pad_token_id": 3}),
}
UNIQUE = {"zero-shot-classification": {"bart", "bert", "roberta", "deberta-v2", "distilbert", "xlm-roberta", "modernbert", "mbart"}}


def vocabulary(tokenizer: Any) -> int:
    return max(tokenizer.get_vocab().values()) + 1


def exported(kind: str, task: str, tokenizer: Any, more: Json, name: str) -> tuple[Repository, Any]:
    """A repository with a graph and a tokenizer, and the network."""
    export, auto, _answer, heads, _inputs = TASKS[task]
    settings = archs.config(kind, vocab_size=more.pop("vocab_size", None) or vocabulary(tokenizer), **more, **heads)
    model = archs.network(auto, settings, name, gain=2.0)
    sharpen(model, task)
    made = repository(name, task, architecture=kind, tokenizer=type(tokenizer).__name__)
    made.export(model, export)
    return made, model


def save(made: Repository, tokenizer: Any) -> None:
    """Saves a tokenizer with its vocabulary's own files, which the reference reads for some classes."""
    made.save(tokenizer)
    with suppress(NotImplementedError):
        tokenizer.save_vocabulary(str(made.model))
    for file in ("vocab.json", "merges.txt", "vocab.txt"):
        (made.model / file).unlink(missing_ok=True)


def sharpen(model: Any, task: str) -> None:
    """Lets spans differ, which an untrained head makes all alike."""
    if task == "question-answering" and hasattr(model, "qa_outputs") and hasattr(model.qa_outputs, "weight"):
        model.qa_outputs.weight.data *= 3
    if task == "token-classification" and hasattr(model, "classifier") and hasattr(model.classifier, "weight"):
        model.classifier.weight.data *= 2


def answers(made: Repository, task: str, model: Any, base: Repository | None = None, only: tuple[str, ...] = ()) -> Repository:
    """The cases of a task, by what the reference loads from the folder."""
    tokenizer = tf.AutoTokenizer.from_pretrained(made.model)
    model.config = tf.AutoConfig.from_pretrained(made.model)
    inputs = TASKS[task][4](tokenizer)
    inputs = {name: given for name, given in inputs.items() if not only or name in only}
    return answered(made, TASKS[task][2](model, tokenizer), inputs, TOLERANCE, base)


def architectures(only: Callable[[str], bool]) -> None:
    """Every encoder by every task that it has."""
    from optimum.exporters.tasks import TasksManager
    import optimum.exporters.onnx.model_configs  # noqa: F401  registers the architectures

    for task, (export, *_rest) in TASKS.items():
        known = set(TasksManager.get_supported_model_type_for_task(export, exporter="onnx"))
        for kind, (tokens, more) in ARCHITECTURES.items():
            name = f"{task}--{kind}"
            if kind not in known or kind not in UNIQUE.get(task, {kind}) or not only(name):
                continue

            def make() -> None:
                tokenizer = tokenizer_kinds.KINDS[tokens](f"parity-{tokens}")
                made, model = exported(kind, task, tokenizer, dict(more), name)
                save(made, tokenizer)
                answers(made, task, model)

            attempt(name, make)


def tokenizers(only: Callable[[str], bool]) -> None:
    """Every tokenizer by every task, in front of one network for each."""
    for task in TASKS:
        base = network = None
        for tokens, build in tokenizer_kinds.KINDS.items():
            name = f"{task}--{tokens}"
            if not only(name):
                continue

            def make() -> None:
                nonlocal base, network
                tokenizer = build(f"parity-{tokens}")
                if task == "fill-mask" and tokenizer.mask_token is None:
                    return
                if base is None:
                    base, network = exported("bert", task, tokenizer, {"vocab_size": 700, "type_vocab_size": 4}, f"{task}--network")
                made = varied(base, tokens, {}, task)
                made.extra["setting"] = [{"file": "tokenizer_config.json", "key": "tokenizer_class", "value": type(tokenizer).__name__}]
                save(made, tokenizer)
                answers(made, task, network)

            attempt(name, make)
        if base is not None:
            shutil.rmtree(base.root)


WORDPIECE: list[Json] = [
    {"do_lower_case": False}, {"do_lower_case": ABSENT}, {"strip_accents": True}, {"strip_accents": False}, {"tokenize_chinese_chars": False},
    {"do_basic_tokenize": False}, {"never_split": ["film"]}, {"clean_text": False},
]
BYTES: list[Json] = [{"add_prefix_space": True}, {"trim_offsets": False}, {"errors": "ignore"}]
PIECES: list[Json] = [{"sp_model_kwargs": {"enable_sampling": False}}, {"legacy": False}, {"keep_accents": True}]
EVERY: list[Json] = [
    {"truncation_side": "left"}, {"padding_side": "left"}, {"model_max_length": 20}, {"model_max_length": 1e30}, {"model_max_length": ABSENT},
    {"model_input_names": ["input_ids"]}, {"clean_up_tokenization_spaces": True}, {"clean_up_tokenization_spaces": False}, {"split_special_tokens": True},
    {"add_bos_token": True}, {"add_eos_token": True}, {"use_fast": False}, {"max_length": 12}, {"max_len": 20}, {"tokenizer_class": "PreTrainedTokenizerFast"},
    {"tokenizer_class": ABSENT}, {"additional_special_tokens": ["film"]}, {"extra_special_tokens": {"odd": "good"}}, {"truncation_strategy": "longest_first"},
    {"padding": True}, {"stride": 4}, {"from_slow": False}, {"added_tokens_decoder": ABSENT}, {"special_tokens_map_file": None},
]
SETTING_BASES = {"bert": WORDPIECE, "roberta": BYTES, "xlm-roberta": PIECES, "deberta-v2": PIECES, "modernbert": []}


def answered_base(kind: str, task: str, name: str) -> tuple[Repository, Any]:
    """The repository whose settings are varied, with its answers, and the model that gives them."""
    tokens, more = ARCHITECTURES[kind]
    tokenizer = tokenizer_kinds.KINDS[tokens](f"parity-{tokens}")
    base, model = exported(kind, task, tokenizer, dict(more), name)
    save(base, tokenizer)
    answers(base, task, model)
    return base, model


def token_settings(only: Callable[[str], bool]) -> None:
    """Keys of `tokenizer_config.json` and sections of `tokenizer.json`, at two values."""
    for kind, own in SETTING_BASES.items():
        for task in ("text-classification", "zero-shot-classification", "token-classification", "question-answering"):
            name = f"{task}--{kind}"
            if not only(name):
                continue

            def make() -> None:
                base, model = answered_base(kind, task, name)
                for keys in own + (EVERY if task != "zero-shot-classification" else EVERY[:6]):
                    (key, value), = keys.items()
                    shown = "absent" if value is ABSENT else json.dumps(value, ensure_ascii=False)
                    label = f"{key}-{''.join(letter if letter.isalnum() else '-' for letter in shown)}"[:60]
                    attempt(label, lambda: answers(varied(base, label, {"tokenizer_config.json": keys}), task, model, base))
                for label, keys in SECTIONS.items():
                    attempt(label, lambda: answers(varied(base, label, {"tokenizer.json": keys}), task, model, base))

            attempt(name, make)


SECTIONS: dict[str, Json] = {
    "json-truncation": {"truncation": {"direction": "Right", "max_length": 12, "strategy": "LongestFirst", "stride": 0}},
    "json-truncation-left": {"truncation": {"direction": "Left", "max_length": 12, "strategy": "LongestFirst", "stride": 0}},
    "json-padding": {"padding": {"strategy": {"Fixed": 20}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}},
}
MODEL_SETTINGS: dict[str, tuple[str, Json]] = {
    "regression": ("text-classification", {"problem_type": "regression"}),
    "multi-label": ("text-classification", {"problem_type": "multi_label_classification"}),
    "single-label": ("text-classification", {"problem_type": "single_label_classification"}),
    "unknown-problem": ("text-classification", {"problem_type": "other"}),
    "softmax": ("text-classification", {"function_to_apply": "none"}),
    "no-names": ("text-classification", {"id2label": ABSENT, "label2id": ABSENT}),
    "names-by-number": ("text-classification", {"id2label": {"0": "LABEL_0", "1": "x", "2": "y"}}),
    "entailment-first": ("zero-shot-classification", {"id2label": {"0": "entailment", "1": "neutral", "2": "contradiction"}, "label2id": {"entailment": 0, "neutral": 1, "contradiction": 2}}),
    "entailment-middle": ("zero-shot-classification", {"id2label": {"0": "no", "1": "ENTAILMENT", "2": "neutral"}, "label2id": {"no": 0, "ENTAILMENT": 1, "neutral": 2}}),
    "entailment-missing": ("zero-shot-classification", {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}),
    "entailment-short": ("zero-shot-classification", {"id2label": {"0": "entail", "1": "neutral", "2": "contra"}, "label2id": {"entail": 0, "neutral": 1, "contra": 2}}),
    "schemes-bioes": ("token-classification", {"id2label": {"0": "O", "1": "B-PER", "2": "I-PER", "3": "E-PER", "4": "S-PER", "5": "B-LOC", "6": "I-LOC"}}),
    "schemes-plain": ("token-classification", {"id2label": {"0": "O", "1": "PER", "2": "LOC", "3": "ORG", "4": "MISC", "5": "X", "6": "Y"}}),
    "schemes-io": ("token-classification", {"id2label": {"0": "O", "1": "I-PER", "2": "I-LOC", "3": "I-ORG", "4": "I-MISC", "5": "I-X", "6": "I-Y"}}),
    "schemes-hyphens": ("token-classification", {"id2label": {"0": "O", "1": "B-PER-F", "2": "I-PER-F", "3": "B-LOC_X", "4": "I-LOC_X", "5": "person", "6": "B-"}}),
    "schemes-numbers": ("token-classification", {"id2label": ABSENT, "label2id": ABSENT}),
}


def model_settings(only: Callable[[str], bool]) -> None:
    """Keys of `config.json` that decide what a head's numbers mean, and heads of few labels."""
    for kind in ("bert", "roberta"):
        for task in ("text-classification", "zero-shot-classification", "token-classification"):
            name = f"{task}--{kind}"
            if not only(name):
                continue

            def make() -> None:
                base, model = answered_base(kind, task, name)
                for label, (of, keys) in MODEL_SETTINGS.items():
                    if of == task:
                        attempt(label, lambda: answers(varied(base, label, {"config.json": keys}), task, model, base))

            attempt(name, make)
        for count, problem in ((1, None), (2, None), (2, "multi_label_classification"), (1, "multi_label_classification"), (1, "regression")):
            name = f"heads--{kind}-{count}-{problem or 'none'}"

            def heads() -> None:
                tokens, more = ARCHITECTURES[kind]
                tokenizer = tokenizer_kinds.KINDS[tokens](f"parity-{tokens}")
                settings = archs.config(kind, vocab_size=vocabulary(tokenizer), **more, num_labels=count, problem_type=problem)
                model = archs.network(tf.AutoModelForSequenceClassification, settings, name, gain=2.0)
                made = repository(name, "text-classification", architecture=kind)
                made.export(model, "text-classification")
                save(made, tokenizer)
                answers(made, "text-classification", model)

            if only(name):
                attempt(name, heads)


MODES = ["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
SENTENCES = {
    "batch": {"input": [*list(TEXTS.values())[:6]]}, "one": {"input": TEXTS["spaces"]}, "marks": {"input": TEXTS["marks"]}, "long": {"input": [LONG, "a"]},
    "short": {"input": TEXTS["capitals"], "dimensions": 8}, "query": {"input": TEXTS["plain"], "prompt": "query"}, "invisible": {"input": TEXTS["invisible"]},
}
SENTENCE_SETTINGS: dict[str, dict[str, Json]] = {
    **{f"mode-{mode}": {"1_Pooling/config.json": {"pooling_mode": mode}} for mode in MODES},
    **{f"modes-{first}-{second}": {"1_Pooling/config.json": {"pooling_mode": [first, second]}} for first, second in (("cls", "mean"), ("mean", "cls"), ("max", "lasttoken"))},
    **{
        f"flags-{name}": {"1_Pooling/config.json": {"pooling_mode": ABSENT, **{f"pooling_mode_{key}": key in keys for key in (
            "cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")}}}
        for name, keys in {"cls": ["cls_token"], "none": [], "max-mean": ["max_tokens", "mean_tokens"], "weighted": ["weightedmean_tokens"], "last-cls": ["lasttoken", "cls_token"]}.items()
    },
    "prompt-left-out": {"1_Pooling/config.json": {"include_prompt": False}},
    "prompt-default": {"config_sentence_transformers.json": {"default_prompt_name": "passage"}},
    "prompt-missing": {"config_sentence_transformers.json": {"default_prompt_name": "other"}},
    "prompt-default-left-out": {"config_sentence_transformers.json": {"default_prompt_name": "passage"}, "1_Pooling/config.json": {"include_prompt": False}},
    "prompt-none": {"config_sentence_transformers.json": {"prompts": {}}},
    "similarity": {"config_sentence_transformers.json": {"similarity_fn_name": "dot"}},
    "truncate-dim": {"config_sentence_transformers.json": {"truncate_dim": 8}},
    "lower": {"sentence_bert_config.json": {"do_lower_case": True}},
    "length-16": {"sentence_bert_config.json": {"max_seq_length": 16}},
    "length-beyond-tokenizer": {"sentence_bert_config.json": {"max_seq_length": 60}, "tokenizer_config.json": {"model_max_length": 20}},
    "length-none": {"sentence_bert_config.json": {"max_seq_length": None}},
    "length-absent": {"sentence_bert_config.json": {"max_seq_length": ABSENT}},
    "left": {"tokenizer_config.json": {"truncation_side": "left"}},
    "left-padding": {"tokenizer_config.json": {"padding_side": "left"}},
}


def sentence_model(name: str, kind: str, tokenizer: Any, more: Json, after: list[Any]) -> tuple[Repository, Path]:
    """An engine's repository, and the reference's folder with the same files and weights."""
    settings = archs.config(kind, vocab_size=vocabulary(tokenizer), **more)
    model = archs.network(tf.AutoModel, settings, name)
    made = repository(name, "feature-extraction", architecture=kind, tokenizer=type(tokenizer).__name__)
    made.export(model, "feature-extraction")
    inner = folder(f"{name}-transformer")
    model.save_pretrained(inner)
    tokenizer.save_pretrained(inner)
    transformer = Transformer(str(inner), max_seq_length=100)
    width = transformer.get_word_embedding_dimension()
    parts = [transformer, Pooling(width, pooling_mode="mean"), *[part(width) for part in after]]
    sentences = SentenceTransformer(modules=parts, device="cpu")
    sentences.prompts = {"query": "the film was: ", "passage": "a river, "}
    outer = folder(f"{name}-sentences")
    sentences.save(str(outer), create_model_card=False)
    for file in outer.rglob("*"):
        target = made.model / file.relative_to(outer)
        if file.is_file() and (file.suffix == ".json" or file.parent != outer) and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    save(made, tokenizer)
    return made, outer


def embed(made: Repository, weights: Path, base: Repository | None = None) -> Repository:
    """The reference loads the settings of the repository beside its own weights."""
    inner = folder(f"{made.name}-reference")
    shutil.copytree(made.model, inner, dirs_exist_ok=True, ignore=shutil.ignore_patterns("onnx"))
    for file in weights.rglob("*.safetensors"):
        target = inner / file.relative_to(weights)
        if not target.exists():
            os.link(file, target)
    sentences = SentenceTransformer(str(inner), device="cpu")
    # The engine normalizes a vector again that a request shortens, the library only on request. Neither does where the settings shorten it.
    normal = isinstance(sentences[-1], Normalize)

    def answer(given: Json) -> Json:
        inputs = [given["input"]] if isinstance(given["input"], str) else given["input"]
        options = {"prompt_name": given.get("prompt"), **({"truncate_dim": given["dimensions"]} if "dimensions" in given else {})}
        found = sentences.encode(inputs, batch_size=16, normalize_embeddings=normal and "dimensions" in given, **options)
        # Networks without a last normalization give numbers of several hundreds.
        own = {"tolerance": EMBEDDING * max(1.0, float(abs(found).max()))}
        return {"embeddings": found.tolist(), "dimensions": found.shape[1], "__case__": own}

    done = answered(made, answer, SENTENCES, EMBEDDING, base)
    shutil.rmtree(inner)
    return done


AFTER: dict[str, list[Callable[[int], Any]]] = {
    "plain": [], "normalized": [lambda _: Normalize()],
    "dense": [lambda width: randomise(Dense(width, 16, activation_function=torch.nn.Tanh()), "dense")],
    "dense-identity": [lambda width: randomise(Dense(width, 16, bias=False, activation_function=torch.nn.Identity()), "dense"), lambda _: Normalize()],
    "dense-gelu": [lambda width: randomise(Dense(width, 16, activation_function=torch.nn.GELU()), "dense")],
    "normalized-dense": [lambda _: Normalize(), lambda width: randomise(Dense(width, 12, activation_function=torch.nn.ReLU()), "dense")],
    "layer-norm": [lambda width: randomise(LayerNorm(width), "norm")],
}


def sentence_embeddings(only: Callable[[str], bool]) -> None:
    """Every encoder as an embedding model; modules; and each key of the files of `sentence-transformers`."""
    for kind, (tokens, more) in ARCHITECTURES.items():
        if kind in ("bart", "mbart", "perceiver", "layoutlm", "xlm", "flaubert", "esm") or not only(f"embeddings--{kind}"):
            continue
        tokenizer = tokenizer_kinds.KINDS[tokens](f"parity-{tokens}")
        attempt(f"embeddings--{kind}", lambda: embed(*sentence_model(f"embeddings--{kind}", kind, tokenizer, dict(more), [])))
    for label, after in AFTER.items():
        if only(f"modules--{label}"):
            tokenizer = tokenizer_kinds.KINDS["bert"]("parity-bert")
            attempt(f"modules--{label}", lambda: embed(*sentence_model(f"modules--{label}", "bert", tokenizer, {}, list(after))))
    # The tokenizer of GPT-2 ends no text with a token.
    for kind, after in (("bert", []), ("roberta", [lambda _: Normalize()]), ("gpt2", [])):
        if not only(f"sentences--{kind}"):
            continue

        def make() -> None:
            tokens, more = ARCHITECTURES[kind]
            tokenizer = tokenizer_kinds.KINDS[tokens](f"parity-{tokens}")
            base, weights = sentence_model(f"sentences--{kind}", kind, tokenizer, dict(more), list(after))
            embed(base, weights)
            for label, changes in SENTENCE_SETTINGS.items():
                if kind != "gpt2" or label.startswith(("prompt", "length")):
                    attempt(label, lambda: embed(varied(base, label, changes), weights, base))

        attempt(f"sentences--{kind}", make)


QUERY = "Which train was late?"
RANKINGS: dict[str, Json] = {
    "several": {"query": QUERY, "documents": [TEXTS["plain"], TEXTS["accents"], TEXTS["right-to-left"], "The train from Berlin was late."]},
    "long": {"query": QUERY, "documents": [LONG]}, "long-query": {"query": LONG, "documents": [TEXTS["plain"]]},
    "capitals": {"query": TEXTS["capitals"], "documents": [TEXTS["special"]]},
}
RANKING_SETTINGS: dict[str, dict[str, Json]] = {
    "length-16": {"sentence_bert_config.json": {"max_seq_length": 16}},
    "length-beyond-tokenizer": {"sentence_bert_config.json": {"max_seq_length": 60}, "tokenizer_config.json": {"model_max_length": 20}},
    "lower": {"sentence_bert_config.json": {"do_lower_case": True}, "tokenizer_config.json": {"do_lower_case": False}},
    "prompt": {"config_sentence_transformers.json": {"prompts": {"query": "the film was: "}}},
    "prompt-default": {"config_sentence_transformers.json": {"prompts": {"query": "the film was: "}, "default_prompt_name": "query"}},
    "prompt-missing": {"config_sentence_transformers.json": {"default_prompt_name": "other"}},
    "left": {"tokenizer_config.json": {"truncation_side": "left"}},
}


def ranked(made: Repository, weights: Path, base: Repository | None = None) -> Repository:
    """The reference loads the settings of the repository beside its own weights."""
    inner = folder(f"{made.name}-reference")
    shutil.copytree(made.model, inner, dirs_exist_ok=True, ignore=shutil.ignore_patterns("onnx"))
    if not (inner / "model.safetensors").exists():
        os.link(weights / "model.safetensors", inner / "model.safetensors")
    encoder = CrossEncoder(str(inner), device="cpu")

    def answer(given: Json) -> Json:
        pairs = [(given["query"], document) for document in given["documents"]]
        return {"scores": [float(encoder.predict([pair], show_progress_bar=False)[0]) for pair in pairs]}

    done = answered(made, answer, RANKINGS, TOLERANCE, base)
    shutil.rmtree(inner)
    return done


def rankings(only: Callable[[str], bool]) -> None:
    """Encoders that score pairs, with each key of the files of `sentence-transformers`."""
    for kind in ("bert", "roberta", "xlm-roberta", "deberta-v2", "modernbert", "distilbert"):
        name = f"rankings--{kind}"
        if not only(name):
            continue

        def make() -> None:
            tokens, more = ARCHITECTURES[kind]
            tokenizer = tokenizer_kinds.KINDS[tokens](f"parity-{tokens}")
            settings = archs.config(kind, vocab_size=vocabulary(tokenizer), **more, **labels(["LABEL_0"]))
            model = archs.network(tf.AutoModelForSequenceClassification, settings, name, gain=2.0)
            base = repository(name, "text-ranking", architecture=kind, tokenizer=type(tokenizer).__name__)
            base.export(model, "text-classification")
            weights = folder(f"{name}-weights")
            model.save_pretrained(weights)
            tokenizer.save_pretrained(weights)
            CrossEncoder(str(weights), device="cpu").save_pretrained(str(weights), create_model_card=False)
            for file in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
                shutil.copy(weights / file, base.model / file)
            save(base, tokenizer)
            ranked(base, weights)
            for label, changes in RANKING_SETTINGS.items():
                attempt(label, lambda: ranked(varied(base, label, changes), weights, base))

        attempt(name, make)


def refusals(only: Callable[[str], bool]) -> None:
    """Texts without a word: the reference answers, the engine refuses the job (decision 0022)."""
    name = "odd--bert"
    if only(name):

        def make() -> None:
            tokenizer = tokenizer_kinds.KINDS["bert"]("parity-bert")
            made, model = exported("bert", "text-classification", tokenizer, {}, name)
            save(made, tokenizer)
            answered(made, classify(model, tokenizer), {key: {"text": line} for key, line in ODD.items()}, TOLERANCE)

        attempt(name, make)


FAMILIES = {
    "text-architectures": architectures, "text-tokenizers": tokenizers, "text-token-settings": token_settings, "text-model-settings": model_settings,
    "text-embeddings": sentence_embeddings, "text-rankings": rankings, "text-odd": refusals,
}
