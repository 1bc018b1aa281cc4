"""Writes a projector for sounds with random weights, in the form of Ultravox: `sound.py OUT [--width 96]`.

It joins four frames where Ultravox joins eight: with eight, llama.cpp counts one token less than it computes, and ends the process.

`--width` is that of the text model. What a model answers with it is noise, but it depends on the sound: the engine's tests compare replies.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np

WIDTH, HEADS, FFN, MEL, FRAMES, STACK, EPS = 32, 2, 64, 80, 1500, 4, 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=96)
    args = parser.parse_args()
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(args.out, "clip")
    writer.add_string("clip.projector_type", "ultravox")
    writer.add_bool("clip.has_audio_encoder", True)
    for key, value in {
        "embedding_length": WIDTH,
        "feed_forward_length": FFN,
        "block_count": 1,
        "projection_dim": args.width,
        "attention.head_count": HEADS,
        "num_mel_bins": MEL,
        "projector.stack_factor": STACK,
    }.items():
        writer.add_uint32(f"clip.audio.{key}", value)
    writer.add_float32("clip.audio.attention.layer_norm_epsilon", EPS)

    def add(name: str, *shape: int, kind: type = np.float32) -> None:
        values = random.normal(0, 1 / np.sqrt(shape[-1]), shape)
        writer.add_tensor(name, values.astype(kind))

    def norm(name: str, width: int, has_bias: bool = True) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
        if has_bias:
            writer.add_tensor(f"{name}.bias", np.zeros(width, np.float32))

    def linear(name: str, rows: int, columns: int, has_bias: bool = True) -> None:
        add(f"{name}.weight", rows, columns)
        if has_bias:
            writer.add_tensor(f"{name}.bias", np.zeros(rows, np.float32))

    # llama.cpp computes convolutions with weights of 16 bits.
    add("a.conv1d.1.weight", WIDTH, MEL, 3, kind=np.float16)
    add("a.conv1d.2.weight", WIDTH, WIDTH, 3, kind=np.float16)
    for number in (1, 2):
        writer.add_tensor(f"a.conv1d.{number}.bias", np.zeros((WIDTH, 1), np.float32))
    add("a.position_embd.weight", FRAMES, WIDTH)
    block = "a.blk.0"
    norm(f"{block}.ln1", WIDTH)
    norm(f"{block}.ln2", WIDTH)
    for name in ("attn_q", "attn_v", "attn_out"):
        linear(f"{block}.{name}", WIDTH, WIDTH)
    linear(f"{block}.attn_k", WIDTH, WIDTH, has_bias=False)
    linear(f"{block}.ffn_up", FFN, WIDTH)
    linear(f"{block}.ffn_down", WIDTH, FFN)
    norm("a.post_ln", WIDTH)
    norm("mm.a.norm_pre", WIDTH * STACK, has_bias=False)
    # The activation halves the width.
    linear("mm.a.mlp.1", 2 * WIDTH, WIDTH * STACK, has_bias=False)
    norm("mm.a.norm_mid", WIDTH, has_bias=False)
    linear("mm.a.mlp.2", args.width, WIDTH, has_bias=False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
