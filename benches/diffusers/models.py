"""A repository of Stable Diffusion 1.5's shape and random weights: UNet 860 million, VAE 84, text encoder 123."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from diffusers import AutoencoderKL, PNDMScheduler, UNet2DConditionModel
from safetensors.torch import save_file
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel

SCHEDULER = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "num_train_timesteps": 1000,
    "set_alpha_to_one": False,
    "skip_prk_steps": True,
    "steps_offset": 1,
}
UNET = {"sample_size": 64, "cross_attention_dim": 768, "attention_head_dim": 8}
VAE = {
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (128, 256, 512, 512),
    "layers_per_block": 2,
    "sample_size": 512,
}
TEXT = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "projection_dim": 768,
    "hidden_act": "quick_gelu",
    "vocab_size": 49408,
    "eos_token_id": 2,
    "bos_token_id": 0,
}


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False), encoding="utf-8")


def weights(model: nn.Module, file: Path, kind: torch.dtype, prefix: str = "") -> None:
    """Fills a model that has only shapes so far, and writes it; sizes keep signals as they are."""
    noise = torch.Generator().manual_seed(7)
    tensors = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            sample = torch.randn(parameter.shape, generator=noise)
            if parameter.dim() > 1:
                sample /= parameter[0].numel() ** 0.5
            elif "norm" in path.lower() and name == "weight":
                sample = 1 + 0.1 * sample
            else:
                sample *= 0.02
            tensors[f"{prefix}{path}.{name}"] = sample.to(kind)
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, file, metadata={"format": "pt"})


def tokenizer(folder: Path) -> None:
    """A vocabulary of the real size whose words are bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols = [chr(byte) for byte in printable] + [chr(0x100 + n) for n in range(256 - len(printable))]
    entries = [*symbols, *(symbol + "</w>" for symbol in symbols)]
    entries += [f"unused{n}" for n in range(49406 - len(entries))] + ["<|startoftext|>", "<|endoftext|>"]
    write_json(folder / "vocab.json", {entry: number for number, entry in enumerate(entries)})
    (folder / "merges.txt").write_text("#version: 0.2\n")
    marks = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    write_json(folder / "special_tokens_map.json", marks)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, **marks})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", choices=("float16", "float32"), default="float16")
    asked = parser.parse_args()
    folder, kind = asked.folder, getattr(torch, asked.dtype)
    nets = {"unet": (UNet2DConditionModel, UNET), "vae": (AutoencoderKL, VAE)}
    for name, (model, config) in nets.items():
        with torch.device("meta"):
            net = model(**config)
        weights(net, folder / name / "diffusion_pytorch_model.safetensors", kind)
        told = {key: value for key, value in net.config.items() if key[0] != "_"}
        write_json(folder / name / "config.json", {"_class_name": model.__name__, **told})
    with torch.device("meta"):
        text = CLIPTextModel(CLIPTextConfig(**TEXT))
    weights(text, folder / "text_encoder/model.safetensors", kind, prefix="text_model.")
    write_json(folder / "text_encoder/config.json", {"architectures": ["CLIPTextModel"], "model_type": "clip_text_model", **TEXT})
    PNDMScheduler(**SCHEDULER).save_pretrained(folder / "scheduler")
    tokenizer(folder / "tokenizer")
    index = {
        "_class_name": "StableDiffusionPipeline",
        "feature_extractor": [None, None],
        "requires_safety_checker": False,
        "safety_checker": [None, None],
        "scheduler": ["diffusers", "PNDMScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    write_json(folder / "model_index.json", index)


main()
