"""Writes the trained pair as GGUF: export.py OUT TEXT.gguf MMPROJ.gguf. Matrices are Q8_0; what is small, or is not
multiplied by a row of 32 values, is F16 or F32."""

import json
import pathlib
import sys

import gguf
import numpy as np
import torch

import chats
import vision as shape

source, text_file, tower_file = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
bpe = json.loads((source / "tokenizer.json").read_text())
ids = {**bpe["model"]["vocab"], **{t["content"]: t["id"] for t in bpe["added_tokens"]}}
tokens = sorted(ids, key=ids.get)
assert [ids[t] for t in tokens] == list(range(shape.llama.VOCAB))

# As Qwen3's: false closes the reasoning before the reply, true opens it, and without it the model reasons if asked.
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}"
    "{% elif enable_thinking is defined and enable_thinking is true %}{{ '<think>\\n' }}{% endif %}"
    "{% endif %}"
)


def add(w, name, value, kind):
    value = value.float().numpy()
    if kind == gguf.GGMLQuantizationType.Q8_0:
        w.add_tensor(name, gguf.quantize(value, kind), raw_dtype=kind)
    else:
        w.add_tensor(name, value.astype(np.float16 if kind == gguf.GGMLQuantizationType.F16 else np.float32))


def finish(w, path):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(path, pathlib.Path(path).stat().st_size, "bytes")


def about(w, name, description):
    w.add_name(name)
    w.add_description(description)
    w.add_license("CC0-1.0 OR Apache-2.0 OR MIT")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)


F32, F16, Q8_0 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.Q8_0
kinds = {t: gguf.TokenType.CONTROL if t in chats.CONTROL else gguf.TokenType.USER_DEFINED if t in chats.ADDED else gguf.TokenType.NORMAL for t in tokens}

llama = shape.llama
w = gguf.GGUFWriter(text_file, "llama")
about(w, "Island Tiny Vision", "A very small model, for tests, that names the color and the shape in a drawn picture.")
w.add_vocab_size(llama.VOCAB)
w.add_context_length(llama.CONTEXT)
w.add_embedding_length(llama.WIDTH)
w.add_block_count(llama.LAYERS)
w.add_feed_forward_length(llama.FFN)
w.add_head_count(llama.HEADS)
w.add_head_count_kv(llama.KV_HEADS)
w.add_layer_norm_rms_eps(llama.EPS)
w.add_rope_freq_base(llama.ROPE_BASE)
w.add_rope_dimension_count(llama.HEAD)
w.add_tokenizer_model("gpt2")
w.add_tokenizer_pre("gpt-2")
w.add_token_list(tokens)
w.add_token_types([kinds[t] for t in tokens])
w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in bpe["model"]["merges"]])
w.add_bos_token_id(ids[chats.PAD])
w.add_eos_token_id(ids[chats.END])
w.add_pad_token_id(ids[chats.PAD])
w.add_add_bos_token(False)
w.add_chat_template(CHATML)
for name, value in torch.load(source / "text.pt").items():  # the names are GGUF's already
    add(w, name, value, F32 if value.ndim == 1 else Q8_0)
finish(w, text_file)

w = gguf.GGUFWriter(tower_file, "clip")
about(w, "Island Tiny Vision, projector", "The vision tower of Island Tiny Vision.")
w.add_type(gguf.GGUFType.MMPROJ)
w.add_string("clip.projector_type", "mlp")
w.add_bool("clip.has_vision_encoder", True)
w.add_bool("clip.use_gelu", True)
w.add_uint32("clip.vision.image_size", shape.IMAGE)
w.add_uint32("clip.vision.patch_size", shape.PATCH)
w.add_uint32("clip.vision.embedding_length", shape.WIDTH)
w.add_uint32("clip.vision.feed_forward_length", shape.FFN)
w.add_uint32("clip.vision.projection_dim", llama.WIDTH)
w.add_uint32("clip.vision.block_count", shape.LAYERS)
w.add_uint32("clip.vision.attention.head_count", shape.HEADS)
w.add_float32("clip.vision.attention.layer_norm_epsilon", shape.EPS)
# LLaVA leaves its last block out; this takes the output of the last one, so that no block is there for nothing.
w.add_array("clip.vision.feature_layer", [shape.LAYERS])
w.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
w.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
for name, value in torch.load(source / "vision.pt").items():
    name = name if name.startswith("mm.") else f"v.{name}"
    if name == "v.patch_embd.weight":  # a convolution, which needs F16 or F32
        add(w, name, value.view(shape.WIDTH, 3, shape.PATCH, shape.PATCH), F16)
    else:
        add(w, name, value, F32 if value.ndim == 1 or name == "v.position_embd.weight" else Q8_0)
finish(w, tower_file)
