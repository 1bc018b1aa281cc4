"""Speech to text: Whisper in three packages, as WhisperKit lays them out, and models that label every moment."""

from __future__ import annotations

import json
import wave
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest import mock

import coremltools as ct
import numpy as np
import torch
import transformers as tf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

from common import Fixture, Json, numpy, seeded, traced

RATE, HOP, FRAME, PITCHES, SECONDS = 16_000, 160, 400, 20, 5
WINDOW, MOMENTS = SECONDS * RATE, SECONDS * 100
WIDTH, LAYERS, HEADS, LONGEST = 16, 2, 2, 64
SPECTROGRAM = "tiny/MelSpectrogram"
LANGUAGES = ["en", "de", "fr"]
CORPUS = ["the train from berlin leaves at nine in the morning", "the rain was cold and the boat was green", "we see the sea"]


def voice(seconds: float, seed: int) -> np.ndarray:
    """Something like speech, in steps that eight bits hold: gliding harmonics in syllables, pauses, a little noise."""
    draw = np.random.default_rng(seed)
    sound = 0.01 * draw.standard_normal(int(seconds * RATE))
    start = RATE // 10
    while start < len(sound):
        length = int(draw.uniform(0.12, 0.35) * RATE)
        time = np.arange(min(length, len(sound) - start)) / RATE
        pitch = draw.uniform(90, 240) + draw.uniform(-120, 120) * time
        formants = draw.uniform(300, 3000, 2)
        phase = 2 * np.pi * np.cumsum(pitch) / RATE
        for harmonic in range(1, 16):
            near = np.exp(-(((harmonic * pitch[0] - formants) / 250) ** 2)).sum() + 0.05
            sound[start : start + len(time)] += near * np.sin(np.pi * np.arange(len(time)) / length) ** 0.5 * np.sin(harmonic * phase)
        start += length + int(draw.uniform(0.02, 0.25) * RATE)
    return (np.round(60 * sound / np.abs(sound).max()) / 128).astype(np.float32)


def write_wave(path: Any, samples: np.ndarray) -> None:
    """One channel of eight bits, whose middle is 128."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(RATE)
        file.writeframes((samples * 128 + 128).astype(np.uint8).tobytes())


class Undecided(Exception):
    """Weights by which an answer hangs on digits that nobody keeps."""


def demand(holds: bool, why: str) -> None:
    if not holds:
        raise Undecided(why)


def until_decided(make: Callable[[str], None], draws: int = 200) -> None:
    """Draws weights until every answer is clear."""
    for draw in range(draws):
        try:
            return make(str(draw))
        except Undecided as reason:
            print(f"draw {draw}: {str(reason)[:150]}", flush=True)
    raise RuntimeError("no draw is decided")


def steady(model: nn.Module, run: Callable[[], Any], size: float = 2e-4) -> Any:
    """What run gives, which must be the same with weights that differ a little."""
    result = run()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    for seed in range(4):
        noise = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            parameter.data *= 1 + size * torch.randn(parameter.shape, generator=noise)
        again = run()
        model.load_state_dict(kept)
        demand(result == again, f"not steady: {result} and {again}")
    return result


# What is converted: the modules of transformers, written with one place in the third dimension.


class Attention(nn.Module):
    """Of `[1, width, 1, n]` to keys and values of the same form."""

    def __init__(self, source: nn.Module):
        super().__init__()
        for name in ("q", "k", "v", "out"):
            linear = getattr(source, f"{name}_proj")
            conv = nn.Conv2d(WIDTH, WIDTH, 1, bias=linear.bias is not None)
            conv.weight.data = linear.weight.data[:, :, None, None]
            if linear.bias is not None:
                conv.bias.data = linear.bias.data
            setattr(self, name, conv)

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        def split(part: torch.Tensor) -> torch.Tensor:
            return part.view(1, HEADS, WIDTH // HEADS, -1)

        scores = (split(self.q(x)) * (WIDTH // HEADS) ** -0.5).transpose(-1, -2) @ split(keys)
        if mask is not None:
            scores = scores + mask[:, None, None, :]
        seen = split(values) @ torch.softmax(scores, -1).transpose(-1, -2)
        return self.out(seen.reshape(1, WIDTH, 1, -1))


class Norm(nn.Module):
    """Over the second dimension."""

    def __init__(self, source: nn.LayerNorm):
        super().__init__()
        self.norm = source

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.transpose(1, 3)).transpose(1, 3)


class Forward(nn.Module):
    """The two layers behind attention."""

    def __init__(self, source: nn.Module):
        super().__init__()
        self.norm = Norm(source.final_layer_norm)
        self.first, self.second = (nn.Conv2d(fc.in_features, fc.out_features, 1) for fc in (source.fc1, source.fc2))
        for conv, fc in ((self.first, source.fc1), (self.second, source.fc2)):
            conv.weight.data, conv.bias.data = fc.weight.data[:, :, None, None], fc.bias.data

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(nn.functional.gelu(self.first(self.norm(x))))


class EncoderLayer(nn.Module):
    def __init__(self, source: nn.Module):
        super().__init__()
        self.attention, self.norm, self.rest = Attention(source.self_attn), Norm(source.self_attn_layer_norm), Forward(source)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.norm(x)
        return self.rest(x + self.attention(inner, self.attention.k(inner), self.attention.v(inner)))


class Encoder(nn.Module):
    def __init__(self, source: nn.Module):
        super().__init__()
        self.first, self.second = source.conv1, source.conv2
        self.register_buffer("places", source.embed_positions.weight.data.T[None, :, None])
        self.layers = nn.ModuleList(EncoderLayer(layer) for layer in source.layers)
        self.norm = Norm(source.layer_norm)

    def forward(self, melspectrogram_features: torch.Tensor) -> torch.Tensor:
        conv, gelu = nn.functional.conv2d, nn.functional.gelu
        x = gelu(conv(melspectrogram_features, self.first.weight[:, :, None], self.first.bias, padding=(0, 1)))
        x = gelu(conv(x, self.second.weight[:, :, None], self.second.bias, padding=(0, 1), stride=(1, 2))) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class DecoderLayer(nn.Module):
    def __init__(self, source: nn.Module):
        super().__init__()
        self.own, self.own_norm = Attention(source.self_attn), Norm(source.self_attn_layer_norm)
        self.other, self.other_norm = Attention(source.encoder_attn), Norm(source.encoder_attn_layer_norm)
        self.rest = Forward(source)

    def forward(self, x: Any, keys: Any, values: Any, update: Any, states: Any, mask: Any) -> Any:
        inner = self.own_norm(x)
        key, value = self.own.k(inner), self.own.v(inner)
        here = update[:, None, None, :]
        x = x + self.own(inner, keys * (1 - here) + key * here, values * (1 - here) + value * here, mask)
        x = x + self.other(self.other_norm(x), self.other.k(states), self.other.v(states))
        return self.rest(x), key, value


class Decoder(nn.Module):
    """One token at a time; the host keeps what it gives of keys and values."""

    def __init__(self, source: nn.Module, head: nn.Linear):
        super().__init__()
        self.words, self.places, self.head = source.embed_tokens, source.embed_positions, head
        self.layers = nn.ModuleList(DecoderLayer(layer) for layer in source.layers)
        self.norm = Norm(source.layer_norm)

    def forward(
        self, input_ids: Any, cache_length: Any, key_cache: Any, value_cache: Any, kv_cache_update_mask: Any,
        encoder_output_embeds: Any, decoder_key_padding_mask: Any,
    ) -> Any:
        x = (nn.functional.embedding(input_ids, self.words.weight) + nn.functional.embedding(cache_length, self.places.weight))[:, :, None, None]
        keys, values, new_keys, new_values = key_cache.split(WIDTH, 1), value_cache.split(WIDTH, 1), [], []
        for index, layer in enumerate(self.layers):
            x, key, value = layer(x, keys[index], values[index], kv_cache_update_mask, encoder_output_embeds, decoder_key_padding_mask)
            new_keys.append(key)
            new_values.append(value)
        logits = self.head(self.norm(x).squeeze(2).transpose(1, 2))
        return logits, torch.cat(new_keys, 1), torch.cat(new_values, 1)


class Spectrogram(nn.Module):
    """Whisper's own: loudness of pitches, by a Fourier transform."""

    def __init__(self, filters: np.ndarray):
        super().__init__()
        self.register_buffer("window", torch.hann_window(FRAME))
        self.register_buffer("filters", torch.from_numpy(filters.T.copy()).float())

    def forward(self, audio: torch.Tensor) -> torch.Tensor:
        waves = torch.stft(audio, FRAME, HOP, window=self.window, return_complex=True)
        loud = self.filters @ (waves.abs() ** 2)[..., :-1]
        loud = torch.log10(loud + 1e-10)
        loud = torch.maximum(loud, loud.max() - 8.0)
        return ((loud + 4.0) / 4.0)[None, :, None, :]


class Rounded(nn.Module):
    """The same in the halves that its package has: the least loudness is the least half."""

    def __init__(self, source: Spectrogram):
        super().__init__()
        turns = 2 * np.pi / FRAME * torch.outer(torch.arange(FRAME // 2 + 1), torch.arange(FRAME)).double()
        waves = torch.cat([turns.cos(), turns.sin()]) * source.window.double()
        self.waves, self.filters = waves.half().float()[:, None], source.filters.half().float()

    def forward(self, audio: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad(audio[None, None], (FRAME // 2, FRAME // 2), mode="reflect")
        real, imaginary = nn.functional.conv1d(padded, self.waves, stride=HOP)[0, :, :-1].square().chunk(2)
        loud = torch.log(self.filters @ (real + imaginary) + 2.0**-24) * torch.tensor(1 / np.log(10)).half().float()
        return (torch.maximum(loud, loud.max() - 8.0) + 4.0) / 4.0


# The model of transformers, its tokens and its settings.


def tokenizer() -> Tokenizer:
    """Bytes and pairs of them, then Whisper's special tokens in their order, then the times."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    made.train_from_iterator(CORPUS * 20, trainer)
    special = ["endoftext", "startoftranscript", *LANGUAGES, "translate", "transcribe", "startoflm", "startofprev", "nospeech",
               "notimestamps"]
    made.add_special_tokens([f"<|{name}|>" for name in special])
    stamps = [f"<|{step * 0.02:.2f}|>" for step in range(SECONDS * 50 + 1)]
    made.add_tokens([AddedToken(stamp, normalized=False) for stamp in stamps])
    return made


def settings(tokens: Tokenizer) -> tf.GenerationConfig:
    """As a published Whisper has them, with ids of this vocabulary."""
    code = lambda name: tokens.token_to_id(f"<|{name}|>")
    awkward = [index for token, index in tokens.get_vocab().items() if len(token) == 1 and not token.isascii() or token in '"\\<|>']
    awkward = [index for index in awkward if index != tokens.token_to_id("Ġ")]
    never = [code(name) for name in ("startoftranscript", "translate", "transcribe", "startoflm", "startofprev", "nospeech")]
    end = code("endoftext")
    return tf.GenerationConfig(
        begin_suppress_tokens=[tokens.token_to_id("Ġ"), end], bos_token_id=end, eos_token_id=end, pad_token_id=end,
        decoder_start_token_id=code("startoftranscript"), is_multilingual=True, max_initial_timestamp_index=50, max_length=24,
        no_timestamps_token_id=code("notimestamps"), prev_sot_token_id=code("startofprev"), return_timestamps=False,
        suppress_tokens=sorted({*awkward, *never}), lang_to_id={f"<|{name}|>": code(name) for name in LANGUAGES},
        task_to_id={name: code(name) for name in ("transcribe", "translate")},
    )


def whisper_model(tokens: Tokenizer, seed: str) -> tuple[tf.WhisperForConditionalGeneration, tf.WhisperFeatureExtractor]:
    """Random weights with varied outputs: what all positions share is subtracted from the output."""
    end, stamps = tokens.token_to_id("<|endoftext|>"), tokens.token_to_id("<|0.00|>")
    config = tf.WhisperConfig(
        vocab_size=tokens.get_vocab_size(), num_mel_bins=PITCHES, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=32, decoder_ffn_dim=32,
        max_source_positions=MOMENTS // 2, max_target_positions=LONGEST, eos_token_id=end, bos_token_id=end, pad_token_id=end,
        decoder_start_token_id=tokens.token_to_id("<|startoftranscript|>"), tie_word_embeddings=False, suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    hear = tf.WhisperFeatureExtractor(feature_size=PITCHES, chunk_length=SECONDS)
    model = seeded(tf.WhisperForConditionalGeneration(config), f"whisper{seed}", 2.0)
    heard = hear(voice(3, 4), sampling_rate=RATE, return_tensors="pt")["input_features"]
    noise = torch.randint(3, stamps, (8, 24), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        states = model.model(input_features=heard.expand(8, -1, -1), decoder_input_ids=noise).last_hidden_state
        mean = states.mean((0, 1))
        weight = model.proj_out.weight.data
        weight -= torch.outer(weight @ mean, mean) / mean.dot(mean)
        weight[:stamps] *= 2.5
        weight[end] *= 1.2
        model.proj_out.weight.data = weight.half().float()
    model.generation_config = settings(tokens)
    return model, hear


class Listener:
    """What transformers writes about recordings: whole, as it does it, or window by window, as WhisperKit does it."""

    def __init__(self, tokens: Tokenizer, model: Any, hear: Any):
        self.tokens, self.model, self.hear = tokens, model, hear
        self.rounded = Rounded(Spectrogram(hear.mel_filters))
        self.end = tokens.token_to_id("<|endoftext|>")

    def heard(self, samples: np.ndarray) -> torch.Tensor:
        """Features of a window, or of all of a long sound."""
        more = {"truncation": False, "padding": "longest"} if len(samples) > WINDOW else {}
        return self.hear(samples, sampling_rate=RATE, return_tensors="pt", **more)["input_features"]

    def heard_at(self, samples: np.ndarray, begin: int) -> torch.Tensor:
        """Features of one window, as the package computes them."""
        window = torch.zeros(WINDOW)
        part = torch.from_numpy(samples[begin : begin + WINDOW])
        window[: len(part)] = part
        return self.rounded(window)[None]

    def said(self, tokens: Any) -> str:
        """Tokens as a text, without the times."""
        return self.tokens.decode([int(token) for token in tokens if token < self.end], skip_special_tokens=True).strip()

    def answer(self, given: Json, samples: np.ndarray, in_windows: bool) -> Json:
        options = {name: given[name] for name in ("language", "task", "num_beams") if name in given}
        options.setdefault("task", "transcribe")
        features, with_times = self.heard(samples), given.get("timestamps") == "segment"
        if in_windows and len(samples) <= WINDOW:
            features = self.heard_at(samples, 0)
        mask = torch.ones(features.shape[0], features.shape[2], dtype=torch.long)

        def segment(_self: Any = None, input_features: Any = None, seek: Any = None, **_more: Any) -> torch.Tensor:
            return self.heard_at(samples, int(seek[0]) * HOP)

        def run() -> Json:
            output: Json = {}
            if with_times or len(samples) > WINDOW:
                with mock.patch.object(type(self.model), "_get_input_segment", segment) if in_windows else nullcontext():
                    found = self.model.generate(
                        features, attention_mask=mask, return_timestamps=True, return_segments=True, **options
                    )["segments"][0]
                times = [(round(float(part["start"]), 2), round(float(part["end"]), 2), self.said(part["tokens"])) for part in found]
                output["text"] = self.said([token for part in found for token in part["tokens"]])
                if with_times:
                    output["segments"] = [{"start": start, "end": end, "text": text} for start, end, text in times]
                demand(len(found) > 1, "one segment only")
            else:
                output["text"] = self.said(self.model.generate(features, **options)[0])
            spoken = given.get("language")
            if not spoken:
                spoken = int(self.model.detect_language(input_features=features)[0])
                spoken = self.tokens.id_to_token(spoken).strip("<|>")
            return output | {"language": spoken}

        output = steady(self.model, run)
        demand(len(set(output["text"])) > 4, f"dull: {output}")
        return output


CASES: dict[str, tuple[Json, float, int]] = {
    "detected": ({}, 1.2, 1),
    "german": ({"language": "de"}, 1.2, 1),
    "translated": ({"language": "fr", "task": "translate"}, 4.4, 2),
    "beams": ({"language": "en", "num_beams": 4}, 1.2, 1),
    "segments": ({"language": "en", "timestamps": "segment"}, 4.4, 2),
    "long": ({"language": "en", "timestamps": "segment"}, 7.1, 3),
    "long-text": ({"language": "de"}, 7.1, 3),
}


def converted(module: nn.Module, inputs: dict[str, tuple[tuple[int, ...], Any]], outputs: list[str]) -> ct.models.MLModel:
    """A module as a package of halves."""
    examples = [torch.zeros(shape, dtype=torch.int32 if kind is np.int32 else torch.float32) for shape, kind in inputs.values()]
    return ct.convert(
        traced(module.eval(), *examples), inputs=[ct.TensorType(name, shape, kind) for name, (shape, kind) in inputs.items()],
        outputs=[ct.TensorType(name, dtype=np.float16) for name in outputs], minimum_deployment_target=ct.target.macOS13,
        skip_model_load=True,
    )


@torch.no_grad()
def whisperkit(seed: str) -> None:
    tokens = tokenizer()
    model, hear = whisper_model(tokens, seed)
    listener = Listener(tokens, model, hear)
    sounds = {f"{seconds}.wav": voice(seconds, draw) for _, seconds, draw in CASES.values()}
    answers = []
    for name, (given, seconds, _) in CASES.items():
        file = f"{seconds}.wav"
        answer = listener.answer(given, sounds[file], True)
        answers.append((name, {"audio": {"file": file}, **given}, answer, {}))
        answer = listener.answer(given, sounds[file], False)
        answers.append((f"{name}, whole", {"audio": {"file": file}, **given}, answer, {"without": SPECTROGRAM}))
    half, whole = np.float16, np.int32
    encoder, decoder = Encoder(model.model.encoder), Decoder(model.model.decoder, model.proj_out)
    cache, row = (1, WIDTH * LAYERS, 1, LONGEST), (1, LONGEST)
    fixture = Fixture("whisperkit", "automatic-speech-recognition")
    fixture.save(converted(Spectrogram(hear.mel_filters), {"audio": ((WINDOW,), half)}, ["melspectrogram_features"]), SPECTROGRAM)
    features = (1, PITCHES, 1, MOMENTS)
    fixture.save(converted(encoder, {"melspectrogram_features": (features, half)}, ["encoder_output_embeds"]), "tiny/AudioEncoder")
    fixture.save(
        converted(
            decoder,
            {"input_ids": ((1,), whole), "cache_length": ((1,), whole), "key_cache": (cache, half), "value_cache": (cache, half),
             "kv_cache_update_mask": (row, half), "encoder_output_embeds": ((1, WIDTH, 1, MOMENTS // 2), half),
             "decoder_key_padding_mask": (row, half)},
            ["logits", "key_cache_updates", "value_cache_updates"],
        ),
        "tiny/TextDecoder",
    )
    model.generation_config.save_pretrained(fixture.model / "tiny")
    (fixture.model / "tiny/config.json").write_text(json.dumps({"model_type": "whisper", "max_target_positions": LONGEST}, indent=2) + "\n")
    tokens.save(str(fixture.model / "tokenizer.json"))
    heard = listener.heard(sounds["1.2.wav"])
    noise = voice(SECONDS, 9)
    fixture.case("spectrogram", [({"audio": noise}, {"melspectrogram_features": numpy(listener.rounded(torch.from_numpy(noise)))[None, :, None]})],
                 model=f"{SPECTROGRAM}.mlpackage")
    states = model.model.encoder(heard).last_hidden_state.transpose(1, 2)[:, :, None]
    fixture.case("encoder", [({"melspectrogram_features": numpy(heard[:, :, None])}, {"encoder_output_embeds": numpy(states)})],
                 model="tiny/AudioEncoder.mlpackage", tolerance=2e-3)
    begin = [tokens.token_to_id(f"<|{name}|>") for name in ("startoftranscript", "en", "transcribe", "notimestamps")]
    keys, values, steps = torch.zeros(cache), torch.zeros(cache), []
    wanted = model(input_features=heard, decoder_input_ids=torch.tensor([begin])).logits
    for place, token in enumerate(begin):
        update, hidden = torch.zeros(row), torch.full(row, -1e4)
        update[0, place], hidden[0, : place + 1] = 1, 0
        given = {"input_ids": torch.tensor([token]), "cache_length": torch.tensor([place]), "key_cache": keys.clone(),
                 "value_cache": values.clone(), "kv_cache_update_mask": update, "encoder_output_embeds": states,
                 "decoder_key_padding_mask": hidden}
        logits, key, value = decoder(*given.values())
        assert (logits[0, 0] - wanted[0, place]).abs().max() < 1e-4
        keys[..., place], values[..., place] = key[..., 0], value[..., 0]
        steps.append(({name: numpy(array) for name, array in given.items()},
                      {"logits": numpy(wanted[:, place : place + 1]), "key_cache_updates": numpy(key), "value_cache_updates": numpy(value)}))
    fixture.case("decoder", steps, model="tiny/TextDecoder.mlpackage", tolerance=2e-3)
    for file, samples in sounds.items():
        write_wave(fixture.root / file, samples)
    for name, given, answer, more in answers:
        fixture.answer(name, given, answer, tolerance=0.021, **more)
    fixture.write(1_600_000)


LETTERS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVK'XJQZ"]
LENGTH = 40_000
STRIDE = 320


class Labels(nn.Module):
    """Only the logits of a model that labels samples."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_values: torch.Tensor) -> torch.Tensor:
        return self.model(input_values, return_dict=False)[0]


class MelLabels(nn.Module):
    """Labels of what Whisper's front end receives."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(PITCHES, WIDTH, 3, 1, 1), nn.Conv1d(WIDTH, WIDTH, 3, 2, 1)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS))

    def forward(self, input_features: torch.Tensor) -> torch.Tensor:
        x = nn.functional.gelu(self.second(nn.functional.gelu(self.first(input_features))))
        return self.head(self.norm(x.transpose(1, 2)))


def spelled(labels: list[int], tokens: tf.Wav2Vec2CTCTokenizer) -> str:
    """The text of labels, as transformers decodes it."""
    text = tokens.decode(labels)
    demand(len(set(text)) > 5 and " " in text.strip() and "  " not in text, f"dull: {text}")
    return text


def in_windows(samples: np.ndarray, window: int, labels: Callable[[np.ndarray], list[int]]) -> list[int]:
    """Labels of a recording that is longer than the model's window: a sixth of a window at either end is only context."""
    margin = window // 6 // STRIDE * STRIDE
    step = (window - 2 * margin) // STRIDE * STRIDE
    heard: list[int] = []
    for begin in range(0, len(samples), step):
        part = labels(samples[begin : begin + window])
        is_last = begin + window >= len(samples)
        heard += part[0 if begin == 0 else margin // STRIDE : None if is_last else (margin + step) // STRIDE]
        if is_last:
            return heard
    return heard


def of_letters(head: nn.Linear, states: torch.Tensor) -> None:
    """Letters by what distinguishes times, and none of the tokens that stand for no letter."""
    weight, mean = head.weight.data, states.reshape(-1, WIDTH).mean(0)
    weight -= torch.outer(weight @ mean, mean) / mean.dot(mean)
    head.weight.data = (4 * weight).half().float()
    head.bias.data[1:4] -= 30
    head.bias.data[4] += 3


def letters(fixture: Fixture) -> tf.Wav2Vec2CTCTokenizer:
    file = fixture.model / "vocab.json"
    file.write_text(json.dumps({letter: index for index, letter in enumerate(LETTERS)}, indent=1) + "\n")
    return tf.Wav2Vec2CTCTokenizer(str(file))


SOUNDS = {"1.1.wav": voice(1.1, 5), "3.3.wav": voice(3.3, 6)}


@torch.no_grad()
def wav2vec2(name: str, length: int | None, seed: str) -> None:
    config = tf.Wav2Vec2Config(
        vocab_size=len(LETTERS), hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, conv_dim=[8] * 7,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, pad_token_id=0, attn_implementation="eager",
    )
    model = seeded(tf.Wav2Vec2ForCTC(config), f"wav2vec2{seed}", 2.0)
    places = model.wav2vec2.encoder.pos_conv_embed.conv
    nn.utils.parametrize.remove_parametrizations(places, "weight")
    places.weight.data = places.weight.data.half().float()
    of_letters(model.lm_head, model.wav2vec2(torch.from_numpy(voice(2, 8))[None]).last_hidden_state)
    hear = tf.Wav2Vec2FeatureExtractor(do_normalize=True, return_attention_mask=False)
    fixture = Fixture(name, "automatic-speech-recognition")
    tokens = letters(fixture)

    def labels(samples: np.ndarray) -> list[int]:
        """Of samples with silence behind them, those that are not of silence."""
        count = int(model._get_feat_extract_output_lengths(len(samples)))
        padded = np.pad(samples, (0, (length or len(samples)) - len(samples)))
        return model(torch.from_numpy(padded)[None]).logits[0, :count].argmax(-1).tolist()

    for file, samples in SOUNDS.items():
        values = hear(samples, sampling_rate=RATE, return_tensors="np")["input_values"][0]
        text = steady(model, lambda: spelled(in_windows(values, length or len(values), labels), tokens))
        fixture.answer(file, {"audio": {"file": file}}, {"text": text})
    shape = (1, length or ct.RangeDim(400, 480_000, default=16_000))
    package = ct.convert(
        traced(Labels(model).eval(), torch.zeros(1, length or 16_000)), inputs=[ct.TensorType("input_values", shape, np.float16)],
        outputs=[ct.TensorType("logits", dtype=np.float16)], minimum_deployment_target=ct.target.iOS16, skip_model_load=True,
    )
    fixture.save(package)
    config.save_pretrained(fixture.model)
    hear.save_pretrained(fixture.model)
    given = values[: length or 8000][None]
    fixture.case("labels", [({"input_values": given}, {"logits": numpy(model(torch.from_numpy(given)).logits)})], tolerance=5e-3)
    for file, samples in SOUNDS.items():
        write_wave(fixture.root / file, samples)
    fixture.write()


@torch.no_grad()
def mel_labels(seed: str) -> None:
    model = seeded(MelLabels(), f"mel{seed}", 2.0)
    hear = tf.WhisperFeatureExtractor(feature_size=PITCHES, chunk_length=SECONDS)
    heard = hear(voice(5, 8), sampling_rate=RATE, return_tensors="pt")["input_features"]
    states: list[torch.Tensor] = []
    with model.head.register_forward_pre_hook(lambda _head, given: states.append(given[0])):
        model(heard)
    of_letters(model.head, states[0])
    fixture = Fixture("mel-labels", "automatic-speech-recognition")
    tokens = letters(fixture)
    (fixture.model / "tokenizer_config.json").write_text('{ "pad_token": "<pad>" }\n')
    settings = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": PITCHES, "chunk_length": SECONDS, "do_normalize": False}
    (fixture.model / "preprocessor_config.json").write_text(json.dumps(settings, indent=1) + "\n")

    def labels(samples: np.ndarray) -> list[int]:
        features = hear(samples, sampling_rate=RATE, return_tensors="pt")["input_features"]
        return model(features)[0, : -(-len(samples) // STRIDE)].argmax(-1).tolist()

    for file, samples in {"1.1.wav": SOUNDS["1.1.wav"], "6.2.wav": voice(6.2, 7)}.items():
        text = steady(model, lambda: spelled(in_windows(samples, WINDOW, labels), tokens))
        fixture.answer(file, {"audio": {"file": file}}, {"text": text})
        write_wave(fixture.root / file, samples)
    features = (1, PITCHES, MOMENTS)
    fixture.save(converted(model, {"input_features": (features, np.float16)}, ["logits"]))
    fixture.write()


FAMILIES = {
    "whisperkit": lambda: until_decided(whisperkit),
    "wav2vec2": lambda: until_decided(lambda seed: wav2vec2("wav2vec2", None, seed)),
    "wav2vec2-fixed": lambda: until_decided(lambda seed: wav2vec2("wav2vec2-fixed", LENGTH, seed)),
    "mel-labels": lambda: until_decided(mel_labels),
}
