"""Writes tokenizer.json and model.pt as one GGUF file: matrices in Q8_0, norms in F32."""

import json
import pathlib
import sys

import gguf
import numpy as np
import torch

import corpus
import model as shape

source, target = pathlib.Path(sys.argv[1]), sys.argv[2]
weights = torch.load(source / "model.pt")
bpe = json.loads((source / "tokenizer.json").read_text())
ids = {**bpe["model"]["vocab"], **{t["content"]: t["id"] for t in bpe["added_tokens"]}}
tokens = sorted(ids, key=ids.get)
assert [ids[t] for t in tokens] == list(range(shape.VOCAB))
special = {t: ids[t] for t in corpus.SPECIALS}

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

w = gguf.GGUFWriter(target, "llama")
w.add_name("Island Tiny Chat")
w.add_description("A very small chat model that writes period English, trained from scratch on Jane Austen's six novels.")
w.add_license("CC0-1.0 OR Apache-2.0 OR MIT")
w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
w.add_quantization_version(gguf.GGML_QUANT_VERSION)
w.add_vocab_size(shape.VOCAB)
w.add_context_length(shape.CONTEXT)
w.add_embedding_length(shape.WIDTH)
w.add_block_count(shape.LAYERS)
w.add_feed_forward_length(shape.FFN)
w.add_head_count(shape.HEADS)
w.add_head_count_kv(shape.KV_HEADS)
w.add_layer_norm_rms_eps(shape.EPS)
w.add_rope_freq_base(shape.ROPE_BASE)
w.add_rope_dimension_count(shape.HEAD)

w.add_tokenizer_model("gpt2")
w.add_tokenizer_pre("gpt-2")
w.add_token_list(tokens)
w.add_token_types([gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens])
w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in bpe["model"]["merges"]])
w.add_bos_token_id(special[corpus.BOS])
w.add_eos_token_id(special[corpus.END])
w.add_pad_token_id(special[corpus.BOS])
w.add_add_bos_token(False)
w.add_chat_template(CHATML)

for name, value in weights.items():  # the names are GGUF's already
    value = value.float().numpy()
    if value.ndim == 1:
        w.add_tensor(name, value.astype(np.float32))
    else:
        kind = gguf.GGMLQuantizationType.Q8_0
        w.add_tensor(name, gguf.quantize(value, kind), raw_dtype=kind)
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
print(target, pathlib.Path(target).stat().st_size, "bytes", special)
