"""Draws pictures of one filled shape, and reads pictures as llama.cpp's mtmd does."""

import io
import math

import numpy as np
from PIL import Image, ImageDraw

COLORS = ["red", "green", "blue", "yellow", "black", "white"]
SHAPES = ["circle", "square", "triangle"]
PAD = (122, 116, 104)  # fixed in mtmd for this projector
# What people call by these names, from the darkest to the brightest usual one.
SHADES = {
    "red": [(255, 0, 0), (220, 20, 60), (178, 20, 20), (230, 50, 40), (200, 0, 0)],
    "green": [(0, 255, 0), (0, 128, 0), (34, 139, 34), (50, 205, 50), (0, 170, 60), (40, 160, 40), (0, 200, 0)],
    "blue": [(0, 0, 255), (30, 60, 220), (65, 105, 225), (0, 0, 170), (40, 90, 200)],
    "yellow": [(255, 255, 0), (255, 215, 0), (240, 230, 40), (255, 225, 60), (230, 210, 0)],
    "black": [(0, 0, 0), (0, 0, 0), (20, 20, 20), (35, 35, 38)],
    "white": [(255, 255, 255), (255, 255, 255), (245, 245, 245), (235, 238, 240)],
}
OTHERS = [(255, 140, 0), (128, 0, 128), (0, 200, 200), (255, 150, 190), (120, 70, 30), (180, 160, 120), (0, 128, 128), (190, 150, 230), (135, 206, 235)]


def fit(picture, side):
    """The picture as mtmd's mtmd_image_preprocessor_fixed_size gives it to the tower: Pillow's bicubic filter, the
    whole picture in the middle of a square, sizes rounded up in float32."""
    if picture.size == (side, side):
        return np.asarray(picture)
    w, h = picture.size
    scale = min(np.float32(side) / np.float32(w), np.float32(side) / np.float32(h))
    size = tuple(min(int(np.ceil(np.float32(n) * scale)), side) for n in (w, h))
    canvas = Image.new("RGB", (side, side), PAD)
    canvas.paste(picture.resize(size, Image.Resampling.BICUBIC), ((side - size[0]) // 2, (side - size[1]) // 2))
    return np.asarray(canvas)


def shade(rng, color, spread=10):
    return tuple(min(255, max(0, c + rng.randint(-spread, spread))) for c in rng.choice(SHADES[color]))


def background(rng, ink):
    """A color that stands out from the shape's; grey half of the time."""
    while True:
        kind = rng.random()
        if kind < 0.5:
            grey = rng.choice([128, rng.randint(60, 220)])
            tint = rng.choice([0, rng.randint(0, 12)])
            back = tuple(grey + rng.randint(-tint, tint) for _ in range(3))
        elif kind < 0.85:
            back = shade(rng, rng.choice(COLORS))
        else:
            back = rng.choice(OTHERS)
        if math.dist(back, ink) > 105:
            return back


def outline(rng, shape, width, height):
    """Corners around (0, 0), of a shape that fills about that width and height."""
    if shape == "square":
        turn = math.radians(rng.uniform(-8, 8)) if rng.random() < 0.2 else 0
        corners = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    else:
        turn = math.radians(rng.uniform(-15, 15)) if rng.random() < 0.3 else 0
        kind = rng.random()
        if kind < 0.65:  # on its base, with its tip anywhere above
            corners = [(-1, 1), (1, 1), (rng.choice([0, 0, 0, rng.uniform(-1, 1)]), -1)]
        else:
            corners = [(-1, 1), (1, 1), (-1, -1)]  # half a square
        if rng.random() < 0.35:  # on its tip, or on its side
            way = rng.randrange(3)
            corners = [[(-x, -y), (y, x), (-y, x)][way] for x, y in corners]
    cos, sin = math.cos(turn), math.sin(turn)
    shrink = 1 / (abs(cos) + abs(sin))
    return [((x * cos - y * sin) * shrink * width / 2, (x * sin + y * cos) * shrink * height / 2) for x, y in corners]


def sizes(rng):
    """Of the whole picture, from icons to photographs; the longer side is at most 2.8 times the shorter one."""
    while True:
        long = int(math.exp(rng.uniform(math.log(24), math.log(200 if rng.random() < 0.85 else 700))))
        ratio = 1 if rng.random() < 0.4 else math.exp(rng.uniform(0, math.log(2.8)))
        short = max(1, round(long / ratio))
        if short >= 16:
            return (long, short) if rng.random() < 0.5 else (short, long)


def draw(rng, color, shape):
    """A picture of this shape in this color."""
    ink = shade(rng, color, rng.choice([0, 10]))
    if shape == "square" and rng.random() < 0.08:  # nothing but the color: a square as large as the picture
        w, h = sizes(rng) if rng.random() < 0.6 else (rng.randint(1, 24), rng.randint(1, 24))
        if max(w, h) > 2.8 * min(w, h):
            h = w
        return spoil(rng, Image.new("RGB", (w, h), ink))
    w, h = sizes(rng)
    back = background(rng, ink)
    # The tower sees the longer side as 48 pixels: a shape needs ten of them.
    least = min(0.95, max(0.3, 10.5 / 48 * max(w, h) / min(w, h)))
    # A triangle as wide as the picture would leave triangles of the background around it.
    size = rng.uniform(least, 0.97 if shape != "triangle" else max(least, 0.88)) * min(w, h)
    stretch = math.exp(rng.uniform(-0.2, 0.2)) if rng.random() < 0.3 else 1
    width, height = (size, size * stretch) if stretch < 1 else (size / stretch, size)
    if shape == "triangle" and rng.random() < 0.5:
        height *= 0.866  # equal sides
    smooth = 3 if rng.random() < 0.4 and max(w, h) <= 300 else 1
    at = lambda room, extent: room / 2 if rng.random() < 0.3 else rng.uniform(extent / 2, room - extent / 2)
    x, y = at(w, width), at(h, height)
    picture = Image.new("RGB", (w * smooth, h * smooth), back)
    pen = ImageDraw.Draw(picture)
    if shape == "circle":
        box = [x - width / 2, y - height / 2, x + width / 2 - 1 / smooth, y + height / 2 - 1 / smooth]
        pen.ellipse([v * smooth for v in box], fill=ink)
    else:
        pen.polygon([((x + dx) * smooth, (y + dy) * smooth) for dx, dy in outline(rng, shape, width, height)], fill=ink)
    if smooth > 1:
        picture = picture.resize((w, h), Image.Resampling.BOX)
    return spoil(rng, picture)


def spoil(rng, picture):
    """Noise or JPEG's losses, sometimes."""
    kind = rng.random()
    if kind < 0.1:
        noise = np.random.default_rng(rng.randrange(2**32)).normal(0, rng.uniform(1, 8), (picture.height, picture.width, 3))
        return Image.fromarray((np.asarray(picture) + noise).clip(0, 255).astype(np.uint8))
    if kind < 0.2:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=rng.randint(60, 95))
        return Image.open(file).convert("RGB")
    return picture


def pool(rng, count, side):
    """Pictures as the tower sees them, and the color and shape of each, all kinds equally often."""
    kinds = [(c, s) for c in range(len(COLORS)) for s in range(len(SHAPES))]
    labels = [kinds[i % len(kinds)] for i in range(count)]
    pixels = np.empty((count, side, side, 3), np.uint8)
    for i, (c, s) in enumerate(labels):
        pixels[i] = fit(draw(rng, COLORS[c], SHAPES[s]), side)
    return pixels, labels
