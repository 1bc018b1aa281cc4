"""Writes small models with random weights that embed or rank texts, with what transformers computes from them: `encoders.py OUT`.

Needs `torch` and `transformers` (tools/onnx-fixtures/requirements.txt) besides what the other programs need. A file `NAME.json` has texts with their
vectors, or pairs with their scores.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import gguf
import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast, Qwen3Config, Qwen3Model

from architectures import add
from make import vocabulary

WIDTH, FFN, HEADS, LAYERS, CONTEXT = 64, 128, 2, 2, 64
WORDS = ["ship", "harbour", "the", "is", "repaired", "in", "train", "late", "was", "##ed", "##ing"]
TEXTS = ["The ship is repaired in the harbour.", "late", "Trains, ships: 42!", "the train was late " * 30]
PAIRS = [("Which train was late?", text) for text in TEXTS] + [("late " * 40, "the ship is repaired in the harbour " * 20)]
RERANK = "<|im_start|>query: {query}\nis answered by: {document}<|im_end|>\n<|im_start|>"
# By their names in the library; `i` is the number of the layer.
BERT = {
    "token_embd": "embeddings.word_embeddings",
    "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
    "blk.i.attn_q": "encoder.layer.i.attention.self.query",
    "blk.i.attn_k": "encoder.layer.i.attention.self.key",
    "blk.i.attn_v": "encoder.layer.i.attention.self.value",
    "blk.i.attn_output": "encoder.layer.i.attention.output.dense",
    "blk.i.attn_output_norm": "encoder.layer.i.attention.output.LayerNorm",
    "blk.i.ffn_up": "encoder.layer.i.intermediate.dense",
    "blk.i.ffn_down": "encoder.layer.i.output.dense",
    "blk.i.layer_output_norm": "encoder.layer.i.output.LayerNorm",
}
QWEN3 = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "blk.i.attn_norm": "layers.i.input_layernorm",
    "blk.i.attn_q": "layers.i.self_attn.q_proj",
    "blk.i.attn_k": "layers.i.self_attn.k_proj",
    "blk.i.attn_v": "layers.i.self_attn.v_proj",
    "blk.i.attn_output": "layers.i.self_attn.o_proj",
    "blk.i.attn_q_norm": "layers.i.self_attn.q_norm",
    "blk.i.attn_k_norm": "layers.i.self_attn.k_norm",
    "blk.i.ffn_norm": "layers.i.post_attention_layernorm",
    "blk.i.ffn_gate": "layers.i.mlp.gate_proj",
    "blk.i.ffn_up": "layers.i.mlp.up_proj",
    "blk.i.ffn_down": "layers.i.mlp.down_proj",
}


def rename(weights: dict[str, torch.Tensor], names: dict[str, str]) -> dict[str, torch.Tensor]:
    found = {}
    for ours, theirs in names.items():
        for layer in range(LAYERS):
            for part in ("weight", "bias"):
                tensor = weights.get(f"{theirs.replace('.i.', f'.{layer}.')}.{part}")
                if tensor is not None:
                    found[f"{ours.replace('.i.', f'.{layer}.')}.{part}"] = tensor
    return found


def spread(model: torch.nn.Module) -> torch.nn.Module:
    """Weights from a wide distribution, so that every part of the model changes its output."""
    generator = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        is_norm = "norm" in name.lower() and name.endswith("weight")
        deviation = 0.2 if weight.dim() == 1 else weight.shape[-1] ** -0.5 * 1.5
        weight.data = torch.randn(weight.shape, generator=generator) * deviation + (1.0 if is_norm else 0.0)
    return model.eval()


def write(path: Path, arch: str, settings: dict[str, Any], weights: dict[str, torch.Tensor], tokenizer: Any) -> None:
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("random weights")
    common = {"context_length": CONTEXT, "embedding_length": WIDTH, "block_count": LAYERS, "feed_forward_length": FFN, "attention.head_count": HEADS}
    for key, value in (common | settings).items():
        add(writer, f"{arch}.{key}", value)
    tokenizer(writer)
    for name, tensor in weights.items():
        writer.add_tensor(name, tensor.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def save(path: Path, entries: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")


def word_pieces() -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{letter}" for letter in letters), ".", ",", ":", "!", "?"]


def bert_tokens(writer: gguf.GGUFWriter) -> None:
    pieces = word_pieces()
    plain = lambda piece: piece if piece.startswith("[") else piece[2:] if piece.startswith("##") else f"\u2581{piece}"
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([plain(piece) for piece in pieces])
    writer.add_token_types([gguf.TokenType.CONTROL if piece.startswith("[") else gguf.TokenType.NORMAL for piece in pieces])
    writer.add_token_type_count(1)
    number = pieces.index
    writer.add_bos_token_id(number("[CLS]"))
    writer.add_sep_token_id(number("[SEP]"))
    writer.add_unk_token_id(number("[UNK]"))
    writer.add_pad_token_id(number("[PAD]"))
    writer.add_mask_token_id(number("[MASK]"))


def bert(out: Path) -> None:
    file = out / "vocab.txt"
    file.write_text("\n".join(word_pieces()) + "\n")
    tokenizer = BertTokenizerFast(vocab_file=str(file), model_max_length=CONTEXT)
    file.unlink()
    # One type of tokens, because llama.cpp gives all tokens the first one.
    config = BertConfig(
        vocab_size=len(word_pieces()), hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=FFN,
        max_position_embeddings=CONTEXT, type_vocab_size=1, hidden_act="gelu", num_labels=1,
    )
    settings = {"attention.layer_norm_epsilon": config.layer_norm_eps, "attention.causal": False}
    encode = lambda *texts: {name: value for name, value in tokenizer(*texts, truncation="longest_first", return_tensors="pt").items() if name != "token_type_ids"}

    model = spread(BertModel(config, add_pooling_layer=False))
    write(out / "bert.gguf", "bert", settings | {"pooling_type": 1}, rename(model.state_dict(), BERT), bert_tokens)
    entries = []
    for text in TEXTS:
        states = model(**encode(text)).last_hidden_state[0]
        entries.append({"text": text, "mean": states.mean(0).tolist(), "cls": states[0].tolist()})
    save(out / "bert.json", entries)

    ranker = spread(BertForSequenceClassification(config))
    state = ranker.state_dict()
    weights = rename({name.removeprefix("bert."): tensor for name, tensor in state.items()}, BERT)
    for part in ("weight", "bias"):
        weights |= {f"cls.{part}": state[f"bert.pooler.dense.{part}"], f"cls.output.{part}": state[f"classifier.{part}"]}
    write(out / "bert-rank.gguf", "bert", settings | {"pooling_type": 4}, weights, bert_tokens)
    scores = [ranker(**encode(query, document)).logits.sigmoid().item() for query, document in PAIRS]
    save(out / "bert-rank.json", [{"query": query, "document": document, "score": score} for (query, document), score in zip(PAIRS, scores, strict=True)])


def qwen3(out: Path) -> None:
    tokens, kinds, merges = vocabulary(288)
    # The library requires that both parts of a merge are tokens.
    merges = [merge for merge in merges if all(part in tokens for part in merge.split(" "))]
    eos = tokens.index("<|endoftext|>")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level(tokens, merges))
    config = Qwen3Config(
        vocab_size=len(tokens), hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=1, head_dim=WIDTH // HEADS,
        intermediate_size=FFN, max_position_embeddings=CONTEXT, rope_theta=10000.0,
    )
    model = spread(Qwen3Model(config))
    settings = {
        "attention.head_count_kv": 1,
        "attention.key_length": WIDTH // HEADS,
        "attention.value_length": WIDTH // HEADS,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": 10000.0,
    }

    def write_tokens(writer: gguf.GGUFWriter, *, ends: bool) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(tokens)
        writer.add_token_types(kinds)
        writer.add_token_merges(merges)
        writer.add_eos_token_id(eos)
        writer.add_add_bos_token(False)
        writer.add_add_eos_token(ends)

    states = lambda ids: model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    weights = rename(model.state_dict(), QWEN3)
    write(out / "qwen3-embed.gguf", "qwen3", settings | {"pooling_type": 3}, weights, lambda writer: write_tokens(writer, ends=True))
    entries = []
    for text in TEXTS:
        ids = tokenizer.encode(text)[: CONTEXT - 1] + [eos]
        entries.append({"text": text, "lasttoken": states(ids)[-1].tolist()})
    save(out / "qwen3-embed.json", entries)

    head = torch.randn((2, WIDTH), generator=torch.Generator().manual_seed(2)) * 0.15

    def rank_tokens(writer: gguf.GGUFWriter) -> None:
        write_tokens(writer, ends=False)
        writer.add_string("tokenizer.chat_template.rerank", RERANK)
        writer.add_array("qwen3.classifier.output_labels", ["yes", "no"])

    write(out / "qwen3-rank.gguf", "qwen3", settings | {"pooling_type": 4, "context_length": 256}, weights | {"cls.output.weight": head}, rank_tokens)
    entries = []
    for query, document in [("late?", "the train was late"), ("ship", "harbour"), ("a", "")]:
        ids = tokenizer.encode(RERANK.replace("{query}", query).replace("{document}", document))
        score = (states(ids)[-1] @ head.T).softmax(0)[0].item()
        entries.append({"query": query, "document": document, "score": score})
    save(out / "qwen3-rank.json", entries)


def byte_level(tokens: list[str], merges: list[str]) -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=pairs))
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in tokens if token.startswith("<|")])
    return tokenizer


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("out", type=Path)
    out = asked.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with torch.no_grad():
        bert(out)
        qwen3(out)
    for path in sorted(out.iterdir()):
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
