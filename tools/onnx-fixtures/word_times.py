"""Speech to text with the times of words: Whisper whose decoders give what they attend to, as the exports called `timestamped` do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from optimum.exporters.onnx.base import ConfigBehavior
from optimum.exporters.onnx.model_configs import WhisperOnnxConfig
from transformers import pipeline
from transformers.models.whisper.modeling_whisper import sinusoids
from transformers.models.whisper.tokenization_whisper import LANGUAGES, _combine_tokens_into_words

import media
import speech
from cached import HEAD, WHOLE, caches, check_decoders, decoders
from common import Json, Repository, Undecided, close, demand, steady
from seq2seq import DECODERS, MERGED

CODES = ["en", "de", "ja"]
TRANSLATED = "english"
HEADS = [[0, 1], [1, 0], [1, 1]]
STEP = 9
"""Moments from one position of a text to the next."""
GAIN = 2
RARE = 0.45
"""How much less likely times are than in the other fixtures: texts have more words."""
TEXTS = ("猫が好きです。", "猫です。", "好きです、猫が。", 'he said: "no," and left.', "well-known (old) towns, rivers; ships!") * 4
SIGNS = list(".,!?-\"(") + ["Ġ\"", "Ġ(", "Ġ-"]
"""Signs that a text may have here: they decide on the bounds of words."""


class AttentiveConfig(WhisperOnnxConfig):
    """Whisper's graphs with an output for what each layer of the decoder attends to, under the name of the published exports."""

    @property
    def outputs(self) -> dict[str, dict[int, str]]:
        named = super().outputs
        if self._behavior is ConfigBehavior.DECODER:
            axes = {0: "batch_size", 2: "decoder_sequence_length", 3: "encoder_sequence_length / 2"}
            named |= {f"cross_attentions.{layer}": axes for layer in range(self._config.decoder_layers)}
        return named


def export(repository: Repository, model: Any, drop: tuple[str, ...]) -> None:
    """Writes the graphs."""
    task = "automatic-speech-recognition-with-past"
    config = AttentiveConfig(model.config, task=task.removesuffix("-with-past"))
    graphs = {
        "encoder_model": config.with_behavior("encoder"),
        "decoder_model": config.with_behavior("decoder", use_past=True, use_past_in_inputs=False),
        "decoder_with_past_model": config.with_behavior("decoder", use_past=True, use_past_in_inputs=True),
    }
    model.set_attn_implementation("eager")
    repository.export(
        model, task, drop=drop, nb_max_frames=2 * speech.STEPS, custom_onnx_configs=graphs, model_kwargs={"output_attentions": True},
    )


def forward_in_time(model: Any) -> None:
    """Lets each position of a text attend to a later moment than the one before, as trained models do, though each token changes it."""
    encoder, decoder = model.get_encoder(), model.get_decoder()
    half = model.config.d_model // 2
    # Sines and cosines of waves of 23 to 1200 moments, for each head.
    waves = [wave + side for _head in range(2) for wave in range(1, 5) for side in (0, half)]
    with torch.no_grad():
        moments = 2 * sinusoids(speech.STEPS, 2 * half)
        encoder.embed_positions.weight.copy_(moments)
        places = torch.arange(len(decoder.embed_positions.weight)) * STEP
        decoder.embed_positions.weight.copy_(moments[places.clamp(max=speech.STEPS - 1)])
        for layer in decoder.layers:
            attention = layer.encoder_attn
            attention.k_proj.weight.mul_(0.2).add_(torch.eye(2 * half)[waves])
            attention.q_proj.weight.mul_(0.2).add_(GAIN * torch.eye(2 * half)[waves])


def build(name: str, seed: str, multilingual: bool) -> tuple[Any, Any, Any]:
    """A tokenizer, a model of two layers whose texts have signs, and an extractor."""
    tokenizer = speech.whisper_tokenizer(name, multilingual, CODES, size=340, more=TEXTS)
    model, extractor = speech.whisper_model(seed, tokenizer, multilingual, CODES, layers=2, change=forward_in_time)
    signs = [sign for sign in tokenizer.convert_tokens_to_ids(SIGNS) if sign != tokenizer.unk_token_id]
    # A language within a text would change the rules of its words.
    languages = tokenizer.convert_tokens_to_ids([f"<|{code}|>" for code in (CODES if multilingual else CODES[:1])])
    pieces = [token for token in range(tokenizer.eos_token_id) if "\ufffd" in tokenizer.decode([token])]
    settings = model.generation_config
    settings.alignment_heads = HEADS
    settings.suppress_tokens = sorted({*settings.suppress_tokens, *languages, *pieces} - {*signs})
    with torch.no_grad():
        model.proj_out.weight[settings.no_timestamps_token_id + 1 :] *= RARE
    return tokenizer, model, extractor


def transcribed(model: Any, tokenizer: Any, extractor: Any, samples: np.ndarray, given: Json) -> Json:
    """The text of a sound with the times of its words, of the library's pipeline; only where it depends on neither of its two errors."""
    multilingual = model.generation_config.is_multilingual
    options: Json = {"num_beams": given.get("num_beams", model.generation_config.num_beams or 1)}
    options |= {key: given[key] for key in ("language", "task") if key in given}
    code = "en"
    if multilingual:
        options.setdefault("task", "transcribe")
        features = extractor(samples, sampling_rate=media.RATE, return_tensors="pt")["input_features"]
        code = given.get("language") or speech.detected(model, tokenizer, features)
    # The pipeline no longer passes the language on to the rules of words; the text of a translation is English.
    tokenizer.language = TRANSLATED if given.get("task") == "translate" else LANGUAGES[code]
    run = pipeline("automatic-speech-recognition", model=model, tokenizer=tokenizer, feature_extractor=extractor)
    with windows(model) as seen:
        found = run({"raw": samples.copy(), "sampling_rate": media.RATE}, return_timestamps="word", generate_kwargs=options)
    # Without frames of the sound, the library counts them from the end of the window.
    demand(all(int(frames.min()) > 1 for frames in seen), "a window behind the end of the sound")
    words = [{"start": start, "end": end, "text": entry["text"]} for entry in found["chunks"] for start, end in [entry["timestamp"]]]
    demand([word["text"] for word in words] == split(model, tokenizer, extractor, samples, options), "words of two windows are one")
    spoken = [{**word, "text": word["text"].strip()} for word in words if word["text"].strip()]
    return {"text": found["text"].strip(), "segments": spoken, **({"language": code} if multilingual else {})}


@contextmanager
def windows(model: Any) -> Iterator[list[torch.Tensor]]:
    """Records the frames of the sound that each window has."""
    seen: list[torch.Tensor] = []
    inner = model._extract_token_timestamps

    def record(*args: Any, **kwargs: Any) -> Any:
        seen.append(kwargs["num_frames"])
        return inner(*args, **kwargs)

    model._extract_token_timestamps = record
    try:
        yield seen
    finally:
        del model._extract_token_timestamps


def split(model: Any, tokenizer: Any, extractor: Any, samples: np.ndarray, options: Json) -> list[str]:
    """The words of each segment for itself: where a segment has no end, the pipeline joins it with the next window's first."""
    long = len(samples) > speech.SECONDS * media.RATE
    inputs = extractor(
        samples, sampling_rate=media.RATE, return_tensors="pt", return_attention_mask=True,
        **({"truncation": False, "padding": "longest"} if long else {}),
    )
    found = model.generate(**inputs, return_timestamps=True, return_token_timestamps=True, return_segments=True, **options)
    end = model.generation_config.eos_token_id
    words: list[str] = []
    for segment in found["segments"][0]:
        text = [token for token in segment["tokens"].tolist() if token < end]
        words += _combine_tokens_into_words(tokenizer, text)[0]
    return words


def listen(repository: Repository, model: Any, tokenizer: Any, extractor: Any, cases: dict[str, Any]) -> None:
    """Cases of a repository, each with the first sound that decides its words."""
    for index, (name, (given, seconds)) in enumerate(cases.items()):
        samples, output = decided(repository, model, tokenizer, extractor, given, seconds)
        if index == 0:
            features = extractor(samples, sampling_rate=media.RATE, return_tensors="np")["input_features"]
            check_attention(repository, model, torch.from_numpy(features))
        repository.case(name, {**given, "timestamps": "word"}, output, 0.021)


def decided(repository: Repository, model: Any, tokenizer: Any, extractor: Any, given: Json, seconds: float, sounds: int = 12) -> tuple[np.ndarray, Json]:
    """A sound that decides the words, and its answer."""
    for seed in range(1, sounds + 1):
        samples = speech.sound(repository, given["audio"]["file"], seconds, seed)
        try:
            output = steady(model, lambda: transcribed(model, tokenizer, extractor, samples, given))
            words = output["segments"]
            demand(len(words) > 4 and len({word["start"] for word in words}) > 3, f"dull: {output}")
            return samples, output
        except Undecided as reason:
            last = reason
    raise last


def check_attention(repository: Repository, model: Any, features: torch.Tensor) -> None:
    """Compares what both graphs attend to with the library's: five tokens at once, and one more on top of the cache."""
    check_decoders(repository, model, {"input_features": features})
    tokens = torch.randint(3, model.config.vocab_size, (1, WHOLE), generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        wanted = model(input_features=features, decoder_input_ids=tokens, output_attentions=True).cross_attentions
    states = repository.session("onnx/encoder_model.onnx")({"input_features": features.numpy()})["last_hidden_state"]
    first, later = decoders(repository)
    shared = {"encoder_hidden_states": states}
    found = first({**shared, "input_ids": tokens[:, :HEAD].numpy(), "use_cache_branch": np.array([False])})
    step = later({**shared, "input_ids": tokens[:, HEAD:].numpy(), "use_cache_branch": np.array([True]), **caches(found)})
    for layer, attention in enumerate(wanted):
        close(found[f"cross_attentions.{layer}"], attention[:, :, :HEAD].numpy())
        close(step[f"cross_attentions.{layer}"], attention[:, :, HEAD:].numpy())


def whisper(name: str, multilingual: bool, drop: tuple[str, ...], cases: dict[str, Any], **extra: Any) -> None:
    tokenizer, model, extractor = build(name, name, multilingual)
    repository = Repository(name, "automatic-speech-recognition")
    repository.extra = extra
    export(repository, model, drop)
    repository.save(tokenizer, extractor)
    listen(repository, model, tokenizer, extractor, cases)
    repository.write()


def merged() -> None:
    sound = lambda name: {"audio": {"file": f"{name}.flac"}}
    whisper("whisper-timestamped", True, DECODERS, {
        "words": ({**sound("words"), "language": "en"}, 4.9),
        "detected": (sound("detected"), 4.9),
        "beams": ({**sound("beams"), "language": "de", "num_beams": 3}, 4.9),
        "without-spaces": ({**sound("without-spaces"), "language": "ja"}, 4.9),
        "translated": ({**sound("translated"), "language": "ja", "task": "translate"}, 4.9),
        "long": ({**sound("long"), "language": "en"}, 7.4),
        "long-beams": ({**sound("long-beams"), "language": "ja", "num_beams": 2}, 7.4),
    }, engine={"word_times": True})


def apart() -> None:
    whisper("whisper-en-timestamped", False, MERGED, {
        "words": ({"audio": {"file": "words.flac"}}, 4.9),
        "long": ({"audio": {"file": "long.flac"}}, 7.4),
    })


FAMILIES = {"whisper-timestamped": merged, "whisper-en-timestamped": apart}
