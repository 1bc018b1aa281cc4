"""Supertonic: a sound without noise in some steps, from a text, a voice and seeded noise; the answers are those of the package `supertonic`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from supertonic import core
from supertonic.pipeline import TTS
from torch import nn

from common import Json, Repository, Session, demand, randomise

RATE, CHUNK, FACTOR, LATENT = 8_000, 16, 4, 3
WIDTH = LATENT * FACTOR
CHANNELS, STYLE, LENGTHS = 8, (1, 4, 8), (1, 2, 4)
LETTERS = "".join(map(chr, range(32, 127))) + "\u0300\u0301\u0302\u0303\u0308\u0327"
LANGUAGES = ["en", "de", "ko", "na"]
CASES: dict[str, Json] = {
    "plain": {"text": "The sea is calm."},
    "spelt": {"text": "Café – “nice” boats ,\u00a0e.g., 2@sea 🙂🙂 [ok]", "voice": "M1", "language": "en", "seed": 7},
    "long": {
        "text": "Dr. A. Smith came. He sat down! Why? " * 9 + "\n\nNobody knows, e.g. why", "language": "de", "speed": 1.5, "steps": 3,
    },
    "korean": {"text": "One sentence here. " * 10, "language": "ko", "seed": 18446744073709551615, "steps": 1},
}


def rotated(words: np.ndarray, by: int) -> np.ndarray:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))


def chacha(key: np.ndarray, blocks: int) -> np.ndarray:
    """The first blocks of ChaCha20 with nonce 0 as 64-bit words, as RFC 8439 computes them but with a counter of 64 bits."""
    state = np.zeros((16, blocks), np.uint32)
    state[:4] = np.frombuffer(b"expand 32-byte k", np.uint32)[:, None]
    state[4:12] = key[:, None]
    state[12] = np.arange(blocks)
    words = state.copy()
    diagonals = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    for _ in range(10):
        for a, b, c, d in diagonals:
            for one, other, third, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                words[one] += words[other]
                words[third] = rotated(words[third] ^ words[one], by)
    return np.ascontiguousarray((words + state).T).view(np.uint64).ravel()


def normal(seed: int, part: int, count: int) -> np.ndarray:
    """The engine's noise: ChaCha20, then Box-Muller."""
    key = np.array([seed, part, 0, 0], np.uint64).view(np.uint32)
    bits = chacha(key, count // 8 + 2)[: count + count % 2]
    shares = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    radius, angle = np.sqrt(-2 * np.log(shares[::2])), 2 * np.pi * shares[1::2]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()[:count]


@contextmanager
def noise_of(seed: int) -> Iterator[None]:
    """Replaces numpy's noise by the engine's, one key for each part of a text."""
    before, parts = np.random.randn, iter(range(100))
    np.random.randn = lambda *shape: normal(seed, next(parts), int(np.prod(shape))).reshape(shape)
    try:
        yield
    finally:
        np.random.randn = before


class Duration(nn.Module):
    def __init__(self, letters: int):
        super().__init__()
        self.letters, self.style = nn.Embedding(letters, CHANNELS), nn.Linear(LENGTHS[1] * LENGTHS[2], CHANNELS)
        self.length = nn.Linear(CHANNELS, 1)

    def forward(self, text_ids: torch.Tensor, style_dp: torch.Tensor, text_mask: torch.Tensor) -> torch.Tensor:
        lengths = self.length(torch.tanh(self.letters(text_ids) + self.style(style_dp.flatten(1))[:, None]))
        return (torch.sigmoid(lengths[..., 0]) * text_mask[:, 0]).sum(1) * 0.03


class Encoder(nn.Module):
    def __init__(self, letters: int):
        super().__init__()
        self.letters, self.mixed = nn.Embedding(letters, CHANNELS), nn.Conv1d(CHANNELS, CHANNELS, 3, padding=1)
        self.style = nn.Linear(STYLE[1] * STYLE[2], CHANNELS)

    def forward(self, text_ids: torch.Tensor, style_ttl: torch.Tensor, text_mask: torch.Tensor) -> torch.Tensor:
        mixed = self.mixed(self.letters(text_ids).transpose(1, 2)) + self.style(style_ttl.flatten(1))[..., None]
        return torch.tanh(mixed) * text_mask


class Estimator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.asked, self.mixed = nn.Conv1d(WIDTH, CHANNELS, 3, padding=1), nn.Conv1d(CHANNELS, WIDTH, 1)
        self.style, self.time = nn.Linear(STYLE[1] * STYLE[2], CHANNELS), nn.Linear(2, CHANNELS)

    def forward(
        self, noisy_latent: torch.Tensor, text_emb: torch.Tensor, style_ttl: torch.Tensor, latent_mask: torch.Tensor,
        text_mask: torch.Tensor, current_step: torch.Tensor, total_step: torch.Tensor,
    ) -> torch.Tensor:
        time = self.time(torch.stack([current_step / total_step, 1 / total_step], 1)) + self.style(style_ttl.flatten(1))
        asked = self.asked(noisy_latent) + time[..., None]
        weights = (asked.transpose(1, 2) @ text_emb / CHANNELS**0.5 - (1 - text_mask) * 1e4).softmax(-1)
        seen = (weights @ text_emb.transpose(1, 2)).transpose(1, 2)
        speed = self.mixed(torch.tanh(asked + 2 * seen)) - noisy_latent
        return (noisy_latent + speed / total_step[:, None, None]) * latent_mask


class Vocoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.samples = nn.ConvTranspose1d(WIDTH, 1, CHUNK * FACTOR, stride=CHUNK * FACTOR)

    def forward(self, latent: torch.Tensor) -> torch.Tensor:
        return 0.5 * torch.tanh(self.samples(latent))[:, 0]


def style(shape: tuple[int, ...], noise: np.random.Generator) -> Json:
    return {"dims": list(shape), "data": np.round(noise.standard_normal(shape), 4).tolist()}


def supertonic() -> None:
    repository = Repository("supertonic", "text-to-speech")
    repository.extra = {"engine": {"languages": LANGUAGES}}
    text, mask = torch.zeros(1, 5, dtype=torch.int64), torch.ones(1, 1, 5)
    ttl, lengths, latent, latent_mask = torch.zeros(STYLE), torch.zeros(LENGTHS), torch.zeros(1, WIDTH, 6), torch.ones(1, 1, 6)
    step = torch.ones(1)
    models = {
        "duration_predictor": (
            Duration(len(LETTERS)), {"text_ids": (text, 1), "style_dp": (lengths, None), "text_mask": (mask, 2)}, {"duration": None}
        ),
        "text_encoder": (
            Encoder(len(LETTERS)), {"text_ids": (text, 1), "style_ttl": (ttl, None), "text_mask": (mask, 2)}, {"text_emb": 2}
        ),
        "vector_estimator": (
            Estimator(),
            {
                "noisy_latent": (latent, 2), "text_emb": (torch.zeros(1, CHANNELS, 5), 2), "style_ttl": (ttl, None),
                "latent_mask": (latent_mask, 2), "text_mask": (mask, 2), "current_step": (step, None), "total_step": (step, None),
            },
            {"denoised_latent": 2},
        ),
        "vocoder": (Vocoder(), {"latent": (latent, 2)}, {"wav_tts": 1}),
    }
    for name, (model, inputs, outputs) in models.items():
        randomise(model, name, gain=1.5)
        # Two axes of different lengths have different names.
        axes = lambda of: {key: {} if axis is None else {axis: f"{key}_length"} for key, axis in of.items()}
        named = axes({key: axis for key, (_value, axis) in inputs.items()})
        values = tuple(value for value, _axis in inputs.values())
        repository.trace(model, values, named, axes(outputs), f"onnx/{name}.onnx")
    indexer = [LETTERS.find(chr(code)) for code in range(0x340)]
    (repository.model / "onnx/unicode_indexer.json").write_text(json.dumps(indexer))
    settings = {
        "ae": {"sample_rate": RATE, "base_chunk_size": CHUNK},
        "ttl": {"latent_dim": LATENT, "chunk_compress_factor": FACTOR},
    }
    (repository.model / "onnx/tts.json").write_text(json.dumps(settings))
    (repository.model / "voice_styles").mkdir()
    voices = {}
    for number, voice in enumerate(["F1", "M1"]):
        noise = np.random.default_rng(number)
        voices[voice] = {"style_ttl": style(STYLE, noise), "style_dp": style(LENGTHS, noise)}
        (repository.model / f"voice_styles/{voice}.json").write_text(json.dumps(voices[voice]))

    graphs = [Session(repository.model / f"onnx/{name}.onnx").session for name in models]
    reader = core.UnicodeProcessor(str(repository.model / "onnx/unicode_indexer.json"))
    library = object.__new__(TTS)
    library.model = core.Supertonic(settings, reader, *graphs)
    library.model_name, library.is_multilingual, library.sample_rate = "supertonic-3", True, RATE
    for case, given in CASES.items():
        of_voice = voices[given.get("voice", "F1")]
        vectors = [np.array(of_voice[kind]["data"], np.float32) for kind in ("style_ttl", "style_dp")]
        with noise_of(given.get("seed", 0)):
            wave, _seconds = library.synthesize(
                given["text"], core.Style(*vectors), total_steps=given.get("steps", 8), speed=given.get("speed", 1.05),
                lang=given.get("language"),
            )
        demand(wave.std() > 0.05 and np.abs(wave).max() < 0.51, f"a sound of {wave.std()}")
        speech = repository.store(f"{case}.speech", wave[0])
        repository.case(case, given, {"audio": {"file": speech}, "sample_rate": RATE}, 3e-3)
    repository.write()


FAMILIES = {"supertonic": supertonic}
