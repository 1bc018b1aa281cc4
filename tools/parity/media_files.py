"""Pictures and sounds in every format, size and number of channels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image

import media
from place import Place

Draw = Callable[[Path], None]


def _scene(mode: str = "RGB", size: tuple[int, int] = (91, 67), seed: int = 2) -> Image.Image:
    image = media.scene(*size, seed=seed)
    if mode in ("RGBA", "LA", "PA"):
        alpha = np.tile(np.linspace(0, 255, size[0]).astype(np.uint8), (size[1], 1))
        image = image.convert("L") if mode == "LA" else image
        image.putalpha(Image.fromarray(alpha))
        return image
    if mode == "I;16":
        return Image.fromarray((np.asarray(image.convert("L")).astype(np.uint16) * 257))
    return image.convert("P", palette=Image.Palette.ADAPTIVE) if mode == "P" else image.convert(mode)


def _oriented(number: int) -> Draw:
    def draw(file: Path) -> None:
        exif = Image.Exif()
        exif[0x0112] = number
        _scene().save(file, exif=exif)

    return draw


def _frames(file: Path) -> None:
    _scene("P").save(file, save_all=True, append_images=[_scene("P", seed=5)])


def _transparent(file: Path) -> None:
    _scene("P").save(file, transparency=3)


PICTURES: dict[str, Draw] = {
    "rgb.png": lambda file: _scene().save(file), "gray.png": lambda file: _scene("L").save(file), "alpha.png": lambda file: _scene("RGBA").save(file),
    "gray-alpha.png": lambda file: _scene("LA").save(file), "palette.png": lambda file: _scene("P").save(file), "bits.png": lambda file: _scene("1").save(file),
    "transparent.png": _transparent, "interlaced.png": lambda file: _scene().save(file, interlace=True), "sixteen.png": lambda file: _scene("I;16").save(file),
    **{f"turned-{number}.png": _oriented(number) for number in range(2, 9)},
    "plain.jpg": lambda file: _scene().save(file, quality=95), "progressive.jpg": lambda file: _scene().save(file, quality=95, progressive=True),
    "gray.jpg": lambda file: _scene("L").save(file, quality=95), "inks.jpg": lambda file: _scene("CMYK").save(file, quality=95),
    "turned-6.jpg": _oriented(6), "full-color.jpg": lambda file: _scene().save(file, quality=98, subsampling=0),
    "lossless.webp": lambda file: _scene().save(file, lossless=True), "lossy.webp": lambda file: _scene().save(file, quality=90),
    "alpha.webp": lambda file: _scene("RGBA").save(file, lossless=True), "plain.bmp": lambda file: _scene().save(file), "palette.bmp": lambda file: _scene("P").save(file),
    "plain.gif": lambda file: _scene("P").save(file), "moving.gif": _frames, "plain.tiff": lambda file: _scene().save(file),
    "packed.tiff": lambda file: _scene().save(file, compression="tiff_lzw"), "gray.tiff": lambda file: _scene("L").save(file), "inks.tiff": lambda file: _scene("CMYK").save(file),
    "plain.ppm": lambda file: _scene().save(file), "plain.ico": lambda file: _scene(size=(48, 48)).save(file), "plain.tga": lambda file: _scene().save(file),
    "plain.avif": lambda file: _scene().save(file, quality=100),
    "point.png": lambda file: _scene(size=(1, 1)).save(file), "flat.png": lambda file: _scene(size=(140, 9)).save(file), "narrow.png": lambda file: _scene(size=(9, 140)).save(file),
    "tall.png": lambda file: _scene(size=(41, 117)).save(file), "large.png": lambda file: _scene(size=(700, 500)).save(file), "small.png": lambda file: _scene(size=(20, 17)).save(file),
    "square.png": lambda file: _scene(size=(64, 64)).save(file), "odd.png": lambda file: _scene(size=(33, 35)).save(file),
}
LOSSY = ("jpg", "lossy.webp", "avif")
SIZED = ("rgb.png", "tall.png", "small.png", "odd.png")


def is_lossy(name: str) -> bool:
    """Whether two decoders of a format may differ by a level."""
    return name.endswith(LOSSY)


def picture(name: str) -> str:
    """Draws a picture and returns its path from a model's folder."""
    file = Place.root / "media" / name
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        PICTURES[name](file)
    return f"../../media/{name}"


def opened(name: str) -> Path:
    picture(name)
    return Place.root / "media" / name


SOUNDS: dict[str, tuple[str, int, int, str | None]] = {
    **{f"rate-{rate}.wav": ("wav", rate, 1, "PCM_16") for rate in (8_000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000)},
    **{f"{subtype.lower()}.wav": ("wav", 16_000, 1, subtype) for subtype in ("PCM_U8", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW", "IMA_ADPCM")},
    "stereo.wav": ("wav", 16_000, 2, "PCM_16"), "six.wav": ("wav", 16_000, 6, "PCM_16"),
    **{f"rate-{rate}.flac": ("flac", rate, 1, None) for rate in (8_000, 16_000, 44_100)}, "stereo.flac": ("flac", 44_100, 2, None), "deep.flac": ("flac", 16_000, 1, "PCM_24"),
    **{f"rate-{rate}.ogg": ("ogg", rate, 1, None) for rate in (8_000, 16_000, 44_100)}, "stereo.ogg": ("ogg", 48_000, 2, None),
    **{f"rate-{rate}.mp3": ("mp3", rate, 1, None) for rate in (8_000, 16_000, 22_050, 44_100, 48_000)}, "stereo.mp3": ("mp3", 44_100, 2, None),
    "rate-48000.opus": ("ogg", 48_000, 1, "OPUS"), "plain.aiff": ("aiff", 16_000, 1, None), "plain.au": ("au", 16_000, 1, None),
}


def sound(name: str, seconds: float = 1.1, seed: int = 3) -> str:
    """Writes a sound and returns its path from a model's folder."""
    kind, rate, channels, subtype = SOUNDS[name]
    file = Place.root / "media" / name
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        wave = media.speech(seconds, seed, rate)
        if channels > 1:
            # Other sounds in each, so that the weight of each counts.
            wave = np.stack([np.roll(wave, channel * len(wave) // channels) * 0.9**channel for channel in range(channels)], -1)
        soundfile.write(file, wave, rate, subtype=subtype, format="ogg" if kind == "ogg" else None)
    return f"../../media/{name}"
