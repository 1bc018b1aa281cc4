"""Writes GGUF files with random weights and the exact shapes of real models, for benchmarks.

Speed and memory depend on shapes and on quantisation layouts, not on what the weights say, so
these files measure as the real ones do without downloading anything. Their output is noise.
"""

import argparse
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q

SHAPES = {
    # name: architecture, layers, width, feed-forward, heads, kv heads, vocabulary, rope base, context, rms eps
    "qwen2.5-0.5b": dict(arch="qwen2", layers=24, width=896, ffn=4864, heads=14, kv=2, vocab=151936, rope=1e6, context=32768, eps=1e-6),
    "llama-3.2-1b": dict(arch="llama", layers=16, width=2048, ffn=8192, heads=32, kv=8, vocab=128256, rope=5e5, context=131072, eps=1e-5),
    "llama-3.1-8b": dict(arch="llama", layers=32, width=4096, ffn=14336, heads=32, kv=8, vocab=128256, rope=5e5, context=131072, eps=1e-5),
    "xs": dict(arch="llama", layers=6, width=288, ffn=768, heads=6, kv=6, vocab=32000, rope=1e4, context=2048, eps=1e-5),
}
BLOCK = {Q.Q8_0: 32, Q.Q5_0: 32, Q.Q4_K: 256, Q.Q6_K: 256}
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def half(values):
    """The bytes of an array of fp16, two columns each."""
    return values.astype("<f2").view(np.uint8).reshape(len(values), 2)


def blocks(kind, rows, cols, rng):
    """Random codes under scales chosen for a standard deviation of about cols**-0.5,
    so that activations stay finite through the depth of the network."""
    count, std = rows * cols // BLOCK[kind], cols**-0.5
    size = gguf.GGML_QUANT_SIZES[kind][1]
    raw = np.frombuffer(rng.bytes(count * size), np.uint8).reshape(count, size).copy()
    spread = rng.uniform(0.8, 1.2, count)
    if kind == Q.Q8_0:  # d, 32 signed bytes: uniform codes have deviation 74
        raw[:, 0:2] = half(spread * std / 74)
    elif kind == Q.Q5_0:  # d, 4 bytes of high bits, 16 of low; (0..31) - 16
        raw[:, 0:2] = half(spread * std / 9.2)
    elif kind == Q.Q4_K:  # d, dmin, 12 bytes of six-bit scales and minima, 128 of codes
        # w = d*sc*q - dmin*m with mean q = 7.5 and sc, m uniform in 0..63: dmin = 7.5 d centres it
        d = spread * std / 260
        raw[:, 0:2], raw[:, 2:4] = half(d), half(7.5 * d)
    elif kind == Q.Q6_K:  # 128 low, 64 high, 16 signed scales, d at the end; (0..63) - 32
        raw[:, 208:210] = half(spread * std / (74 * 18.5))
    return raw.reshape(rows, -1)


def q4_k_m(name, layer, layers):
    """llama.cpp's mix: more bits for the embedding, and for v and down in the layers that need them most."""
    if name == "token_embd":
        return Q.Q6_K
    if name in ("attn_v", "ffn_down"):
        eighth = layers // 8
        if layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2:
            return Q.Q6_K
    return Q.Q4_K


def layout(quant, name, cols, layer=0, layers=1):
    if quant == "q8_0":
        return Q.Q8_0
    kind = q4_k_m(name, layer, layers)
    if cols % 256:  # rows that K-quant blocks do not divide fall back
        kind = {Q.Q4_K: Q.Q5_0, Q.Q6_K: Q.Q8_0}[kind]
    return kind


def vocabulary(size):
    """256 byte symbols, a few merges, ChatML's control tokens, and made-up words up to the size."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    symbols = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(rest))]  # GPT-2's byte alphabet
    space = chr(256 + rest.index(32))
    merges = ["t h", "h e", "i n", "e r", "a n", "r e", "o n", "th e", "an d", f"{space} t", f"{space} a",
              f"{space}t he", f"{space}a nd", "o r", "e n"]
    tokens = symbols + [m.replace(" ", "") for m in merges]
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    kinds = [gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * 3
    tokens += specials
    spare = size - len(tokens)
    # Ordinary words, which no merge produces, so that every token a model picks has a text to stream.
    tokens += [f"Ġword{i}" for i in range(spare)]
    kinds += [gguf.TokenType.NORMAL] * spare
    return tokens, kinds, merges


def make(shape_name, quant, target, seed):
    s, rng = SHAPES[shape_name], np.random.default_rng(seed)
    head = s["width"] // s["heads"]
    w = gguf.GGUFWriter(target, s["arch"])
    w.add_name(f"synthetic {shape_name} {quant} (random weights)")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if quant == "q8_0" else gguf.LlamaFileType.MOSTLY_Q4_K_M)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_vocab_size(s["vocab"])
    w.add_context_length(s["context"])
    w.add_embedding_length(s["width"])
    w.add_block_count(s["layers"])
    w.add_feed_forward_length(s["ffn"])
    w.add_head_count(s["heads"])
    w.add_head_count_kv(s["kv"])
    w.add_layer_norm_rms_eps(s["eps"])
    w.add_rope_freq_base(s["rope"])
    w.add_rope_dimension_count(head)
    tokens, kinds, merges = vocabulary(s["vocab"])
    assert len(tokens) == s["vocab"]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2" if s["arch"] == "qwen2" else "gpt-2")
    w.add_token_list(tokens)
    w.add_token_types(kinds)
    w.add_token_merges(merges)
    w.add_bos_token_id(tokens.index("<|endoftext|>"))
    w.add_eos_token_id(tokens.index("<|im_end|>"))
    w.add_pad_token_id(tokens.index("<|endoftext|>"))
    w.add_add_bos_token(False)
    w.add_chat_template(CHATML)

    mix = {}

    def matrix(name, rows, cols, layer=None):
        kind = layout(quant, name, cols, layer or 0, s["layers"])
        mix[kind.name] = mix.get(kind.name, 0) + 1
        full = f"{name}.weight" if layer is None else f"blk.{layer}.{name}.weight"
        w.add_tensor(full, blocks(kind, rows, cols, rng), raw_dtype=kind)

    def vector(name, values):
        w.add_tensor(name, np.asarray(values, np.float32))

    kv = s["kv"] * head
    matrix("token_embd", s["vocab"], s["width"])  # tied: there is no output.weight
    vector("output_norm.weight", np.ones(s["width"]))
    for i in range(s["layers"]):
        vector(f"blk.{i}.attn_norm.weight", np.ones(s["width"]))
        vector(f"blk.{i}.ffn_norm.weight", np.ones(s["width"]))
        matrix("attn_q", s["width"], s["width"], i)
        matrix("attn_k", kv, s["width"], i)
        matrix("attn_v", kv, s["width"], i)
        matrix("attn_output", s["width"], s["width"], i)
        matrix("ffn_gate", s["ffn"], s["width"], i)
        matrix("ffn_up", s["ffn"], s["width"], i)
        matrix("ffn_down", s["width"], s["ffn"], i)
        if s["arch"] == "qwen2":
            for name, size in (("attn_q", s["width"]), ("attn_k", kv), ("attn_v", kv)):
                vector(f"blk.{i}.{name}.bias", rng.normal(0, 0.02, size))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(f"{target}: {pathlib.Path(target).stat().st_size} bytes, matrices {mix}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--shape", choices=SHAPES, required=True)
    ap.add_argument("--quant", choices=["q8_0", "q4_k_m"], default="q8_0")
    ap.add_argument("--out", help="default: synthetic-SHAPE-QUANT.gguf in the current folder")
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    make(args.shape, args.quant, args.out or f"synthetic-{args.shape}-{args.quant}.gguf", args.seed)
