"""Models that look at a picture."""

from __future__ import annotations

import base64
import io

import coremltools as ct
import numpy as np
import torch
from PIL import Image
from torch import nn

from common import Fixture, numpy, seeded, traced

SIDE = 32
LABELS = ["cat", "dog", "ship", "tree", 'a "quoted" one', "boat", "cup", "car", "bird", "sun"]
SCALE, BIAS = 1 / 127.5, -1.0


def picture(side: int = SIDE) -> Image.Image:
    """Waves of color."""
    y, x = np.mgrid[0:side, 0:side]
    planes = [127 + 120 * np.sin(x / 3 + y / 5), 127 + 120 * np.cos(x / 4), 127 + 120 * np.sin(y / 2)]
    return Image.fromarray(np.stack(planes, -1).astype(np.uint8))


def png(image: Image.Image) -> str:
    """As it stands in an input."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def pixels(image: Image.Image) -> torch.Tensor:
    """As a model's program gets it: 0 to 255."""
    return torch.from_numpy(np.asarray(image).astype(np.float32)).permute(2, 0, 1)[None]


class Block(nn.Module):
    """Two convolutions and what goes around them."""

    def __init__(self, width: int, out: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.around = nn.Conv2d(width, out, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.norm2(self.second(torch.relu(self.norm1(self.first(x)))))
        return torch.relu(inner + self.around(x))


class Residual(nn.Module):
    """A small residual network that ends in shares of ten labels."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, 2, 3)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.body = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2))
        self.head = nn.Linear(32, len(LABELS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(self.pool(torch.relu(self.stem(x))))
        return torch.softmax(self.head(x.mean((2, 3))), -1)


class Segmenter(nn.Module):
    """Overlapping patches, attention with fewer keys, a head of all stages."""

    def __init__(self, classes: int):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 7, 4, 3)
        self.norm = nn.LayerNorm(16)
        self.reduce = nn.Conv2d(16, 16, 2, 2)
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.up, self.deep, self.down = nn.Linear(16, 32), nn.Conv2d(32, 32, 3, 1, 1, groups=32), nn.Linear(32, 16)
        self.next = nn.Conv2d(16, 32, 3, 2, 1)
        self.head = nn.Conv2d(48, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x)
        height, width = x.shape[2], x.shape[3]
        flat = self.norm(x.flatten(2).transpose(1, 2))
        few = self.reduce(flat.transpose(1, 2).reshape(1, 16, height, width)).flatten(2).transpose(1, 2)
        shares = torch.softmax(self.q(flat) @ self.k(few).transpose(1, 2) / 4, -1)
        flat = flat + shares @ self.v(few)
        inner = self.up(flat).transpose(1, 2).reshape(1, 32, height, width)
        flat = flat + self.down(nn.functional.gelu(self.deep(inner).flatten(2).transpose(1, 2)))
        near = flat.transpose(1, 2).reshape(1, 16, height, width)
        far = nn.functional.interpolate(self.next(near), size=(height, width), mode="bilinear", align_corners=False)
        return self.head(torch.cat([near, far], 1))


class Depth(nn.Module):
    """One plane of depth."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, 2, 1), nn.ConvTranspose2d(8, 1, 4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.two(nn.functional.leaky_relu(self.one(x), 0.1)))[:, 0]


class Larger(nn.Module):
    """A picture of twice the size, 0 to 255."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 16, 3, 1, 1), nn.Conv2d(16, 12, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 255 * torch.sigmoid(nn.functional.pixel_shuffle(self.two(torch.relu(self.one(x))), 2))


def image(side: int = SIDE) -> ct.ImageType:
    """What pictures go in as, their scale in the program."""
    return ct.ImageType("image", (1, 3, side, side), scale=SCALE, bias=[BIAS] * 3)


def resnet() -> None:
    model = seeded(Residual(), "resnet", 2.0)
    given = pixels(picture())
    shares = numpy(model(given * SCALE + BIAS))
    converted = ct.convert(
        traced(model, given), inputs=[image()], classifier_config=ct.ClassifierConfig(LABELS),
        minimum_deployment_target=ct.target.iOS16,
    )
    fixture = Fixture("resnet", "image-classification")
    fixture.save(converted)
    name = converted.get_spec().description.predictedProbabilitiesName
    fixture.case("waves", [({"image": numpy(given)}, {name: shares})])
    ranked = sorted(zip(LABELS, shares[0].tolist()), key=lambda pair: -pair[1])
    scores = [{"label": label, "score": score} for label, score in ranked]
    fixture.answer("waves", {"image": png(picture()), "top_k": 3}, {**scores[0], "scores": scores[:3]}, tolerance=2e-3)
    fixture.write()


def segformer() -> None:
    model = seeded(Segmenter(5), "segformer", 2.0)
    given = pixels(picture())
    logits = model(given * SCALE + BIAS)
    converted = ct.convert(
        traced(model, given), inputs=[image()], outputs=[ct.TensorType("logits")], minimum_deployment_target=ct.target.iOS17,
    )
    fixture = Fixture("segformer", "image-segmentation", labels=["sky", "sea", "sand", "rock", "sun"])
    fixture.save(converted)
    fixture.case("waves", [({"image": numpy(given)}, {"logits": numpy(logits)})])
    fixture.answer("waves", {"image": png(picture())}, {"width": SIDE, "height": SIDE}, has=["segments"])
    fixture.write()


def depth() -> None:
    model = seeded(Depth(), "depth", 2.0)
    given = pixels(picture())
    plane = model(given * SCALE + BIAS)
    converted = ct.convert(
        traced(model, given), inputs=[image()], outputs=[ct.TensorType("depth")], minimum_deployment_target=ct.target.iOS16,
    )
    fixture = Fixture("depth", "depth-estimation")
    fixture.save(converted)
    fixture.case("waves", [({"image": numpy(given)}, {"depth": numpy(plane)})])
    fixture.answer("waves", {"image": png(picture(48))}, {"width": 48, "height": 48}, has=["depth"])
    fixture.write()


def larger() -> None:
    model = seeded(Larger(), "larger", 2.0)
    given = pixels(picture(16))
    result = model(given * SCALE + BIAS)
    converted = ct.convert(
        traced(model, given), inputs=[image(16)], outputs=[ct.ImageType("larger")], minimum_deployment_target=ct.target.iOS16,
    )
    fixture = Fixture("larger", "image-to-image")
    fixture.save(converted)
    fixture.case("waves", [({"image": numpy(given)}, {"larger": numpy(result)})])
    fixture.answer("waves", {"image": png(picture(16))}, {"width": 32, "height": 32}, has=["image"])
    fixture.write()


FAMILIES = {"resnet": resnet, "segformer": segformer, "depth": depth, "larger": larger}
