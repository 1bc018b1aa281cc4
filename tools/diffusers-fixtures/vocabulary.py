"""A CLIP byte-pair vocabulary of the real construction, learned from a few sentences of our own."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from pathlib import Path

MERGES = 320
START, END = "<|startoftext|>", "<|endoftext|>"

SENTENCES = """
a photograph of a lighthouse on a rocky island at dawn, soft light, waves, film grain
an oil painting of a small harbour with fishing boats, warm colours, thick brush strokes
a watercolour of a red fox sleeping in the snow under a pine tree
portrait of an old sailor with a grey beard, studio light, highly detailed, sharp focus
a city street at night in the rain, neon signs, reflections, wide angle
an astronaut riding a horse on the beach, a cat wearing a hat, two dogs in the garden
a bowl of fruit on a wooden table, still life, dramatic shadow
a castle in the clouds, fantasy, digital art, trending, ultra detailed, 4k, 8k
isn't it what we've been told, they're here, i'm sure you'll like it, he'd go, it's there
blurry, low quality, bad anatomy, extra fingers, watermark, text, ugly, deformed
the quick brown fox jumps over the lazy dog while the five boxing wizards jump quickly
café crème, déjà vu, über, naïve, señor, año, straße, привет мир, こんにちは 世界, 你好
"""


def byte_symbols() -> list[str]:
    """One printable character for each byte, printable bytes first, in the order that CLIP numbers them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(byte) for byte in printable] + [chr(0x100 + n) for n in range(256 - len(printable))]


@functools.cache
def _symbol_of_byte() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return dict(zip(printable + rest, byte_symbols()))


@functools.cache
def merges() -> list[tuple[str, str]]:
    """The most frequent pairs, one after the other; ties go by the alphabet."""
    counts = Counter(re.findall(r"'(?:s|t|re|ve|m|ll|d)|[^\W\d_]+|\d|[^\s\w]+", SENTENCES.lower()))
    words = {}
    for word, count in counts.items():
        symbols = [_symbol_of_byte()[byte] for byte in word.encode()]
        words[(*symbols[:-1], symbols[-1] + "</w>")] = count
    learned = []
    while len(learned) < MERGES:
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        learned.append(best)
        words = {_merged(word, best): count for word, count in words.items()}
    return learned


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    out: list[str] = []
    for symbol in word:
        if out and (out[-1], symbol) == pair:
            out[-1] += symbol
        else:
            out.append(symbol)
    return tuple(out)


@functools.cache
def vocabulary() -> dict[str, int]:
    """Bytes, bytes that end a word, merges, and the two marks, numbered in this order."""
    singles = byte_symbols()
    entries = [*singles, *(s + "</w>" for s in singles), *(a + b for a, b in merges()), START, END]
    return {entry: number for number, entry in enumerate(entries)}


def size() -> int:
    return len(vocabulary())


def write(folder: Path) -> None:
    """vocab.json and merges.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocabulary(), ensure_ascii=False), encoding="utf-8")
    lines = ["#version: 0.2", *(f"{a} {b}" for a, b in merges())]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
