"""Models that read a text or a sound whole."""

from __future__ import annotations

import coremltools as ct
import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn

from common import Fixture, numpy, random, seeded, traced

WORDS = "the a train film cup was good bad late green stands in station rain is not and we they sea boat sun , . ! ?".split()
WIDTH, LENGTH = 32, 24


def tokenizer() -> Tokenizer:
    """Whole words, framed as BERT frames them."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    made = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made.add_special_tokens(names[:4])
    return made


class Layer(nn.Module):
    """Attention and what follows."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        def split(part: torch.Tensor) -> torch.Tensor:
            return part.view(1, -1, self.heads, self.size).transpose(1, 2)

        scores = split(self.q(x)) @ split(self.k(x)).transpose(-1, -2) / self.size**0.5
        if mask is not None:
            scores = scores + mask
        seen = (torch.softmax(scores, -1) @ split(self.v(x))).transpose(1, 2).reshape(1, -1, self.heads * self.size)
        x = self.norm1(x + self.out(seen))
        return self.norm2(x + self.down(nn.functional.gelu(self.up(x))))


class Bert(nn.Module):
    """Two layers over words and places; masks as infinite halves times zero, as converted models have them."""

    def __init__(self, words: int, length: int):
        super().__init__()
        self.words, self.places = nn.Embedding(words, WIDTH), nn.Embedding(length, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Layer(WIDTH, 4) for _ in range(2))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        places = torch.arange(input_ids.shape[1])
        x = self.norm(self.words(input_ids) + self.places(places)[None])
        hidden = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, hidden)
        return x


def bert(name: str, flexible: bool) -> None:
    made = tokenizer()
    model = seeded(Bert(made.get_vocab_size(), LENGTH), "bert", 1.5)
    length = ct.RangeDim(1, LENGTH, default=8) if flexible else LENGTH
    example = torch.ones(1, 8 if flexible else LENGTH, dtype=torch.int32)
    converted = ct.convert(
        traced(model, example, example),
        inputs=[ct.TensorType(given, (1, length), np.int32) for given in ("input_ids", "attention_mask")],
        outputs=[ct.TensorType("last_hidden_state")], minimum_deployment_target=ct.target.iOS17,
    )
    fixture = Fixture(name, "feature-extraction", normalize=True)
    fixture.save(converted)
    made.save(str(fixture.model / "tokenizer.json"))
    for index, text in enumerate(["the train was late , and the rain was bad .", "a green boat"]):
        ids = made.encode(text).ids
        count = len(ids)
        if not flexible:
            ids = ids + [0] * (LENGTH - count)
        mask = [1] * count + [0] * (len(ids) - count)
        states = model(torch.tensor([ids]), torch.tensor([mask]))
        given = {"input_ids": np.array([ids]), "attention_mask": np.array([mask])}
        fixture.case(f"text{index}", [(given, {"last_hidden_state": numpy(states)})])
        vector = states[0, :count].mean(0)
        vector = numpy(vector / vector.norm()).tolist()
        fixture.answer(f"text{index}", {"input": text}, {"embeddings": [vector], "dimensions": WIDTH}, tolerance=2e-3)
    fixture.write()


class Hearer(nn.Module):
    """The half of Whisper that listens."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(20, WIDTH, 3, 1, 1), nn.Conv1d(WIDTH, WIDTH, 3, 2, 1)
        self.places = nn.Parameter(torch.zeros(30, WIDTH))
        self.layers = nn.ModuleList(Layer(WIDTH, 4) for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = nn.functional.gelu(self.second(nn.functional.gelu(self.first(mel))))
        x = x.transpose(1, 2) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def whisper() -> None:
    model = seeded(Hearer(), "whisper", 1.5)
    mel = torch.from_numpy(random("mel", 1, 20, 60))
    converted = ct.convert(
        traced(model, mel), inputs=[ct.TensorType("logmel", mel.shape)], outputs=[ct.TensorType("encoded")],
        minimum_deployment_target=ct.target.iOS16,
    )
    fixture = Fixture("whisper-encoder")
    fixture.save(converted)
    fixture.case("noise", [({"logmel": numpy(mel)}, {"encoded": numpy(model(mel))})])
    fixture.write()


FAMILIES = {
    "bert-static": lambda: bert("bert-static", False),
    "bert-dynamic": lambda: bert("bert-dynamic", True),
    "whisper-encoder": whisper,
}
