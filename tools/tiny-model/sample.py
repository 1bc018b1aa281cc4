"""Chats with the GGUF file through PyTorch: reads nothing else, so it checks the export too.

    sample.py MODEL.gguf [--temperature T] PROMPT...   replies to each prompt
    sample.py MODEL.gguf --greedy-ids N PROMPT...                the N most likely next ids, as JSON
"""

import argparse
import json

import gguf
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import corpus
import model as shape

ap = argparse.ArgumentParser()
ap.add_argument("gguf")
ap.add_argument("prompts", nargs="+")
ap.add_argument("--temperature", type=float, default=0.0)
ap.add_argument("--seed", type=int, default=1)
ap.add_argument("--limit", type=int, default=160)
ap.add_argument("--greedy-ids", type=int)
args = ap.parse_args()
torch.manual_seed(args.seed)
torch.set_num_threads(1)

reader = gguf.GGUFReader(args.gguf)
field = lambda key: reader.fields[key].contents()
tokens, merges = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.merges")
tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in merges]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens(corpus.SPECIALS)
net = shape.Llama()
net.load_state_dict({t.name: torch.tensor(gguf.dequantize(t.data, t.tensor_type)) for t in reader.tensors})
eos = field("tokenizer.ggml.eos_token_id")


@torch.no_grad()
def generate(prompt, limit, stop=True):
    ids = tokenizer.encode(f"{corpus.START}user\n{prompt}{corpus.END}\n{corpus.START}assistant\n").ids
    first = len(ids)
    while len(ids) < min(first + limit, shape.CONTEXT):
        logits = net.logits(net(torch.tensor([ids]))[0, -1])
        if args.temperature:
            token = torch.multinomial((logits / args.temperature).softmax(-1), 1).item()
        else:
            token = logits.argmax().item()
        if stop and token == eos:
            break
        ids.append(token)
    return ids[:first], ids[first:]


for prompt in args.prompts:
    if args.greedy_ids:
        asked, reply = generate(prompt, args.greedy_ids, stop=False)
        print(json.dumps({"prompt": prompt, "prompt_ids": asked, "reply_ids": reply}))
    else:
        print(f"> {prompt}\n{tokenizer.decode(generate(prompt, args.limit)[1])}\n", flush=True)
