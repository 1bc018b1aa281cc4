"""Writes a projector for sounds with random weights: `sound.py OUT [--kind ultravox] [--width 96]`.

`--kind` is `ultravox`, `voxtral`, `gemma4a`, or `gemma4u`, which is for pictures and sounds, as that of Gemma 4 12B. The projector of Ultravox joins four frames where its own join eight: with eight, llama.cpp counts one
token less than it computes, and ends the process. So it does with Voxtral, which joins four after it has halved their number.

`--width` is that of the text model. What a model answers with it is noise, but it depends on the sound: the engine's tests compare replies.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np

WIDTH, HEADS, FFN, FRAMES, STACK = 32, 2, 64, 1500, 4
# Channels of the convolutions before the layers of Gemma 4.
CHANNELS = (8, 4)
# Of Gemma 4 12B: samples of an embedding, a third of the pixels of its side, and the most embeddings in a row.
SAMPLES, PATCH, ROW = 640, 2, 256


class Projector:
    """Writes the tensors of a projector, with random weights."""

    def __init__(self, out: Path) -> None:
        self.random = np.random.default_rng(1)
        self.writer = gguf.GGUFWriter(out, "clip")

    def settings(self, of: str, width: int, keys: dict[str, int], eps: float) -> None:
        self.writer.add_bool(f"clip.has_{of}_encoder", True)
        usual = {"embedding_length": WIDTH, "feed_forward_length": FFN, "block_count": 1}
        for key, value in {**usual, "projection_dim": width, "attention.head_count": HEADS, **keys}.items():
            self.writer.add_uint32(f"clip.{of}.{key}", value)
        self.writer.add_float32(f"clip.{of}.attention.layer_norm_epsilon", eps)

    def add(self, name: str, *shape: int, kind: type = np.float32) -> None:
        values = self.random.normal(0, 1 / np.sqrt(shape[-1]), shape)
        self.writer.add_tensor(name, values.astype(kind))

    def norm(self, name: str, width: int, has_bias: bool = False) -> None:
        self.writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
        if has_bias:
            self.writer.add_tensor(f"{name}.bias", np.zeros(width, np.float32))

    def linear(self, name: str, rows: int, columns: int, has_bias: bool = False) -> None:
        self.add(f"{name}.weight", rows, columns)
        if has_bias:
            self.writer.add_tensor(f"{name}.bias", np.zeros(rows, np.float32))

    def finish(self) -> None:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def whisper(out: Path, kind: str, width: int) -> None:
    mel = 80
    file = Projector(out)
    file.writer.add_string("clip.projector_type", kind)
    file.settings("audio", width, {"num_mel_bins": mel, "projector.stack_factor": STACK}, 1e-5)
    # llama.cpp computes convolutions with weights of 16 bits.
    file.add("a.conv1d.1.weight", WIDTH, mel, 3, kind=np.float16)
    file.add("a.conv1d.2.weight", WIDTH, WIDTH, 3, kind=np.float16)
    for number in (1, 2):
        file.writer.add_tensor(f"a.conv1d.{number}.bias", np.zeros((WIDTH, 1), np.float32))
    file.add("a.position_embd.weight", FRAMES, WIDTH)
    block = "a.blk.0"
    file.norm(f"{block}.ln1", WIDTH, has_bias=True)
    file.norm(f"{block}.ln2", WIDTH, has_bias=True)
    for name in ("attn_q", "attn_v", "attn_out"):
        file.linear(f"{block}.{name}", WIDTH, WIDTH, has_bias=True)
    file.linear(f"{block}.attn_k", WIDTH, WIDTH)
    file.linear(f"{block}.ffn_up", FFN, WIDTH, has_bias=True)
    file.linear(f"{block}.ffn_down", WIDTH, FFN, has_bias=True)
    file.norm("a.post_ln", WIDTH, has_bias=True)
    if kind == "ultravox":
        file.norm("mm.a.norm_pre", WIDTH * STACK)
        # The activation halves the width.
        file.linear("mm.a.mlp.1", 2 * WIDTH, WIDTH * STACK)
        file.norm("mm.a.norm_mid", WIDTH)
    else:
        file.linear("mm.a.mlp.1", WIDTH, WIDTH * STACK)
    file.linear("mm.a.mlp.2", width, WIDTH)
    file.finish()


def gemma(out: Path, kind: str, width: int) -> None:
    mel = 128
    file = Projector(out)
    file.writer.add_string("clip.projector_type", kind)
    file.settings("audio", width, {"num_mel_bins": mel}, 1e-6)
    before = 1
    for number, channels in enumerate(CHANNELS):
        file.add(f"a.conv1d.{number}.weight", channels, before, 3, 3, kind=np.float16)
        file.norm(f"a.conv1d.{number}.norm", channels)
        before = channels
    # Each convolution halves the bins.
    file.linear("a.input_projection", WIDTH, before * mel // 4)
    block = "a.blk.0"
    for name in ("ffn_norm", "ffn_post_norm", "ffn_norm_1", "ffn_post_norm_1", "attn_pre_norm", "attn_post_norm"):
        file.norm(f"{block}.{name}", WIDTH)
    for name in ("conv_norm", "norm_conv", "ln2"):
        file.norm(f"{block}.{name}", WIDTH)
    for name in ("attn_q", "attn_k", "attn_v", "attn_out", "attn_k_rel"):
        file.linear(f"{block}.{name}", WIDTH, WIDTH)
    file.norm(f"{block}.per_dim_scale", WIDTH // HEADS)
    for number in ("", "_1"):
        file.linear(f"{block}.ffn_up{number}", FFN, WIDTH)
        file.linear(f"{block}.ffn_down{number}", WIDTH, FFN)
    # A gate halves the width.
    file.linear(f"{block}.conv_pw1", 2 * WIDTH, WIDTH)
    file.linear(f"{block}.conv_pw2", WIDTH, WIDTH)
    # Five frames: the kernel sees the current one and four before it.
    file.linear(f"{block}.conv_dw", WIDTH, 5)
    file.linear("a.pre_encode.out", WIDTH, WIDTH, has_bias=True)
    file.linear("mm.a.input_projection", width, WIDTH)
    file.finish()


def gemma_unified(out: Path, _: str, width: int) -> None:
    file = Projector(out)
    none = {"feed_forward_length": 0, "block_count": 0, "attention.head_count": 0}
    file.writer.add_string("clip.audio.projector_type", "gemma4ua")
    file.settings("audio", width, {**none, "embedding_length": SAMPLES, "num_mel_bins": 128}, 1e-6)
    file.linear("mm.a.input_projection", width, SAMPLES)
    file.writer.add_string("clip.vision.projector_type", "gemma4uv")
    file.settings("vision", width, {**none, "image_size": 224, "patch_size": PATCH}, 1e-6)
    file.writer.add_array("clip.vision.image_mean", [0.0, 0.0, 0.0])
    file.writer.add_array("clip.vision.image_std", [1.0, 1.0, 1.0])
    # An embedding is three patches wide and high.
    pixels = 3 * (3 * PATCH) ** 2
    file.linear("v.patch_embd", WIDTH, pixels, has_bias=True)
    file.norm("v.patch_norm.1", pixels, has_bias=True)
    file.norm("v.patch_norm.2", WIDTH, has_bias=True)
    file.norm("v.patch_norm.3", WIDTH, has_bias=True)
    file.add("v.position_embd.weight", 2, ROW, WIDTH)
    file.linear("mm.input_projection", width, WIDTH)
    file.finish()


WRITERS = {"ultravox": whisper, "voxtral": whisper, "gemma4a": gemma, "gemma4u": gemma_unified}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kind", choices=list(WRITERS), default="ultravox")
    parser.add_argument("--width", type=int, default=96)
    args = parser.parse_args()
    WRITERS[args.kind](args.out, args.kind, args.width)


if __name__ == "__main__":
    main()
