"""Writes a small model with random weights for each architecture of the catalogue, and for LFM2: `architectures.py OUT [NAME...]`.

They are 64 wide and have the parts of their architecture that decide how a context is kept: sliding windows, shared and recurrent layers, experts.
"""

from __future__ import annotations

import argparse
import zlib
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q

from make import CHATML, vocabulary

WIDTH, FFN, HEADS, KV_HEADS, HEAD, VOCAB, CONTEXT = 64, 128, 2, 1, 32, 288, 256
EXPERTS, USED, EXPERT_FFN = 4, 2, 64
# Of layers with a state instead of a cache.
STATE, STATE_HEADS, GROUPS, KERNEL = 16, 4, 2, 4


class Model:
    """A file that is written: its settings, and its tensors by name."""

    def __init__(self, name: str, arch: str, layers: int = 2) -> None:
        self.arch, self.layers = arch, layers
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.settings: dict[str, Any] = {
            "context_length": CONTEXT,
            "embedding_length": WIDTH,
            "block_count": layers,
            "feed_forward_length": FFN,
            "attention.head_count": HEADS,
            "attention.head_count_kv": KV_HEADS,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": HEAD,
            "rope.freq_base": 10000.0,
        }
        self.tensors: dict[str, tuple[np.ndarray, Q]] = {}
        self.matrix("token_embd.weight", VOCAB, WIDTH)
        self.matrix("output.weight", VOCAB, WIDTH)
        self.norm("output_norm.weight", WIDTH)

    def matrix(self, name: str, *shape: int, kind: Q = Q.Q8_0) -> None:
        """Rows, and columns last; with experts before them."""
        values = self.random.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)
        self.tensors[name] = (values, kind if shape[-1] % 32 == 0 else Q.F16)

    def vector(self, name: str, *shape: int, mean: float = 0.0, deviation: float = 0.1) -> None:
        self.tensors[name] = (self.random.normal(mean, deviation, shape).astype(np.float32), Q.F32)

    def norm(self, name: str, *shape: int) -> None:
        self.vector(name, *shape, mean=1.0)

    def attention(self, layer: int, *, heads: int = HEADS, head: int = HEAD, kv: int = KV_HEADS, norms: bool = False, biases: bool = False, gated: bool = False) -> None:
        block = f"blk.{layer}."
        sizes = {"attn_q": heads * head * (2 if gated else 1), "attn_k": kv * head, "attn_v": kv * head}
        for name, size in sizes.items():
            self.matrix(f"{block}{name}.weight", size, WIDTH)
            if biases:
                self.vector(f"{block}{name}.bias", size)
        self.matrix(f"{block}attn_output.weight", WIDTH, heads * head)
        if norms:
            self.norm(f"{block}attn_q_norm.weight", head)
            self.norm(f"{block}attn_k_norm.weight", head)

    def feed_forward(self, layer: int, suffix: str = "", size: int = FFN) -> None:
        for name, shape in (("gate", (size, WIDTH)), ("up", (size, WIDTH)), ("down", (WIDTH, size))):
            self.matrix(f"blk.{layer}.ffn_{name}{suffix}.weight", *shape)

    def experts(self, layer: int, *, kind: Q = Q.Q8_0, biases: bool = False) -> None:
        block = f"blk.{layer}.ffn_"
        self.settings |= {"expert_count": EXPERTS, "expert_used_count": USED, "expert_feed_forward_length": EXPERT_FFN}
        self.matrix(f"{block}gate_inp.weight", EXPERTS, WIDTH, kind=Q.F32)
        for name, shape in (("gate", (EXPERT_FFN, WIDTH)), ("up", (EXPERT_FFN, WIDTH)), ("down", (WIDTH, EXPERT_FFN))):
            self.matrix(f"{block}{name}_exps.weight", EXPERTS, *shape, kind=kind)
            if biases:
                self.vector(f"{block}{name}_exps.bias", EXPERTS, shape[0])
        if biases:
            self.vector(f"{block}gate_inp.bias", EXPERTS)

    def norms(self, layer: int, *names: str) -> None:
        for name in names:
            self.norm(f"blk.{layer}.{name}.weight", WIDTH)

    def write(self, path: Path, tensors_of_each: int = 0) -> None:
        """Writes one file, or several with this number of tensors each."""
        writer = gguf.GGUFWriter(path, self.arch, split_max_tensors=tensors_of_each)
        # Without its architecture: llama.cpp requires certain tokens of models whose name contains "phi3".
        writer.add_name("random weights")
        for key, value in self.settings.items():
            add(writer, f"{self.arch}.{key}", value)
        tokens, kinds, merges = vocabulary(VOCAB)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(tokens)
        writer.add_token_types(kinds)
        writer.add_token_merges(merges)
        writer.add_bos_token_id(tokens.index("<|endoftext|>"))
        writer.add_eos_token_id(tokens.index("<|im_end|>"))
        writer.add_add_bos_token(False)
        writer.add_chat_template(CHATML)
        for name, (values, kind) in self.tensors.items():
            packed = gguf.quants.quantize(values, kind)
            writer.add_tensor(name, packed, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)


def dense(name: str, arch: str, layers: int = 2, settings: dict[str, Any] | None = None, **attention: bool) -> Model:
    """The usual order: attention and feed-forward, a norm before each."""
    model = Model(name, arch, layers)
    model.settings |= settings or {}
    for layer in range(layers):
        model.norms(layer, "attn_norm", "ffn_norm")
        model.attention(layer, **attention)
        model.feed_forward(layer)
    return model


def phi3(name: str) -> Model:
    model = Model(name, "phi3")
    for layer in range(model.layers):
        model.norms(layer, "attn_norm", "ffn_norm")
        model.matrix(f"blk.{layer}.attn_qkv.weight", (HEADS + 2 * KV_HEADS) * HEAD, WIDTH)
        model.matrix(f"blk.{layer}.attn_output.weight", WIDTH, HEADS * HEAD)
        model.matrix(f"blk.{layer}.ffn_up.weight", 2 * FFN, WIDTH)
        model.matrix(f"blk.{layer}.ffn_down.weight", WIDTH, FFN)
    return model


def qwen3moe(name: str) -> Model:
    model = Model(name, "qwen3moe")
    for layer in range(model.layers):
        model.norms(layer, "attn_norm", "ffn_norm")
        model.attention(layer, norms=True)
        model.experts(layer)
    return model


def gpt_oss(name: str) -> Model:
    model = Model(name, "gpt-oss", 4)
    model.settings |= {"attention.sliding_window": 32, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
    for layer in range(model.layers):
        model.norms(layer, "attn_norm", "post_attention_norm")
        model.attention(layer, biases=True)
        model.vector(f"blk.{layer}.attn_output.bias", WIDTH)
        model.vector(f"blk.{layer}.attn_sinks.weight", HEADS)
        model.experts(layer, kind=Q.MXFP4, biases=True)
    return model


def gemma3(name: str) -> Model:
    model = dense(name, "gemma3", 6, {"attention.sliding_window": 32, "rope.freq_base": 1000000.0}, norms=True)
    for layer in range(model.layers):
        model.norms(layer, "post_attention_norm", "post_ffw_norm")
    return model


def gemma4(name: str, *, is_mixture: bool) -> Model:
    """Every second layer has a window. Small ones share the cache of earlier layers and have embeddings for each layer, the mixture has neither."""
    model = Model(name, "gemma4", 6)
    wide, per_layer = 2 * HEAD, 0 if is_mixture else 64
    windows = [layer % 2 == 0 for layer in range(model.layers)]
    model.settings |= {
        "attention.sliding_window": 32,
        "attention.sliding_window_pattern": windows,
        "attention.shared_kv_layers": 0 if is_mixture else 2,
        "attention.key_length": wide,
        "attention.value_length": wide,
        "attention.key_length_swa": HEAD,
        "attention.value_length_swa": HEAD,
        "rope.dimension_count": wide,
        "rope.dimension_count_swa": HEAD,
        "rope.freq_base": 1000000.0,
        "rope.freq_base_swa": 10000.0,
        "embedding_length_per_layer_input": per_layer,
        "final_logit_softcapping": 30.0,
    }
    factors = np.array([1.0] * (wide // 4) + [1e30] * (wide // 4), np.float32)
    model.tensors["rope_freqs.weight"] = (factors, Q.F32)
    if per_layer:
        model.matrix("per_layer_token_embd.weight", VOCAB, per_layer * model.layers)
        model.matrix("per_layer_model_proj.weight", per_layer * model.layers, WIDTH)
        model.norm("per_layer_proj_norm.weight", per_layer)
    for layer, is_window in enumerate(windows):
        block = f"blk.{layer}."
        model.norms(layer, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        head = HEAD if is_window else wide
        model.attention(layer, head=head, norms=True)
        # Its scores of attention are not scaled, so the weights of a norm are: large random scores amplify what is rounded differently in another batch.
        values, kind = model.tensors[f"{block}attn_q_norm.weight"]
        model.tensors[f"{block}attn_q_norm.weight"] = (values * np.float32(head**-0.5), kind)
        model.feed_forward(layer)
        model.norm(f"{block}layer_output_scale.weight", 1)
        if is_mixture:
            model.experts(layer)
            model.norm(f"{block}ffn_gate_inp.scale", WIDTH)
            model.norms(layer, "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2")
        if per_layer:
            model.matrix(f"{block}inp_gate.weight", per_layer, WIDTH)
            model.matrix(f"{block}proj.weight", WIDTH, per_layer)
            model.norms(layer, "post_norm")
    return model


def qwen35(name: str, *, is_mixture: bool) -> Model:
    """Every second layer has a gated delta net with a state, the others a gated attention with a cache."""
    model = Model(name, name, 4)
    keys, values = STATE * GROUPS, STATE * STATE_HEADS
    model.settings |= {
        "full_attention_interval": 2,
        "rope.dimension_sections": [6, 6, 4, 0],
        "ssm.conv_kernel": KERNEL,
        "ssm.inner_size": values,
        "ssm.state_size": STATE,
        "ssm.time_step_rank": STATE_HEADS,
        "ssm.group_count": GROUPS,
    }
    for layer in range(model.layers):
        block = f"blk.{layer}."
        model.norms(layer, "attn_norm", "post_attention_norm")
        if layer % 2:
            model.attention(layer, norms=True, gated=True)
        else:
            model.matrix(f"{block}attn_qkv.weight", 2 * keys + values, WIDTH)
            model.matrix(f"{block}attn_gate.weight", values, WIDTH)
            model.vector(f"{block}ssm_conv1d.weight", 2 * keys + values, KERNEL, deviation=0.5)
            model.vector(f"{block}ssm_dt.bias", STATE_HEADS)
            model.vector(f"{block}ssm_a", STATE_HEADS, mean=-1.0)
            model.matrix(f"{block}ssm_beta.weight", STATE_HEADS, WIDTH)
            model.matrix(f"{block}ssm_alpha.weight", STATE_HEADS, WIDTH)
            model.norm(f"{block}ssm_norm.weight", STATE)
            model.matrix(f"{block}ssm_out.weight", WIDTH, values)
        if is_mixture:
            model.experts(layer)
            model.settings["expert_shared_feed_forward_length"] = EXPERT_FFN
            model.vector(f"{block}ffn_gate_inp_shexp.weight", WIDTH)
            model.feed_forward(layer, "_shexp", EXPERT_FFN)
        else:
            model.feed_forward(layer)
    return model


GRANITE = {"logit_scale": 0.5, "residual_scale": 0.22, "embedding_scale": 12.0, "attention.scale": 0.1}


def granite_hybrid(name: str, *, is_mixture: bool) -> Model:
    """The last of four layers has attention without positions, the others are of Mamba 2."""
    model = Model(name, "granitehybrid", 4)
    heads_kv = [0, 0, 0, KV_HEADS]
    inner = 2 * WIDTH
    mixed = inner + 2 * STATE
    model.settings |= GRANITE | {
        "attention.head_count_kv": heads_kv,
        "rope.scaling.finetuned": False,
        "ssm.conv_kernel": KERNEL,
        "ssm.inner_size": inner,
        "ssm.state_size": STATE,
        "ssm.time_step_rank": STATE_HEADS,
        "ssm.group_count": 1,
    }
    for layer, heads in enumerate(heads_kv):
        block = f"blk.{layer}."
        model.norms(layer, "attn_norm", "ffn_norm")
        if heads:
            model.attention(layer)
        else:
            model.matrix(f"{block}ssm_in.weight", inner + mixed + STATE_HEADS, WIDTH)
            model.vector(f"{block}ssm_conv1d.weight", mixed, KERNEL, deviation=0.5)
            model.vector(f"{block}ssm_conv1d.bias", mixed)
            model.vector(f"{block}ssm_dt.bias", STATE_HEADS)
            model.vector(f"{block}ssm_a", STATE_HEADS, 1, mean=-1.0)
            model.vector(f"{block}ssm_d", STATE_HEADS, 1, mean=1.0)
            model.norm(f"{block}ssm_norm.weight", 1, inner)
            model.matrix(f"{block}ssm_out.weight", WIDTH, inner)
        if is_mixture:
            model.experts(layer)
            # These experts have the size of the feed-forward network.
            model.settings |= {"feed_forward_length": EXPERT_FFN, "expert_shared_feed_forward_length": EXPERT_FFN}
            model.feed_forward(layer, "_shexp", EXPERT_FFN)
        else:
            model.feed_forward(layer)
    return model


def lfm2(name: str) -> Model:
    """Every second layer has a short convolution with a state, the others attention with a cache."""
    model = Model(name, "lfm2", 4)
    heads_kv = [0, KV_HEADS, 0, KV_HEADS]
    model.settings |= {"attention.head_count_kv": heads_kv, "shortconv.l_cache": 3}
    model.tensors["token_embd_norm.weight"] = model.tensors.pop("output_norm.weight")
    for layer, heads in enumerate(heads_kv):
        block = f"blk.{layer}."
        model.norms(layer, "attn_norm", "ffn_norm")
        if heads:
            model.attention(layer, norms=True)
        else:
            model.vector(f"{block}shortconv.conv.weight", WIDTH, 3, deviation=0.5)
            model.matrix(f"{block}shortconv.in_proj.weight", 3 * WIDTH, WIDTH)
            model.matrix(f"{block}shortconv.out_proj.weight", WIDTH, WIDTH)
        model.feed_forward(layer)
    return model


YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
    "rope.scaling.yarn_beta_fast": 32.0,
    "rope.scaling.yarn_beta_slow": 1.0,
    "rope.scaling.yarn_log_multiplier": 1.0,
    "attention.temperature_scale": 0.1,
}
# By the name of the file; that of the architecture is at its beginning.
MODELS = {
    "llama": lambda name: dense(name, "llama"),
    "qwen2": lambda name: dense(name, "qwen2", biases=True),
    "qwen3": lambda name: dense(name, "qwen3", norms=True),
    "qwen3moe": qwen3moe,
    "qwen3vl": lambda name: dense(name, "qwen3vl", 2, {"rope.dimension_sections": [6, 6, 4, 0], "n_deepstack_layers": 1}, norms=True),
    "qwen35": lambda name: qwen35(name, is_mixture=False),
    "qwen35moe": lambda name: qwen35(name, is_mixture=True),
    "gemma3": gemma3,
    "gemma4": lambda name: gemma4(name, is_mixture=False),
    "gemma4-mixture": lambda name: gemma4(name, is_mixture=True),
    "phi3": phi3,
    "gpt-oss": gpt_oss,
    "mistral3": lambda name: dense(name, "mistral3", 2, YARN),
    "smollm3": lambda name: dense(name, "smollm3", 4),
    "granite": lambda name: dense(name, "granite", 2, GRANITE),
    "granitehybrid": lambda name: granite_hybrid(name, is_mixture=False),
    "granitehybrid-mixture": lambda name: granite_hybrid(name, is_mixture=True),
    "lfm2": lfm2,
}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("out", type=Path)
    asked.add_argument("names", nargs="*", help="some of them")
    asked.add_argument("--split", type=int, default=0, metavar="TENSORS", help="several files with this number of tensors each")
    options = asked.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or MODELS:
        path = options.out / f"{name}.gguf"
        MODELS[name](name).write(path, options.split)
        print(path)


if __name__ == "__main__":
    main()
