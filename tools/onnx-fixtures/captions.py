"""Pictures to text: a vision encoder with a text decoder."""

from __future__ import annotations

from typing import Any

import torch
import transformers as tf
from transformers import pipeline

import media
import text
import vocab
from cached import check_decoders
from common import Json, Repository, capture, demand, pixel_noise, randomise, steady
from scratch import folder
from seq2seq import DECODERS, lively
from vision import arrays_of

CONFIDENT = 4.0


def describe(repository: Repository, model: Any, tokenizer: Any, processor: Any, cases: dict[str, Json]) -> None:
    """Cases of captions, the same under small changes of weights and pixels."""
    run = pipeline("image-to-text", model=model, tokenizer=tokenizer, image_processor=processor)
    for index, (name, given) in enumerate(cases.items()):
        image = media.picture(repository.root, given["image"]["file"])
        limit = given.get("max_new_tokens")
        options = {key: value for key, value in given.items() if key not in ("image", "max_new_tokens")}
        say = lambda: run(str(image), max_new_tokens=limit, generate_kwargs=options)[0]["generated_text"]
        with capture(model.encoder) as calls:
            found = steady(model, say)
        with capture(model.encoder, pixel_noise(0.05)):
            demand(say() == found, "another resampler would see something else")
        demand(len(set(found)) > 5, f"dull: {found}")
        with torch.no_grad():
            wanted = model.encoder(torch.from_numpy(calls[0]["pixel_values"])).last_hidden_state.numpy()
        check_decoders(repository, model, {"pixel_values": torch.from_numpy(calls[0]["pixel_values"])})
        graph = "onnx/encoder_model.onnx"
        arrays = arrays_of(repository, calls[0], graph, wanted, "last_hidden_state") if index == 0 else {}
        output = {"text": found} if repository.task == "image-to-text" else {"text": found, "lines": [{"text": found}]}
        repository.case(name, given, output, **arrays)


def encoder_config(**more: Any) -> tf.ViTConfig:
    sizes = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)
    return tf.ViTConfig(**{**sizes, "image_size": 48, "patch_size": 16, **more})


def start(model: Any, tokenizer: Any, begin: int, limit: int, **more: Any) -> None:
    """Settings of generation, and weights whose output varies."""
    model.config.decoder_start_token_id = begin
    model.config.pad_token_id = tokenizer.pad_token_id
    model.config.eos_token_id = tokenizer.eos_token_id
    model.generation_config = tf.GenerationConfig(
        decoder_start_token_id=begin, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
        max_length=limit, **more,
    )
    lively(model.eval(), model.config.decoder.vocab_size, 1.2, {"pixel_values": torch.zeros(1, 3, 48, 48)}, unlike=True)
    model.get_output_embeddings().weight.data *= CONFIDENT


def trocr() -> None:
    name = "trocr"
    tokenizer = text.roberta_tokenizer(name, limit=64)
    decoder = tf.TrOCRConfig(
        vocab_size=len(tokenizer), d_model=16, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=32,
        max_position_embeddings=64, cross_attention_hidden_size=24, use_learned_position_embeddings=True,
        is_decoder=True, add_cross_attention=True, tie_word_embeddings=False, layernorm_embedding=True,
    )
    config = tf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder_config(qkv_bias=False), decoder)
    config.tie_word_embeddings = False
    model = randomise(tf.VisionEncoderDecoderModel(config), name, gain=1.0, embedding=0.7)
    start(model, tokenizer, 2, 24)
    processor = tf.ViTImageProcessor(size={"height": 48, "width": 48})
    repository = Repository(name, "ocr")
    repository.export(model, "image-to-text-with-past", drop=DECODERS)
    repository.save(tokenizer, processor)
    describe(repository, model, tokenizer, processor, {
        "line": {"image": {"file": "scene.png"}},
        "gray": {"image": {"file": "gray.png"}},
    })
    repository.write()


def vit_gpt2() -> None:
    name = "vit-gpt2"
    trained = vocab.byte_bpe(["<|endoftext|>"])
    words, merges = vocab.bpe_files(trained, folder(name))
    tokenizer = tf.GPT2TokenizerFast(words, merges, pad_token="<|endoftext|>", model_max_length=64)
    decoder = tf.GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=64, is_decoder=True,
        add_cross_attention=True, bos_token_id=0, eos_token_id=0, tie_word_embeddings=False,
    )
    config = tf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder_config(hidden_size=16), decoder)
    config.tie_word_embeddings = False
    model = randomise(tf.VisionEncoderDecoderModel(config), name, gain=1.0, embedding=0.7)
    start(model, tokenizer, 0, 16)
    processor = tf.ViTImageProcessor(size={"height": 48, "width": 48})
    repository = Repository(name, "image-to-text")
    repository.export(model, "image-to-text-with-past", drop=DECODERS)
    repository.save(tokenizer, processor)
    describe(repository, model, tokenizer, processor, {
        "greedy": {"image": {"file": "scene.png"}},
        "short": {"image": {"file": "gray.png"}, "max_new_tokens": 6},
        "beams": {"image": {"file": "alpha.png"}, "num_beams": 4, "max_new_tokens": 12},
    })
    repository.write()


FAMILIES = {"trocr": trocr, "vit-gpt2": vit_gpt2}
