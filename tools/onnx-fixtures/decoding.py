"""Sounds in several formats, and the samples at 16 kHz in one channel that every engine starts from."""

from __future__ import annotations

import numpy as np
import soundfile
from scipy.signal import resample_poly

import media
from common import Repository

REFERENCE = "libsndfile, the channels mixed as by ffmpeg, and scipy's polyphase filter; compare loosely, and MP3 by its best shift"
FILES = {"stereo.wav": (0.35, 44_100, 2), "low.flac": (0.6, 8_000, 1), "stereo.ogg": (0.6, 44_100, 2), "mono.mp3": (0.6, 22_050, 1)}


def audio_decoding() -> None:
    repository = Repository("audio-decoding", "audio-decoding")
    repository.model.rmdir()
    repository.extra = {"reference": REFERENCE}
    for name, (seconds, rate, channels) in FILES.items():
        media.audio(repository.root, name, seconds, seed=8, rate=rate, channels=channels)
        samples, rate = soundfile.read(repository.root / name, dtype="float64", always_2d=True)
        one = media.mixed(samples)
        divisor = np.gcd(media.RATE, rate)
        one = resample_poly(one, media.RATE // divisor, rate // divisor)
        stem = name.replace(".", "-")
        output = {"samples": {"file": repository.store(stem, one)}, "sample_rate": media.RATE, "channels": channels}
        repository.case(stem, {"audio": {"file": name}}, output, 0.03)
    repository.write()


FAMILIES = {"audio-decoding": audio_decoding}
