"""A language model that keeps its cache as a state."""

from __future__ import annotations

import json

import coremltools as ct
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

from common import Fixture, numpy, seeded, traced

WIDTH, LAYERS, HEADS, KEYS, SIZE, CONTEXT = 48, 2, 4, 2, 12, 64
TEXT = ["the train stands in the station and the rain is green", "the cup was good, the film was not", "we and they at sea"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> Tokenizer:
    """Bytes and pairs of them."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(TEXT * 20, trainer)
    return made


class Norm(nn.Module):
    """By the root of the mean square."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


class Layer(nn.Module):
    """Grouped attention over the cache, and a gated product."""

    def __init__(self, index: int):
        super().__init__()
        self.index = index
        self.q, self.k, self.v = nn.Linear(WIDTH, HEADS * SIZE), nn.Linear(WIDTH, KEYS * SIZE), nn.Linear(WIDTH, KEYS * SIZE)
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False)
        self.norm1, self.norm2 = Norm(), Norm()
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((WIDTH, 96), (WIDTH, 96), (96, WIDTH)))


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary places."""
    left, right = x[..., : SIZE // 2], x[..., SIZE // 2 :]
    return x * cos + torch.cat([-right, left], -1) * sin


class Decoder(nn.Module):
    """A small Llama whose cache is two buffers that become states."""

    def __init__(self, words: int):
        super().__init__()
        self.words = nn.Embedding(words, WIDTH)
        self.layers = nn.ModuleList(Layer(index) for index in range(LAYERS))
        self.norm, self.head = Norm(), nn.Linear(WIDTH, words, bias=False)
        for name in ("keyCache", "valueCache"):
            self.register_buffer(name, torch.zeros(LAYERS, 1, KEYS, CONTEXT, SIZE))
        turns = torch.arange(CONTEXT)[:, None] / 10000 ** (torch.arange(0, SIZE, 2) / SIZE)
        self.register_buffer("cos", torch.cat([turns, turns], -1).cos().half().float(), persistent=False)
        self.register_buffer("sin", torch.cat([turns, turns], -1).sin().half().float(), persistent=False)

    def forward(self, inputIds: torch.Tensor, causalMask: torch.Tensor) -> torch.Tensor:
        x = self.words(inputIds)
        end = causalMask.shape[-1]
        begin = end - inputIds.shape[-1]
        cos, sin = self.cos[begin:end], self.sin[begin:end]
        for layer in self.layers:
            inner, at = layer.norm1(x), layer.index
            query = turned(layer.q(inner).view(1, -1, HEADS, SIZE).transpose(1, 2), cos, sin)
            key = turned(layer.k(inner).view(1, -1, KEYS, SIZE).transpose(1, 2), cos, sin)
            value = layer.v(inner).view(1, -1, KEYS, SIZE).transpose(1, 2)
            self.keyCache[at : at + 1, :, :, begin:end, :] = key[None]
            self.valueCache[at : at + 1, :, :, begin:end, :] = value[None]
            keys = self.keyCache[at, :, :, :end, :].repeat_interleave(HEADS // KEYS, 1)
            values = self.valueCache[at, :, :, :end, :].repeat_interleave(HEADS // KEYS, 1)
            seen = nn.functional.scaled_dot_product_attention(query, keys, values, causalMask)
            x = x + layer.out(seen.transpose(1, 2).reshape(1, -1, HEADS * SIZE))
            inner = layer.norm2(x)
            x = x + layer.down(nn.functional.silu(layer.gate(inner)) * layer.up(inner))
        return self.head(self.norm(x))

    def begin(self) -> None:
        """Forgets everything."""
        self.keyCache.zero_()
        self.valueCache.zero_()


def mask(count: int, past: int) -> torch.Tensor:
    """Zero where a token may look."""
    return torch.triu(torch.full((count, past + count), float("-inf")), past + 1)[None, None]


@torch.no_grad()
def reply(model: Decoder, prompt: list[int], count: int, ends: set[int]) -> list[int]:
    """The most likely tokens after a prompt, at most `n`."""
    model.begin()
    written, new, past = [], prompt, 0
    while len(written) < count:
        logits = model(torch.tensor([new]), mask(len(new), past))[0, -1]
        best = logits.topk(2).values
        if best[0] - best[1] < 1e-2:
            return []  # too near a tie to decide anything
        past, new = past + len(new), [int(logits.argmax())]
        written += new
        if new[0] in ends:
            break
    return written


@torch.no_grad()
def llama() -> None:
    made = tokenizer()
    model = seeded(Decoder(made.get_vocab_size()), "llama", 2.5)
    example = (torch.zeros(1, 2, dtype=torch.int32), torch.zeros(1, 1, 2, 5))
    query, keys = ct.RangeDim(1, CONTEXT, default=1), ct.RangeDim(1, CONTEXT, default=1)
    shape = (LAYERS, 1, KEYS, CONTEXT, SIZE)
    states = [ct.StateType(ct.TensorType(shape=shape, dtype=np.float16), name=name) for name in ("keyCache", "valueCache")]
    script = traced(model, *example)
    model.begin()
    converted = ct.convert(
        script,
        inputs=[ct.TensorType("inputIds", (1, query), np.int32), ct.TensorType("causalMask", (1, 1, query, keys), np.float16)],
        outputs=[ct.TensorType("logits", dtype=np.float16)], states=states, minimum_deployment_target=ct.target.iOS18,
        skip_model_load=True,
    )
    fixture = Fixture("llama", "text-generation")
    fixture.save(converted)
    made.save(str(fixture.model / "tokenizer.json"))
    settings = {"chat_template": TEMPLATE, "bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    (fixture.model / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (fixture.model / "generation_config.json").write_text('{ "eos_token_id": [0, 2], "max_new_tokens": 64 }\n')
    steps, past = [], 0
    model.begin()
    for new in ([5, 9, 40, 77, 12], [3], [200], [17, 4], *([step * 7 % 300] for step in range(20))):
        given = mask(len(new), past)
        logits = model(torch.tensor([new]), given)
        steps.append(({"inputIds": np.array([new]), "causalMask": numpy(given)}, {"logits": numpy(logits)}))
        past += len(new)
    fixture.case("steps", steps, tolerance=2e-3)
    for text in ["the train", "we at sea", "rain", "the film was good", "green cup", "the sea is not the rain", "they and we"]:
        prompt = made.encode(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n").ids
        tokens = reply(model, prompt, 16, {0, 2})
        if not tokens:
            continue
        said = made.decode([token for token in tokens if token not in (0, 2)], skip_special_tokens=True)
        fixture.answer(text, {"prompt": text, "max_tokens": 16}, {"text": said, "tokens": len(tokens)})
    assert len(fixture.answers) >= 2
    fixture.write()


FAMILIES = {"llama": llama}
