"""Encoders with a head over text: classification, zero-shot, entities, answers, masked words."""

from __future__ import annotations

from typing import Any

import transformers as tf
from sentence_transformers import CrossEncoder
from transformers import pipeline

import vocab
from common import Json, Repository, apart, capture, close, demand, randomise
from scratch import folder

LONG = "the film was good and the train was bad. " * 12
# WordPiece has these words whole.
LONGER = LONG + "he was rude in paris! " * 4


def bert_tokenizer(name: str, cased: bool = False, limit: int = 128) -> tf.PreTrainedTokenizerFast:
    """A WordPiece tokenizer as BERT has it."""
    file = vocab.wordpiece(folder(name), cased)
    return tf.BertTokenizerFast(str(file), do_lower_case=not cased, model_max_length=limit)


def distilbert_tokenizer(name: str, limit: int = 128) -> tf.PreTrainedTokenizerFast:
    """The same, which yields no token types."""
    return tf.DistilBertTokenizerFast(str(vocab.wordpiece(folder(name))), model_max_length=limit)


def roberta_tokenizer(name: str, limit: int = 126) -> tf.PreTrainedTokenizerFast:
    """Byte-level BPE with RoBERTa's special tokens."""
    trained = vocab.byte_bpe(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    words, merges = vocab.bpe_files(trained, folder(name))
    return tf.RobertaTokenizerFast(words, merges, model_max_length=limit)


def bart_tokenizer(name: str, limit: int = 126) -> tf.PreTrainedTokenizerFast:
    """The same pieces with BART's class."""
    trained = vocab.byte_bpe(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    words, merges = vocab.bpe_files(trained, folder(name))
    return tf.BartTokenizerFast(words, merges, model_max_length=limit)


def xlmr_tokenizer(name: str, limit: int = 126) -> tf.PreTrainedTokenizerFast:
    """Unigram pieces with XLM-R's shifted special tokens."""
    slow = tf.XLMRobertaTokenizer(str(vocab.sentencepiece_model(name)), model_max_length=limit)
    return tf.XLMRobertaTokenizerFast.from_pretrained(saved(slow, name), model_max_length=limit)


def saved(part: Any, name: str) -> str:
    """Saves a part in the scratch folder and gives the place."""
    target = folder(f"{name}-saved")
    part.save_pretrained(target)
    return str(target)


def small(**more: Any) -> Json:
    """The sizes that the BERT family shares."""
    sizes = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)
    return {**sizes, "max_position_embeddings": 128, **more}


def labels(names: list[str]) -> Json:
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


def first_tensors(repository: Repository, calls: list[Json], graph: str, wanted: Any, output: str = "logits") -> Json:
    """The captured inputs and onnxruntime's outputs, once these agree with the library's."""
    session = repository.session(graph)
    feeds = {name: calls[0][name] for name in session.inputs if name in calls[0]}
    raw = {name: value for name, value in session(feeds).items() if not name.startswith("present")}
    if wanted is not None:
        close(raw[output], wanted)
    return {"tensors": feeds, "raw": raw}


def cut_short(tokenizer: Any, text: str) -> None:
    """Sees to it that a text is too long for the model: a case that shows how it is cut would show nothing else."""
    count = len(tokenizer(text).input_ids)
    assert count > tokenizer.model_max_length, f"{count} tokens are not too many for {tokenizer.model_max_length}"


def classify(repository: Repository, model: Any, tokenizer: Any, texts: dict[str, Json], graph: str) -> None:
    """Cases of text classification; the library truncates only on request."""
    run = pipeline("text-classification", model=model, tokenizer=tokenizer)
    for index, (name, given) in enumerate(texts.items()):
        with capture(model) as calls:
            found = run(given["text"], top_k=given.get("top_k"), truncation=True)
        apart([entry["score"] for entry in found])
        output = {"label": found[0]["label"], "score": found[0]["score"], "scores": found}
        if given.get("truncate"):
            cut_short(tokenizer, given["text"])
        arrays = {}
        if index == 0 or given.get("truncate"):
            encoded = tokenizer(given["text"], return_tensors="pt", truncation=True)
            arrays = first_tensors(repository, calls, graph, model(**encoded).logits.detach())
        repository.case(name, given, output, **arrays)


def distilbert_sst2() -> None:
    name = "distilbert-sst2"
    tokenizer = distilbert_tokenizer(name)
    config = tf.DistilBertConfig(
        vocab_size=len(tokenizer), dim=24, n_layers=2, n_heads=2, hidden_dim=48, max_position_embeddings=128,
        **labels(["NEGATIVE", "POSITIVE"]),
    )
    model = randomise(tf.DistilBertForSequenceClassification(config), name)
    repository = Repository(name, "text-classification")
    repository.export(model, "text-classification")
    repository.save(tokenizer)
    texts = {
        "plain": {"text": "The film was good."},
        "accents-and-emoji": {"text": "Café au lait 🙂 was naïve, não?", "top_k": 1},
        "truncated": {"text": LONGER, "truncate": True},
    }
    classify(repository, model, tokenizer, texts, "onnx/model.onnx")
    repository.write()


def bert_toxic() -> None:
    name = "bert-toxic"
    tokenizer = bert_tokenizer(name)
    names = ["toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate"]
    config = tf.BertConfig(
        vocab_size=len(tokenizer), problem_type="multi_label_classification", **small(), **labels(names)
    )
    model = randomise(tf.BertForSequenceClassification(config), name)
    repository = Repository(name, "text-classification")
    repository.export(model, "text-classification", folder="")
    repository.save(tokenizer)
    texts = {
        "all": {"text": "He was rude to the staff!"},
        "two": {"text": "the river is not bad", "top_k": 2},
        "truncated": {"text": LONGER, "truncate": True, "top_k": 3},
    }
    classify(repository, model, tokenizer, texts, "model.onnx")
    repository.write()


def roberta_sentiment() -> None:
    name = "roberta-sentiment"
    tokenizer = roberta_tokenizer(name)
    config = tf.RobertaConfig(
        vocab_size=len(tokenizer), type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        **small(), **labels(["negative", "neutral", "positive"]),
    )
    model = randomise(tf.RobertaForSequenceClassification(config), name)
    repository = Repository(name, "text-classification")
    repository.export(model, "text-classification")
    repository.save(tokenizer)
    texts = {
        "plain": {"text": "the actors were good"},
        "bytes": {"text": "schön 🙂🇩🇪 e\u0301tude\u00a0日本", "top_k": 2},
        "truncated": {"text": LONG, "truncate": True},
    }
    classify(repository, model, tokenizer, texts, "onnx/model.onnx")
    repository.write()


def xlmr_sentiment() -> None:
    name = "xlmr-sentiment"
    tokenizer = xlmr_tokenizer(name)
    config = tf.XLMRobertaConfig(
        vocab_size=len(tokenizer), type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        **small(), **labels(["negative", "neutral", "positive"]),
    )
    model = randomise(tf.XLMRobertaForSequenceClassification(config), name)
    repository = Repository(name, "text-classification")
    repository.export(model, "text-classification")
    repository.save(tokenizer)
    texts = {
        "plain": {"text": "la rivière est calme"},
        "normalised": {"text": "ﬁlm № 1… ½  Ａ\u00a0river 🙂"},  # words: ok
        "truncated": {"text": LONG, "truncate": True, "top_k": 1},
    }
    classify(repository, model, tokenizer, texts, "onnx/model.onnx")
    repository.write()


# One is empty, as the results of a search may be.
QUERY = "Which train was late?"
DOCUMENTS = ["The train from Berlin was late.", "A film about a boat.", "la rivière est calme 🙂", ""]


def rank(repository: Repository, model: Any, tokenizer: Any, cases: dict[str, Json]) -> None:
    """Cases of text ranking: scores as CrossEncoder gives them for models with one label."""
    saved(tokenizer, repository.name)
    encoder = CrossEncoder(saved(model, repository.name))
    for index, (name, given) in enumerate(cases.items()):
        pairs = [(given["query"], document) for document in given["documents"]]
        with capture(encoder[0].model) as calls:
            found = [float(encoder.predict([pair], show_progress_bar=False)[0]) for pair in pairs]
        apart(sorted(found, reverse=True))
        arrays = first_tensors(repository, calls, "onnx/model.onnx", None) if len(pairs) == 1 else {}
        repository.case(name, given, {"scores": found}, **arrays)


def bert_rank() -> None:
    name = "bert-rank"
    tokenizer = bert_tokenizer(name)
    config = tf.BertConfig(vocab_size=len(tokenizer), **small(), **labels(["LABEL_0"]))
    model = randomise(tf.BertForSequenceClassification(config), name)
    repository = Repository(name, "text-ranking")
    repository.export(model, "text-classification")
    repository.save(tokenizer)
    long = {"query": LONG, "documents": [LONGER]}
    assert len(tokenizer(LONG, LONGER).input_ids) > tokenizer.model_max_length
    cases = {
        "documents": {"query": QUERY, "documents": DOCUMENTS},
        "one": {"query": QUERY, "documents": DOCUMENTS[:1]},
        "truncated": long,
        "long-document": {"query": QUERY, "documents": [LONGER]},
    }
    rank(repository, model, tokenizer, cases)
    repository.write()


def judge(repository: Repository, model: Any, tokenizer: Any, cases: dict[str, Json]) -> None:
    """Cases of zero-shot classification."""
    run = pipeline("zero-shot-classification", model=model, tokenizer=tokenizer)
    for index, (name, given) in enumerate(cases.items()):
        options = {key: given[key] for key in ("multi_label", "hypothesis_template") if key in given}
        with capture(model) as calls:
            found = run(given["text"], given["labels"], **options)
        apart(found["scores"])
        scores = [{"label": label, "score": score} for label, score in zip(found["labels"], found["scores"])]
        arrays = first_tensors(repository, calls, "onnx/model.onnx", None) if index == 0 else {}
        repository.case(name, given, {**scores[0], "scores": scores}, **arrays)


ZERO_SHOT = {
    "one-of": {"text": "The train from Berlin was late.", "labels": ["travel", "food", "politics"]},
    "several": {"text": "The train from Berlin was late.", "labels": ["travel", "food", "politics"], "multi_label": True},
    "template": {
        "text": "la rivière est calme 🙂",
        "labels": ["nature", "war"],
        "hypothesis_template": "This text is about {}, I think.",
    },
    "one-label": {"text": "a small boat", "labels": ["sea"]},
    "truncated": {"text": LONG, "labels": ["film", "boat", "a rather long label"]},
}


def bart_mnli() -> None:
    name = "bart-mnli"
    tokenizer = bart_tokenizer(name)
    config = tf.BartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=128,
        **labels(["contradiction", "neutral", "entailment"]),
    )
    model = randomise(tf.BartForSequenceClassification(config), name)
    repository = Repository(name, "zero-shot-classification")
    repository.export(model, "text-classification")
    repository.save(tokenizer)
    judge(repository, model, tokenizer, ZERO_SHOT)
    repository.write()


def deberta_mnli() -> None:
    name = "deberta-mnli"
    slow = tf.DebertaV2Tokenizer(str(vocab.sentencepiece_model(name, **vocab.DEBERTA_IDS)), model_max_length=128)
    tokenizer = tf.DebertaV2TokenizerFast.from_pretrained(saved(slow, name), model_max_length=128)
    config = tf.DebertaV2Config(
        vocab_size=len(tokenizer), type_vocab_size=0, relative_attention=True, position_buckets=16,
        norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"], position_biased_input=False,
        max_relative_positions=-1, pooler_dropout=0, pooler_hidden_act="gelu", pooler_hidden_size=24,
        **small(), **labels(["entailment", "neutral", "contradiction"]),
    )
    model = randomise(tf.DebertaV2ForSequenceClassification(config), name)
    repository = Repository(name, "zero-shot-classification")
    repository.export(model, "text-classification")
    repository.save(tokenizer)
    judge(repository, model, tokenizer, ZERO_SHOT)
    repository.write()


def find_entities(repository: Repository, model: Any, tokenizer: Any, cases: dict[str, Json]) -> None:
    """Cases of token classification; `text` is cut from the input, not decoded from tokens."""
    for index, (name, given) in enumerate(cases.items()):
        strategy = given.get("aggregation", "simple")
        run = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy=strategy)
        with capture(model) as calls:
            found = run(given["text"])
        entities = [
            {
                "label": entry.get("entity_group") or entry["entity"],
                "score": entry["score"],
                "text": given["text"][entry["start"] : entry["end"]],
                "start": entry["start"],
                "end": entry["end"],
            }
            for entry in found
            if entry["score"] >= given.get("threshold", 0)
        ]
        arrays = first_tensors(repository, calls, "onnx/model.onnx", None) if index == 0 else {}
        repository.case(name, given, {"entities": entities}, **arrays)


ENTITY_LABELS = ["O", "B-MISC", "I-MISC", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"]
ENTITY_TEXT = "Angela Merkel-Müller works for Siemens in New York 🙂, near Hamburg's café."
ENTITY_CASES = {
    "default": {"text": ENTITY_TEXT},
    "none": {"text": ENTITY_TEXT, "aggregation": "none"},
    "first": {"text": ENTITY_TEXT, "aggregation": "first"},
    "average": {"text": ENTITY_TEXT, "aggregation": "average"},
    "max": {"text": ENTITY_TEXT, "aggregation": "max"},
    "threshold": {"text": ENTITY_TEXT, "aggregation": "simple", "threshold": 0.6},
    "emoji-first": {"text": "🙂 Paris", "aggregation": "first"},
    "empty": {"text": "a", "threshold": 0.999},
}


def bert_ner() -> None:
    name = "bert-ner"
    tokenizer = bert_tokenizer(name, cased=True)
    config = tf.BertConfig(vocab_size=len(tokenizer), **small(), **labels(ENTITY_LABELS))
    model = randomise(tf.BertForTokenClassification(config), name, gain=2.0)
    repository = Repository(name, "token-classification")
    model.classifier.weight.data *= 2
    model.classifier.bias.data[0] += 1
    repository.export(model, "token-classification")
    repository.save(tokenizer)
    find_entities(repository, model, tokenizer, ENTITY_CASES)
    repository.write()


def xlmr_ner() -> None:
    name = "xlmr-ner"
    tokenizer = xlmr_tokenizer(name)
    config = tf.XLMRobertaConfig(
        vocab_size=len(tokenizer), type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        **small(), **labels(["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"]),
    )
    model = randomise(tf.XLMRobertaForTokenClassification(config), name, gain=2.0)
    repository = Repository(name, "token-classification")
    model.classifier.weight.data *= 2
    model.classifier.bias.data[0] += 1
    repository.export(model, "token-classification")
    repository.save(tokenizer)
    find_entities(repository, model, tokenizer, ENTITY_CASES)
    repository.write()


CONTEXT = "The engine of the ship was repaired in 1912. She lies in Hamburg, on the river Elbe 🙂; the crew is at café Paris. "
QUESTIONS = {
    "short": {"question": "Where does the ship lie?", "context": CONTEXT},
    "several": {"question": "When was it repaired?", "context": CONTEXT, "top_k": 3},
    "strided": {"question": "Who is at the café?", "context": CONTEXT * 8, "top_k": 2},
    "long-question": {"question": "Where is the ship and the crew? " * 6, "context": CONTEXT * 6},
    "accents": {"question": "Où?", "context": "Le café “Über” est près de la rivière"},
}


def answer(repository: Repository, model: Any, tokenizer: Any) -> None:
    """Cases of question answering."""
    run = pipeline("question-answering", model=model, tokenizer=tokenizer)
    for index, (name, given) in enumerate(QUESTIONS.items()):
        with capture(model) as calls:
            found = run(question=given["question"], context=given["context"], top_k=given.get("top_k", 1))
        found = found if isinstance(found, list) else [found]
        best = found[0]
        runner_up = run(question=given["question"], context=given["context"], top_k=2)[1]
        demand(best["score"] > 1.02 * runner_up["score"], f"{name}: answers too near each other")
        answers = [{key: entry[key] for key in ("answer", "score", "start", "end")} for entry in found]
        arrays = first_tensors(repository, calls, "onnx/model.onnx", None) if index == 0 else {}
        windows = sum(len(call["input_ids"]) for call in calls)
        repository.case(name, given, {**answers[0], "answers": answers}, windows=windows, **arrays)


def distilbert_qa() -> None:
    name = "distilbert-qa"
    tokenizer = distilbert_tokenizer(name, limit=512)
    config = tf.DistilBertConfig(
        vocab_size=len(tokenizer), dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=512
    )
    model = randomise(tf.DistilBertForQuestionAnswering(config), name, gain=2.0)
    repository = Repository(name, "question-answering")
    model.qa_outputs.weight.data *= 3
    repository.export(model, "question-answering")
    repository.save(tokenizer)
    answer(repository, model, tokenizer)
    repository.write()


def roberta_qa() -> None:
    name = "roberta-qa"
    tokenizer = roberta_tokenizer(name, limit=512)
    config = tf.RobertaConfig(
        vocab_size=len(tokenizer), type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        **small(hidden_size=16, intermediate_size=32, max_position_embeddings=514),
    )
    model = randomise(tf.RobertaForQuestionAnswering(config), name, gain=2.0)
    repository = Repository(name, "question-answering")
    model.qa_outputs.weight.data *= 3
    repository.export(model, "question-answering")
    repository.save(tokenizer)
    answer(repository, model, tokenizer)
    repository.write()


def fill(repository: Repository, model: Any, tokenizer: Any, cases: dict[str, Json]) -> None:
    """Cases of masked words."""
    run = pipeline("fill-mask", model=model, tokenizer=tokenizer)
    for index, (name, given) in enumerate(cases.items()):
        with capture(model) as calls:
            found = run(given["text"], top_k=given.get("top_k", 5))
        apart([entry["score"] for entry in found])
        candidates = [
            {"token": entry["token_str"], "score": entry["score"], "text": entry["sequence"]} for entry in found
        ]
        arrays = first_tensors(repository, calls, "onnx/model.onnx", None) if index == 0 else {}
        repository.case(name, given, {"candidates": candidates}, **arrays)


def masked(mask: str) -> dict[str, Json]:
    return {
        "five": {"text": f"the {mask} of France is Paris."},
        "two": {"text": f"Café {mask}, 🙂 a good film!", "top_k": 2},
        "first": {"text": f"{mask} was cold", "top_k": 1},
    }


def bert_fill_mask() -> None:
    name = "bert-fill-mask"
    tokenizer = bert_tokenizer(name)
    model = randomise(tf.BertForMaskedLM(tf.BertConfig(vocab_size=len(tokenizer), **small())), name, gain=2.0)
    repository = Repository(name, "fill-mask")
    repository.export(model, "fill-mask")
    repository.save(tokenizer)
    fill(repository, model, tokenizer, masked("[MASK]"))
    repository.write()


def roberta_fill_mask() -> None:
    name = "roberta-fill-mask"
    tokenizer = roberta_tokenizer(name)
    config = tf.RobertaConfig(
        vocab_size=len(tokenizer), type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2, **small()
    )
    model = randomise(tf.RobertaForMaskedLM(config), name, gain=2.0)
    repository = Repository(name, "fill-mask")
    repository.export(model, "fill-mask")
    repository.save(tokenizer)
    fill(repository, model, tokenizer, masked("<mask>"))
    repository.write()


FAMILIES = {
    "distilbert-sst2": distilbert_sst2,
    "bert-toxic": bert_toxic,
    "roberta-sentiment": roberta_sentiment,
    "xlmr-sentiment": xlmr_sentiment,
    "bert-rank": bert_rank,
    "bart-mnli": bart_mnli,
    "deberta-mnli": deberta_mnli,
    "bert-ner": bert_ner,
    "xlmr-ner": xlmr_ner,
    "distilbert-qa": distilbert_qa,
    "roberta-qa": roberta_qa,
    "bert-fill-mask": bert_fill_mask,
    "roberta-fill-mask": roberta_fill_mask,
}
