"""Tiny networks of any architecture: sizes by the names that configurations use for them."""

from __future__ import annotations

from typing import Any

import transformers as tf
from transformers import AutoConfig

from place import seeded
from common import Json, randomise

SIZES: Json = {
    "hidden_size": 24, "d_model": 24, "dim": 24, "emb_dim": 24, "n_embd": 24, "embedding_size": 24, "embed_dim": 24,
    "true_hidden_size": 24, "intra_bottleneck_size": 24, "input_embedding_size": 24, "output_embedding_size": 24, "word_embed_proj_dim": 24,
    "num_hidden_layers": 2, "n_layers": 2, "n_layer": 2, "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "num_decoder_layers": 2,
    "num_attention_heads": 2, "n_heads": 2, "n_head": 2, "num_heads": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_key_value_heads": 1,
    "intermediate_size": 32, "hidden_dim": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "d_ff": 32, "d_inner": 32, "n_inner": 32, "ffn_dim": 32,
    "d_kv": 12, "head_dim": 12, "max_position_embeddings": 160, "n_positions": 160, "max_sequence_length": 160, "num_landmarks": 160, "segment_means_seq_len": 160,
    "conv_kernel_size": 3, "attention_window": 8, "block_size": 4, "num_random_blocks": 1, "num_latents": 8, "d_latents": 24,
    "num_self_attends_per_block": 1, "num_blocks": 1, "num_self_attention_heads": 2, "num_cross_attention_heads": 2, "num_feedforward_networks": 1,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 32, "local_attention": 8, "global_attn_every_n_layers": 2,
    "n_layer_decoder": 2, "vocab_size_or_config_json_file": 400, "rotary_dim": 4, "attention_types": [[["global", "local"], 1]], "window_size": 8,
    "max_source_positions": 160, "max_target_positions": 160, "pooler_hidden_size": 24, "max_2d_position_embeddings": 64, "shape_size": 8, "coordinate_size": 4,
    "sliding_window": None,
}


def config(kind: str, **more: Any) -> Any:
    """A configuration of an architecture with small sizes; unknown names are left out."""
    usual = AutoConfig.for_model(kind)
    names = {*usual.to_dict(), *usual.attribute_map}
    sizes = {key: value for key, value in SIZES.items() if key in names}
    for alias, name in usual.attribute_map.items():
        if alias in sizes and name in sizes:
            del sizes[alias]
    if kind == "longformer":
        sizes["attention_window"] = [8, 8]
    return AutoConfig.for_model(kind, **{**sizes, **more})


def network(auto: Any, settings: Any, name: str, gain: float = 1.5, **more: Any) -> Any:
    """A random network of a configuration, in evaluation mode."""
    model = _made(auto, settings)
    return randomise(model, seeded(name), gain=gain, **more)


def _made(auto: Any, settings: Any) -> Any:
    settings._attn_implementation = "eager"
    return auto.from_config(settings, attn_implementation="eager") if hasattr(auto, "from_config") else auto(settings)


__all__ = ["config", "network", "tf"]
