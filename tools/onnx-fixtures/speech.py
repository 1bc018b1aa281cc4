"""Speech to text: Whisper in both layouts, and models that read samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import soundfile
import torch
import transformers as tf
from transformers import pipeline

import media
import vocab
from cached import check_decoders
from common import Json, Repository, capture, close, demand, randomise, steady
from scratch import folder
from seq2seq import DECODERS, MERGED, lively

SECONDS = 5
STEPS = SECONDS * 50
LANGUAGES = ["en", "de", "fr"]


def sound(repository: Repository, file: str, seconds: float, seed: int = 1) -> np.ndarray:
    """Writes a sound of one channel at 16 kHz and reads it back."""
    media.audio(repository.root, file, seconds, seed)
    return soundfile.read(repository.root / file, dtype="float32")[0]


def whisper_tokenizer(name: str, multilingual: bool, codes: list[str] = LANGUAGES, size: int = 300, more: tuple[str, ...] = ()) -> Any:
    """Byte-level BPE, then Whisper's special tokens in their order, then the timestamps."""
    trained = vocab.byte_bpe([], size=size, more=more)
    file = folder(name) / "tokenizer.json"
    trained.save(str(file))
    tokenizer = tf.WhisperTokenizerFast(
        tokenizer_file=str(file), unk_token="<|endoftext|>", bos_token="<|endoftext|>", eos_token="<|endoftext|>",
        model_max_length=64,
    )
    languages = [f"<|{code}|>" for code in codes] if multilingual else ["<|en|>"]
    specials = ["<|startoftranscript|>", *languages, "<|translate|>", "<|transcribe|>", "<|startoflm|>",
                "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": specials})
    stamps = [f"<|{step * 0.02:.2f}|>" for step in range(STEPS + 1)]
    tokenizer.add_tokens([vocab.AddedToken(stamp, normalized=False, special=False) for stamp in stamps])
    return tokenizer


def whisper_settings(tokenizer: Any, multilingual: bool, codes: list[str] = LANGUAGES) -> tf.GenerationConfig:
    """The generation settings that a published Whisper has, with ids of this vocabulary."""
    code = tokenizer.convert_tokens_to_ids
    awkward = [index for token, index in tokenizer.get_vocab().items() if len(token) == 1 and not token.isalnum() or "Ģ" in token]
    awkward += [index for token, index in tokenizer.get_vocab().items() if len(token) == 1 and ord(token) > 126]
    special = ["<|startoftranscript|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>"]
    more: Json = {}
    if multilingual:
        more["lang_to_id"] = {f"<|{language}|>": code(f"<|{language}|>") for language in codes}
        more["task_to_id"] = {task: code(f"<|{task}|>") for task in ("transcribe", "translate")}
    return tf.GenerationConfig(
        alignment_heads=[[0, 0], [0, 1]], begin_suppress_tokens=[code("Ġ"), code("<|endoftext|>")],
        bos_token_id=code("<|endoftext|>"), eos_token_id=code("<|endoftext|>"), pad_token_id=code("<|endoftext|>"),
        decoder_start_token_id=code("<|startoftranscript|>"), is_multilingual=multilingual, max_initial_timestamp_index=50,
        max_length=24, no_timestamps_token_id=code("<|notimestamps|>"), prev_sot_token_id=code("<|startofprev|>"),
        return_timestamps=False, suppress_tokens=sorted({*awkward, *code(special)} - {code("Ġ")}), **more,
    )


def whisper_model(
    name: str, tokenizer: Any, multilingual: bool, codes: list[str] = LANGUAGES, layers: int = 1, change: Callable[[Any], None] = lambda model: None,
) -> tuple[Any, Any]:
    """A Whisper whose window is five seconds, which keeps it small; `change` is applied to its random weights."""
    start = tokenizer.convert_tokens_to_ids("<|startoftranscript|>")
    end = tokenizer.eos_token_id
    config = tf.WhisperConfig(
        vocab_size=len(tokenizer), num_mel_bins=80, d_model=16, encoder_layers=1, decoder_layers=layers,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
        max_source_positions=STEPS, max_target_positions=64, decoder_start_token_id=start, bos_token_id=end,
        eos_token_id=end, pad_token_id=end, suppress_tokens=None, begin_suppress_tokens=None, tie_word_embeddings=False,
    )
    features = tf.WhisperFeatureExtractor(feature_size=80, chunk_length=SECONDS)
    model = randomise(tf.WhisperForConditionalGeneration(config), name, gain=2.0, embedding=0.5)
    change(model)
    example = features(media.speech(3, seed=4), sampling_rate=media.RATE, return_tensors="pt")
    lively(model, len(tokenizer), 1.2, {"input_features": example["input_features"]})
    stamps = tokenizer.convert_tokens_to_ids("<|0.00|>")
    model.proj_out.weight.data[:stamps] *= 2.5
    model.generation_config = whisper_settings(tokenizer, multilingual, codes)
    return model, features


def detected(model: Any, tokenizer: Any, features: torch.Tensor) -> str:
    """The language that Whisper detects."""
    found = model.detect_language(input_features=features)
    return tokenizer.convert_ids_to_tokens(int(found[0])).strip("<|>")


def listen(repository: Repository, model: Any, tokenizer: Any, extractor: Any, cases: dict[str, Json]) -> None:
    """Cases of Whisper; several segments are the model's own, as its generate gives them."""
    run = pipeline("automatic-speech-recognition", model=model, tokenizer=tokenizer, feature_extractor=extractor)
    for index, (name, (given, seconds)) in enumerate(cases.items()):
        samples = sound(repository, given["audio"]["file"], seconds, seed=len(given["audio"]["file"]))
        options: Json = {"num_beams": given.get("num_beams", 1)}
        options |= {key: given[key] for key in ("language", "task") if key in given}
        if "language" not in given and model.generation_config.is_multilingual:
            # The library names no task where it detects the language itself; Whisper's authors do, and so do we.
            options["task"] = "transcribe"
        stamped = given.get("timestamps") == "segment"
        long = seconds > SECONDS
        inputs = extractor(
            samples, sampling_rate=media.RATE, return_tensors="pt", return_attention_mask=True,
            **({"truncation": False, "padding": "longest"} if long else {}),
        )
        output: Json = {}
        with capture(model.get_encoder()) as calls:
            if stamped or long:
                found = steady(model, lambda: segments(model, tokenizer, inputs, options))
                output["text"] = "".join(segment["text"] for segment in found)
                demand(len(found) > 1, "one segment only")
                if stamped:
                    output["segments"] = found
            else:
                audio = {"raw": samples, "sampling_rate": media.RATE}
                output["text"] = steady(model, lambda: run(dict(audio), generate_kwargs=options)["text"])
        # Whisper begins a text with a space.
        output["text"] = output["text"].strip()
        for segment in output.get("segments", []):
            segment["text"] = segment["text"].strip()
        demand(len(set(output["text"])) > 4, f"dull: {output}")
        if model.generation_config.is_multilingual:
            heard = lambda: detected(model, tokenizer, inputs["input_features"][:, :, : 2 * STEPS])
            output["language"] = given.get("language") or steady(model, heard)
        arrays = first_states(repository, model, calls[0]["input_features"]) if index == 0 else {}
        repository.case(name, given, output, 0.021, **arrays)


def segments(model: Any, tokenizer: Any, inputs: Any, options: Json) -> list[Json]:
    """Start, end and text of each segment."""
    found = model.generate(
        inputs["input_features"], attention_mask=inputs["attention_mask"], return_timestamps=True, return_segments=True,
        **options,
    )["segments"][0]
    return [
        {"start": round(float(part["start"]), 2), "end": round(float(part["end"]), 2),
         "text": tokenizer.decode(part["tokens"], skip_special_tokens=True)}
        for part in found
    ]


def first_states(repository: Repository, model: Any, features: np.ndarray) -> Json:
    """A corner of the features and of the encoder's states."""
    check_decoders(repository, model, {"input_features": torch.from_numpy(features)})
    raw = repository.session("onnx/encoder_model.onnx")({"input_features": features})["last_hidden_state"]
    with torch.no_grad():
        close(raw, model.get_encoder()(torch.from_numpy(features)).last_hidden_state.numpy())
    return {"tensors": {"input_features": features[:, :, :160]}, "raw": {"last_hidden_state": raw[:, :60]}}


def whisper(name: str, multilingual: bool, drop: tuple[str, ...], cases: dict[str, Any]) -> None:
    tokenizer = whisper_tokenizer(name, multilingual)
    model, extractor = whisper_model(name, tokenizer, multilingual)
    repository = Repository(name, "automatic-speech-recognition")
    repository.export(model, "automatic-speech-recognition-with-past", drop=drop, nb_max_frames=2 * STEPS)
    repository.save(tokenizer, extractor)
    listen(repository, model, tokenizer, extractor, cases)
    repository.write()


def whisper_merged() -> None:
    audio = {"audio": {"file": "short.wav"}}
    whisper("whisper", True, DECODERS, {
        "detected": (audio, 1.2),
        "german": ({**audio, "language": "de"}, 1.2),
        "translated": ({"audio": {"file": "full.flac"}, "language": "fr", "task": "translate"}, 4.9),
        "beams": ({**audio, "language": "en", "num_beams": 5}, 1.2),
        "segments": ({"audio": {"file": "full.flac"}, "language": "en", "timestamps": "segment"}, 4.9),
        "long": ({"audio": {"file": "long.flac"}, "language": "en", "timestamps": "segment"}, 7.4),
        "long-text": ({"audio": {"file": "long.flac"}, "language": "de"}, 7.4),
    })


def whisper_split() -> None:
    whisper("whisper-en", False, MERGED, {
        "short": ({"audio": {"file": "short.wav"}}, 1.2),
        "segments": ({"audio": {"file": "full.flac"}, "timestamps": "segment"}, 4.2),
    })


FAMILIES = {"whisper": whisper_merged, "whisper-en": whisper_split}
