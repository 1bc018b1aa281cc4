"""Pictures and sounds that are drawn, not taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
from PIL import Image, ImageDraw, ImageFont

RATE = 16_000


def scene(width: int = 131, height: int = 97, seed: int = 1) -> Image.Image:
    """A soft gradient with shapes and a word."""
    draw_from = np.random.default_rng(seed)
    across, down = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    phases = draw_from.uniform(0, 6, 3)
    planes = [128 + 100 * np.sin(3 * across + 2 * down * (index + 1) + phases[index]) for index in range(3)]
    picture = Image.fromarray(np.stack(planes, -1).astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    for index in range(5):
        x, y = draw_from.uniform(0, 0.7, 2) * (width, height)
        w, h = draw_from.uniform(0.15, 0.4, 2) * (width, height)
        colour = tuple(int(value) for value in draw_from.integers(0, 256, 3))
        shape = draw.ellipse if index % 2 else draw.rectangle
        shape((int(x), int(y), int(x + w), int(y + h)), fill=colour)
    draw.text((width // 8, height // 3), "Island 42", fill=(250, 250, 240), font=ImageFont.load_default(14))
    return picture


def picture(place: Path, name: str) -> Path:
    """Draws the picture of a name into a folder: its mode, size and format follow from the name."""
    file = place / name
    if name == "scene.png":
        scene().save(file)
    elif name == "tall.png":
        scene(64, 120, seed=2).save(file)
    elif name == "gray.png":
        scene(80, 63, seed=3).convert("L").save(file)
    elif name == "alpha.png":
        image = scene(96, 110, seed=4)
        alpha = np.tile(np.linspace(0, 255, 96).astype(np.uint8), (110, 1))
        image.putalpha(Image.fromarray(alpha))
        image.save(file)
    elif name == "rotated.jpg":
        exif = Image.Exif()
        exif[0x0112] = 6
        scene(120, 84, seed=5).save(file, quality=95, exif=exif)
    else:
        raise ValueError(name)
    return file


def speech(seconds: float, seed: int = 1, rate: int = RATE) -> np.ndarray:
    """Something like speech: gliding harmonics in syllables, pauses, and a little noise."""
    draw_from = np.random.default_rng(seed)
    count = int(seconds * rate)
    sound = np.zeros(count)
    start = int(0.1 * rate)
    while start < count:
        length = int(draw_from.uniform(0.12, 0.35) * rate)
        time = np.arange(min(length, count - start)) / rate
        pitch = draw_from.uniform(90, 240) + draw_from.uniform(-120, 120) * time
        formants = draw_from.uniform(300, 3000, 2)
        phase = 2 * np.pi * np.cumsum(pitch) / rate
        envelope = np.sin(np.pi * np.arange(len(time)) / length) ** 0.5
        for harmonic in range(1, 16):
            nearness = np.exp(-(((harmonic * pitch[0] - formants[:, None]) / 250) ** 2)).sum() + 0.05
            sound[start : start + len(time)] += nearness * envelope * np.sin(harmonic * phase)
        start += length + int(draw_from.uniform(0.02, 0.25) * rate)
    sound += 0.01 * draw_from.standard_normal(count)
    return (0.5 * sound / np.abs(sound).max()).astype(np.float32)


MIX = {1: [1.0], 2: [0.5**0.5] * 2, 6: [0.5**0.5, 0.5**0.5, 1.0, 0.0, 0.5, 0.5]}
"""Weights of channels by their number: those of `ffmpeg -ac 1 -f f32le`, by which transformers reads files. Two channels are not averaged."""


def mixed(samples: np.ndarray) -> np.ndarray:
    """One channel of those of a file, `[samples, channels]`."""
    return samples @ np.array(MIX[samples.shape[1]])


def audio(place: Path, name: str, seconds: float, seed: int = 1, rate: int = RATE, channels: int = 1) -> Path:
    """Writes an audio file; the extension of the name selects the format."""
    sound = speech(seconds, seed, rate)
    if channels == 2:
        sound = np.stack([sound, 0.5 * np.roll(sound, 100)], -1)
    if name.endswith(".flac"):
        sound = np.round(sound * 96) / 96 * 0.75  # seven bits, which pack well
    file = place / name
    subtype = {".wav": "PCM_16", ".flac": "PCM_16"}.get(file.suffix)
    soundfile.write(file, sound, rate, subtype=subtype)
    return file
