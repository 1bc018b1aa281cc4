"""Newer encoders and decoders: ModernBERT, NLLB, embeddings of the last token."""

from __future__ import annotations

import transformers as tf

import embeddings
import seq2seq
import text
import vocab
from common import Repository, randomise


def modernbert() -> None:
    name = "modernbert"
    trained = vocab.byte_bpe(["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"])
    trained.post_processor = vocab.processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=trained, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
        mask_token="[MASK]", model_max_length=128, model_input_names=["input_ids", "attention_mask"],
    )
    config = tf.ModernBertConfig(
        vocab_size=len(tokenizer), hidden_size=24, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
        max_position_embeddings=128, pad_token_id=3, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
        global_attn_every_n_layers=3, local_attention=16, classifier_pooling="mean", reference_compile=False,
        attn_implementation="eager", **text.labels(["spam", "fine", "unclear"]),
    )
    model = randomise(tf.ModernBertForSequenceClassification(config), name)
    repository = Repository(name, "text-classification")
    repository.export(model, "text-classification")
    repository.save(tokenizer)
    texts = {
        "plain": {"text": "the actors were good"},
        "accents": {"text": "schön 🙂 café", "top_k": 2},
        "truncated": {"text": text.LONG},
    }
    text.classify(repository, model, tokenizer, texts, "onnx/model.onnx")
    repository.write()


LANGUAGES = ["deu_Latn", "eng_Latn", "fra_Latn"]


def nllb() -> None:
    name = "nllb"
    spm = vocab.sentencepiece_model(name, size=170, kind="bpe")
    slow = tf.NllbTokenizer(
        str(spm), src_lang="eng_Latn", tgt_lang="fra_Latn", additional_special_tokens=LANGUAGES, model_max_length=96
    )
    place = text.saved(slow, name)
    tokenizer = tf.NllbTokenizerFast.from_pretrained(place, additional_special_tokens=LANGUAGES, model_max_length=96)
    config = tf.M2M100Config(
        vocab_size=len(tokenizer), d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=96,
        scale_embedding=True, decoder_start_token_id=2, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        tie_word_embeddings=False,
    )
    model = randomise(tf.M2M100ForConditionalGeneration(config), name, gain=1.5, embedding=0.5)
    seq2seq.lively(model, len(tokenizer), 1.3, tokenizer(seq2seq.SENTENCE, return_tensors="pt"))
    model.generation_config = tf.GenerationConfig(
        bos_token_id=0, decoder_start_token_id=2, eos_token_id=2, pad_token_id=1, max_length=24
    )
    repository = Repository(name, "translation")
    repository.export(model, "text2text-generation-with-past", drop=seq2seq.DECODERS)
    repository.save(tokenizer)
    given = {"text": seq2seq.SENTENCE, "num_beams": 1}
    for source, target, cases in (
        ("eng_Latn", "fra_Latn", {"french": given, "french-beams": {**given, "num_beams": 3}}),
        ("fra_Latn", "deu_Latn", {"german": given}),
    ):
        cases = {case: {**options, "source": source, "target": target} for case, options in cases.items()}
        seq2seq.write(repository, model, tokenizer, "translation", cases, src_lang=source, tgt_lang=target)
    repository.write()


def qwen3_embedding() -> None:
    name = "qwen3-embedding"
    trained = vocab.byte_bpe(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    trained.post_processor = vocab.processors.TemplateProcessing(
        single="$A <|endoftext|>", pair="$A $B <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
    )
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=trained, pad_token="<|endoftext|>", eos_token="<|im_end|>", padding_side="left",
        model_max_length=256, model_input_names=["input_ids", "attention_mask"],
    )
    config = tf.Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=12, max_position_embeddings=256, attn_implementation="eager",
    )
    model = randomise(tf.Qwen3Model(config), name)
    repository = Repository(name, "feature-extraction")
    repository.export(model, "feature-extraction-with-past")
    repository.save(tokenizer)
    sentences = embeddings.sentence_model(name, model, tokenizer, {"pooling_mode": "lasttoken"}, True, 256)
    query = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
    sentences.prompts = {"query": query, "document": ""}
    embeddings.write_settings(sentences, repository, "lasttoken")
    cases = {
        "documents": {"input": embeddings.TEXTS[:2]},
        "query": {"input": embeddings.TEXTS[0], "prompt": "query"},
        "short": {"input": embeddings.TEXTS[1], "dimensions": 12},
    }
    embeddings.embed(repository, sentences, cases, "onnx/model.onnx")
    repository.write()


FAMILIES = {"modernbert": modernbert, "nllb": nllb, "qwen3-embedding": qwen3_embedding}
