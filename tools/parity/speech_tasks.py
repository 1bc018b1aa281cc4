"""Sounds to text: every network that labels frames, its settings, Whisper, and every format and rate of sound."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
import transformers as tf
from scipy.signal import resample_poly
from transformers import pipeline

import media
import media_files
import place
import speech
import word_times
from common import Json, Repository, capture, demand, randomise, steady
from media_files import SOUNDS, sound
from place import ABSENT, Place, answered, attempt, repository, seeded, varied
from scratch import folder
from seq2seq import DECODERS, MERGED

LETTERS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAOINSHRDLUCMFWYPVBGKQJXZ'"]
SAMPLES = dict(
    hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, conv_dim=[8, 8, 8], conv_stride=[5, 4, 4], conv_kernel=[10, 8, 4], num_feat_extract_layers=3,
    num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, ctc_loss_reduction="mean", pad_token_id=0, bos_token_id=1, eos_token_id=2,
)
NETWORKS: dict[str, Json] = {
    "wav2vec2": {}, "hubert": {}, "wavlm": {}, "unispeech": {}, "unispeech-sat": {}, "data2vec-audio": {"conv_pos_kernel_size": 5, "num_conv_pos_embeddings": 2},
    "wav2vec2-conformer": {"position_embeddings_type": "relative"}, "sew": {"squeeze_factor": 2}, "sew-d": {"squeeze_factor": 2, "max_position_embeddings": 64, "position_buckets": 16},
}


def read(file: str) -> np.ndarray:
    """A sound in one channel at 16 kHz."""
    samples, rate = soundfile.read(Place.root / "media" / file, dtype="float64", always_2d=True)
    one = media.mixed(samples)
    divisor = np.gcd(media.RATE, rate)
    return resample_poly(one, media.RATE // divisor, rate // divisor).astype(np.float32)


def needs_care(name: str) -> bool:
    """Whether a sound is resampled or decoded with loss, which no two libraries do alike."""
    kind, rate, *_rest = SOUNDS[name]
    return rate != media.RATE or kind in ("mp3", "ogg")


def labelled(model: Any, tokenizer: Any, extractor: Any, exact: bool = True) -> place.Run:
    """The pipeline's text; where two decoders or resamplers may differ, the same text must come from a slightly different sound."""
    run = pipeline("automatic-speech-recognition", model=model, tokenizer=tokenizer, feature_extractor=extractor)

    def answer(given: Json) -> Json:
        name = given["audio"]["file"].rsplit("/", 1)[-1]
        samples = read(name)
        # The engine reads longer sounds in windows (decision 0022).
        options: Json = {"chunk_length_s": WINDOW_S} if len(samples) > WINDOW_S * media.RATE else {}
        once = lambda wave: run({"raw": wave.copy(), "sampling_rate": media.RATE}, **options)["text"]
        if given.get("timestamps") == "word":
            return worded(steady(model, lambda: run({"raw": samples.copy(), "sampling_rate": media.RATE}, return_timestamps="word", **options)))
        found = steady(model, lambda: once(samples))
        if not exact and needs_care(name):
            noise = np.random.default_rng(2).standard_normal(len(samples)).astype(np.float32)
            demand(once(samples + 1e-4 * noise) == found, "another resampler would find another text")
        demand(len(found.strip()) > 2, f"dull: {found}")
        return {"text": found.strip()}

    return answer


def worded(found: Json) -> Json:
    """A text with the times of its words."""
    demand(len(found["text"].strip()) > 2, f"dull: {found}")
    times = [{"start": start, "end": end, "text": entry["text"]} for entry in found["chunks"] for start, end in [entry["timestamp"]]]
    return {"text": found["text"].strip(), "segments": times}


def letters(name: str, **options: Any) -> Any:
    file = Path(folder(name)) / "vocab.json"
    file.write_text(json.dumps({letter: index for index, letter in enumerate(LETTERS)}))
    return tf.Wav2Vec2CTCTokenizer(str(file), **options)


def built(kind: str, name: str, **more: Any) -> tuple[Repository, Any]:
    config = tf.AutoConfig.for_model(kind, vocab_size=len(LETTERS), **{**SAMPLES, **NETWORKS[kind], **more})
    model = randomise(tf.AutoModelForCTC.from_config(config, attn_implementation="eager"), seeded(name), gain=2.0)
    head = model.lm_head
    with torch.no_grad():
        wave = torch.from_numpy(media.speech(2, seed=7))[None]
        logits = model(wave).logits[0]
        # No letter has every frame.
        head.bias -= logits.mean(0)
        head.weight *= 3
        head.bias *= 3
        head.bias[0] += 1
    made = repository(name, "automatic-speech-recognition", architecture=kind)
    made.export(model, "automatic-speech-recognition")
    tokenizer = letters(name)
    made.save(tf.Wav2Vec2FeatureExtractor(return_attention_mask=False, do_normalize=True), tokenizer)
    (made.model / "vocab.json").write_text(json.dumps({letter: index for index, letter in enumerate(LETTERS)}))
    return made, model


def of_files(made: Repository, model: Any, exact: bool = True) -> place.Run:
    return labelled(model, tf.AutoTokenizer.from_pretrained(made.model), tf.AutoFeatureExtractor.from_pretrained(made.model), exact)


def spoken(*names: str) -> dict[str, Json]:
    return {name: {"audio": {"file": sound(name)}} for name in names}


def networks(only: Callable[[str], bool]) -> None:
    """Every network that labels frames."""
    for kind in NETWORKS:
        name = f"ctc--{kind}"
        if only(name):

            def make() -> None:
                made, model = built(kind, name)
                answered(made, of_files(made, model), spoken("rate-16000.wav", "rate-16000.flac", "float.wav"), 1e-4)

            attempt(name, make)


def words(only: Callable[[str], bool]) -> None:
    """The times of words."""
    for kind in NETWORKS:
        name = f"words--{kind}"
        if only(name):

            def make() -> None:
                made, model = built(kind, name)
                inputs = {file: {**given, "timestamps": "word"} for file, given in spoken("rate-16000.wav", "float.wav").items()}
                answered(made, of_files(made, model), inputs, 1e-4)

            attempt(name, make)


WINDOW_S = 30
# As many labels a second as published networks.
LONG = dict(conv_dim=[8] * 5, conv_stride=[5, 4, 4, 2, 2], conv_kernel=[10, 8, 4, 4, 4], num_feat_extract_layers=5)


def long_sounds(only: Callable[[str], bool]) -> None:
    """Sounds of more than 30 s: networks that label frames, and Whisper with the window of its published models."""
    sounds = {"long-29": (29.0, 21), "long-41": (41.3, 22), "long-83": (83.0, 23)}
    inputs = {name: {"audio": whisper_sound(f"{name}.wav", *given)} for name, given in sounds.items()}
    for kind in ("wav2vec2", "hubert", "wavlm", "data2vec-audio", "sew"):
        name = f"long--{kind}"
        if only(name):

            def make() -> None:
                made, model = built(kind, name, **LONG)
                answered(made, of_files(made, model), {**inputs, "words": {**inputs["long-41"], "timestamps": "word"}}, 1e-4)

            attempt(name, make, draws=6)
    name = "long--whisper"
    if only(name):
        kept = speech.SECONDS, speech.STEPS
        speech.SECONDS, speech.STEPS = WINDOW_S, WINDOW_S * 50

        def make_whisper() -> None:
            tokenizer = speech.whisper_tokenizer(name, True)
            model, extractor = speech.whisper_model(seeded(name), tokenizer, True)
            made = repository(name, "automatic-speech-recognition", architecture="whisper")
            made.export(model, "automatic-speech-recognition-with-past", drop=DECODERS, nb_max_frames=2 * speech.STEPS)
            made.save(tokenizer, extractor)
            spoken_in = {case: {**given, "language": "de"} for case, given in inputs.items()}
            stamped = {f"{case}-segments": {**given, "timestamps": "segment"} for case, given in spoken_in.items()}
            answered(made, transcribed(made, model, tokenizer, extractor), {**spoken_in, **stamped}, 0.021)

        try:
            attempt(name, make_whisper, draws=6)
        finally:
            speech.SECONDS, speech.STEPS = kept


TOKENS: list[Json] = [
    {"do_lower_case": True}, {"replace_word_delimiter_char": "_"}, {"word_delimiter_token": "E"}, {"pad_token": "T"}, {"unk_token": "A"}, {"bos_token": "E"}, {"word_delimiter_token": ABSENT},
    {"tokenizer_class": "Wav2Vec2Tokenizer"}, {"target_lang": "eng"}, {"clean_up_tokenization_spaces": True}, {"additional_special_tokens": ["S"]}, {"added_tokens_decoder": ABSENT},
]
FEATURES: list[Json] = [
    {"do_normalize": False}, {"do_normalize": ABSENT}, {"return_attention_mask": True}, {"sampling_rate": 8000}, {"padding_side": "left"}, {"padding_value": 1.0}, {"feature_size": 1},
    {"feature_extractor_type": ABSENT}, {"feature_extractor_type": "Speech2TextFeatureExtractor"}, {"feature_extractor_type": "SeamlessM4TFeatureExtractor"}, {"unknown_setting": 1},
]


def settings(only: Callable[[str], bool]) -> None:
    """Keys of the tokenizer and of the feature extractor."""
    name = "ctc-settings"
    if not only(name):
        return

    def make() -> None:
        base, model = built("wav2vec2", name)
        inputs = spoken("rate-16000.wav", "rate-16000.flac")
        answered(base, of_files(base, model), inputs, 1e-4)
        for file, all_keys in (("tokenizer_config.json", TOKENS), ("preprocessor_config.json", FEATURES)):
            for keys in all_keys:
                (key, value), = keys.items()
                label = f"{key}-{'absent' if value is ABSENT else str(value)}".replace("/", "-")[:60]
                attempt(label, lambda: answered(varied_sounds(base, label, file, keys), of_files(Latest.made, model), inputs, 1e-4, base), draws=1)

    attempt(name, make)


class Latest:
    made: Repository


def varied_sounds(base: Repository, label: str, file: str, keys: Json) -> Repository:
    Latest.made = varied(base, label, {file: keys})
    return Latest.made


def formats(only: Callable[[str], bool]) -> None:
    """Every format, rate, depth and number of channels."""
    name = "sound-formats"
    if only(name):

        def make() -> None:
            made, model = built("wav2vec2", name)
            answered(made, of_files(made, model, exact=False), spoken(*SOUNDS), 1e-4)

        attempt(name, make, draws=8)


def whispers(only: Callable[[str], bool]) -> None:
    """Whisper: languages, tasks, times, beams, long sounds."""
    for multilingual, label in ((True, "whisper"), (False, "whisper-en")):
        name = f"speech--{label}"
        if not only(name):
            continue

        def make() -> None:
            tokenizer = speech.whisper_tokenizer(name, multilingual)
            model, extractor = speech.whisper_model(seeded(name), tokenizer, multilingual)
            made = repository(name, "automatic-speech-recognition", architecture="whisper")
            made.export(model, "automatic-speech-recognition-with-past", drop=DECODERS, nb_max_frames=2 * speech.STEPS)
            made.save(tokenizer, extractor)
            cases = whisper_cases(multilingual)
            run = transcribed(made, model, tokenizer, extractor)
            answered(made, run, cases, 0.021)
            for setting, keys in WHISPER.items():
                attempt(setting, lambda: vary_whisper(made, setting, keys, model, tokenizer, extractor, cases), draws=1)

        attempt(name, make, draws=4)


WHISPER: dict[str, Json] = {
    "max-length": {"max_length": 12}, "beams": {"num_beams": 3}, "no-suppress": {"suppress_tokens": ABSENT}, "begin-suppress": {"begin_suppress_tokens": [10, 11, 12]},
    "initial": {"max_initial_timestamp_index": 5}, "no-initial": {"max_initial_timestamp_index": ABSENT}, "repetition": {"repetition_penalty": 1.3}, "ngram": {"no_repeat_ngram_size": 2},
    "forced": {"forced_decoder_ids": [[1, None], [2, None]]}, "language": {"language": "<|de|>", "task": "transcribe"}, "language-short": {"language": "de"},
    "condition": {"condition_on_prev_tokens": True}, "compression": {"compression_ratio_threshold": 1.35}, "no-speech": {"no_speech_threshold": 0.6}, "timestamps": {"return_timestamps": True},
    "prompt": {"prompt_condition_type": "all-segments"}, "unknown": {"hallucination_threshold": 2.0},
}


def whisper_cases(multilingual: bool) -> dict[str, Json]:
    short, full, long = (whisper_sound(*given) for given in (("whisper-short.wav", 1.2, 5), ("whisper-full.wav", 4.6, 6), ("whisper-long.wav", 7.4, 9)))
    language: Json = {"language": "en"} if multilingual else {}
    cases: dict[str, Json] = {
        "short": {"audio": short, **language}, "beams": {"audio": short, "num_beams": 3, **language}, "segments": {"audio": full, "timestamps": "segment", **language},
        "long": {"audio": long, "timestamps": "segment", **language}, "long-text": {"audio": long, **language},
    }
    if multilingual:
        cases |= {"detected": {"audio": short}, "german": {"audio": short, "language": "de"}, "translated": {"audio": full, "language": "fr", "task": "translate"}}
    return cases


def whisper_sound(name: str, seconds: float, seed: int) -> Json:
    file = Place.root / "media" / name
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(file, media.speech(seconds, seed), media.RATE, subtype="PCM_16")
    return {"file": f"../../media/{name}"}


def transcribed(made: Repository, model: Any, tokenizer: Any, extractor: Any) -> place.Run:
    run = pipeline("automatic-speech-recognition", model=model, tokenizer=tokenizer, feature_extractor=extractor)
    multilingual = model.generation_config.is_multilingual

    def answer(given: Json) -> Json:
        samples = read(given["audio"]["file"].rsplit("/", 1)[-1])
        # The pipeline has five beams where a repository sets nothing, the engine one (decision 0022).
        options: Json = {"num_beams": given.get("num_beams", model.generation_config.num_beams)}
        options |= {key: given[key] for key in ("language", "task") if key in given}
        if multilingual and "language" not in given:
            options["task"] = "transcribe"
        long = len(samples) > speech.SECONDS * media.RATE
        stamped = given.get("timestamps") == "segment"
        more = {"truncation": False, "padding": "longest"} if long else {}
        inputs = extractor(samples, sampling_rate=media.RATE, return_tensors="pt", return_attention_mask=True, **more)
        output: Json = {}
        if stamped or long:
            found = steady(model, lambda: speech.segments(model, tokenizer, inputs, options))
            output["text"] = "".join(segment["text"] for segment in found).strip()
            if stamped:
                output["segments"] = [{**segment, "text": segment["text"].strip()} for segment in found]
        else:
            output["text"] = steady(model, lambda: run({"raw": samples.copy(), "sampling_rate": media.RATE}, generate_kwargs=options)["text"]).strip()
        demand(len(output["text"]) > 1, f"dull: {output}")
        return output

    return answer


def whisper_words(only: Callable[[str], bool]) -> None:
    """The times of Whisper's words: languages with and without spaces, translations, beams, sounds of several windows, settings."""
    for multilingual, label, seconds in ((True, "whisper", 5), (False, "whisper-en", 5), (True, "whisper-30", WINDOW_S)):
        name = f"words--{label}"
        if not only(name):
            continue
        kept = speech.SECONDS, speech.STEPS

        def make() -> None:
            tokenizer, model, extractor = word_times.build(name, seeded(name), multilingual)
            made = repository(name, "automatic-speech-recognition", architecture="whisper")
            word_times.export(made, model, DECODERS if multilingual else MERGED)
            made.save(tokenizer, extractor)
            cases = word_cases(multilingual, seconds)
            answered(made, timed(model, tokenizer, extractor), cases, 0.021)
            if seconds == 5:
                for setting, (file, keys) in WORDS.items():
                    attempt(setting, lambda: vary_words(made, setting, file, keys, model, tokenizer, extractor, cases), draws=1)

        speech.SECONDS, speech.STEPS = seconds, seconds * 50
        try:
            attempt(name, make, draws=4)
        finally:
            speech.SECONDS, speech.STEPS = kept


WORDS: dict[str, tuple[str, Json]] = {
    "one-head": ("generation_config.json", {"alignment_heads": [[1, 1]]}), "heads-twice": ("generation_config.json", {"alignment_heads": [[0, 0], [1, 0], [1, 0]]}),
    "max-length": ("generation_config.json", {"max_length": 12}), "filter-1": ("config.json", {"median_filter_width": 1}), "filter-3": ("config.json", {"median_filter_width": 3}),
    "filter-21": ("config.json", {"median_filter_width": 21}), "filter-absent": ("config.json", {"median_filter_width": ABSENT}),
}


def word_cases(multilingual: bool, seconds: int) -> dict[str, Json]:
    """Words in several languages and sounds; those of which a window begins behind the end of the sound are left out."""
    kinds: dict[str, Json] = {"english": {"language": "en"}, "german": {"language": "de"}, "japanese": {"language": "ja"}, "beams": {"language": "en", "num_beams": 3}, "detected": {}}
    kinds |= {"japanese-beams": {"language": "ja", "num_beams": 2}, "translated": {"language": "ja", "task": "translate"}}
    if not multilingual:
        kinds = {"plain": {}, "beams": {"num_beams": 3}}
    sounds = {"full": (seconds - 0.1, 31), "other": (seconds - 0.05, 32), "long": (1.5 * seconds, 33), "longer": (2.6 * seconds, 34), "short": (0.3 * seconds, 35)}
    cases: dict[str, Json] = {}
    for sound_name, (length, seed) in sounds.items():
        audio = whisper_sound(f"words-{seconds}-{sound_name}.wav", length, seed)
        cases |= {f"{kind}-{sound_name}": {"audio": audio, "timestamps": "word", **given} for kind, given in kinds.items()}
    return cases


def timed(model: Any, tokenizer: Any, extractor: Any) -> place.Run:
    def answer(given: Json) -> Json:
        samples = read(given["audio"]["file"].rsplit("/", 1)[-1])
        found = steady(model, lambda: word_times.transcribed(model, tokenizer, extractor, samples, given))
        demand(len(found["segments"]) > 1, f"dull: {found}")
        return found

    return answer


def vary_words(
    base: Repository, label: str, file: str, keys: Json, model: Any, tokenizer: Any, extractor: Any, cases: dict[str, Json]
) -> None:
    made = varied(base, label, {file: keys})
    kept = model.generation_config, model.config.median_filter_width
    try:
        model.generation_config = tf.GenerationConfig.from_pretrained(made.model)
        model.config.median_filter_width = tf.AutoConfig.from_pretrained(made.model).median_filter_width
        chosen = {name: given for name, given in cases.items() if name.startswith(("english", "plain", "beams"))}
        answered(made, timed(model, tokenizer, extractor), chosen, 0.021, base)
    finally:
        model.generation_config, model.config.median_filter_width = kept


def vary_whisper(base: Repository, label: str, keys: Json, model: Any, tokenizer: Any, extractor: Any, cases: dict[str, Json]) -> None:
    made = varied(base, label, {"generation_config.json": keys})
    kept = model.generation_config
    try:
        model.generation_config = tf.GenerationConfig.from_pretrained(made.model)
        chosen = {name: cases[name] for name in ("short", "segments", "long", "detected") if name in cases}
        answered(made, transcribed(made, model, tokenizer, extractor), chosen, 0.021, base)
    finally:
        model.generation_config = kept


_ = (capture, media_files)
FAMILIES = {
    "speech-architectures": networks, "speech-words": words, "speech-long": long_sounds, "speech-settings": settings, "speech-formats": formats,
    "speech-whisper": whispers, "speech-whisper-words": whisper_words,
}
