"""Small drawn pictures for cases that take one in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def photo(path: Path, width: int, height: int, mode: str = "RGB") -> None:
    """Gradients, a disc and fine stripes: smooth parts and edges for the resampling."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    red, green = 255 * x / width, 255 * y / height
    blue = 127 + 120 * np.sin(x / 3) * np.cos(y / 5)
    disc = (x - width / 3) ** 2 + (y - height / 2) ** 2 < (height / 4) ** 2
    levels = np.stack([red, green, blue], axis=-1)
    levels[disc] = (250, 200, 30)
    levels[:: 7, width // 2 :] = 20
    picture = Image.fromarray(levels.round().astype(np.uint8))
    if mode == "RGBA":
        picture.putalpha(Image.fromarray((255 * x / width).round().astype(np.uint8)))
    elif mode != "RGB":
        picture = picture.convert(mode)
    picture.save(path, optimize=True)


def mask(path: Path, width: int, height: int) -> None:
    """White where something is to be painted: a slanted blob with grey edges."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    distance = np.hypot((x - width * 0.55) / width, (y - height * 0.4) / height + (x / width - 0.5) / 4)
    Image.fromarray((255 * np.clip((0.33 - distance) * 12, 0, 1)).round().astype(np.uint8)).save(path, optimize=True)
