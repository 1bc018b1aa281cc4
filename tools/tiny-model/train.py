"""Trains the tokenizer and the model; writes tokenizer.json and model.pt into --out."""

import argparse
import pathlib
import random
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import corpus
import model as shape

ap = argparse.ArgumentParser()
ap.add_argument("rdb", help="janeaustenr/data/Rdata.rdb")
ap.add_argument("--out", default="out", type=pathlib.Path)
ap.add_argument("--minutes", type=float, default=28, help="the learning rate falls to zero at this time")
ap.add_argument("--threads", type=int, default=2)
ap.add_argument("--resume", type=pathlib.Path, help="continue from the tokenizer and weights of this folder, gently")
ap.add_argument("--seed", type=int, default=1)
args = ap.parse_args()
args.out.mkdir(parents=True, exist_ok=True)
torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
rng = random.Random(args.seed)

books = corpus.load(args.rdb)
held_out = [book[-len(book) // 50 :] for book in books]  # the end of each novel measures the loss
books = [book[: -len(book) // 50] for book in books]
chats = corpus.Chats(books, rng)

# Byte-level BPE with GPT-2's splitting rule, which is what tokenizer.ggml.pre = "gpt-2" selects.
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
tokenizer.decoder = decoders.ByteLevel()
ours = [t for q, a in chats.groups for t in q + a * 6] + corpus.SORRY * 6 + corpus.MODERN * 2
ours += ["system\n", "user\n", "assistant\n"] * 500 + (corpus.SYSTEM + corpus.OPEN) * 20
if args.resume:
    tokenizer = Tokenizer.from_file(str(args.resume / "tokenizer.json"))
else:
    tokenizer.train_from_iterator(
        [p for book in books for p in book] + ours,
        trainers.BpeTrainer(vocab_size=shape.VOCAB - len(corpus.SPECIALS), show_progress=False,
                            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.add_special_tokens(corpus.SPECIALS)
assert tokenizer.get_vocab_size() == shape.VOCAB
tokenizer.save(str(args.out / "tokenizer.json"))
encode = lambda text: tokenizer.encode(text).ids


def prose(book):
    return torch.tensor(encode(corpus.BOS + "\n\n".join(book)))


plain, plain_held = [prose(b) for b in books], torch.cat([prose(b) for b in held_out])
sizes = [len(p) for p in plain]
characters = sum(len(p) for b in books for p in b)
print(f"{len(chats.replies)} passages, {sum(sizes)} tokens of prose, {characters / sum(sizes):.2f} characters a token", flush=True)


def chat_window(length):
    """Whole conversations until the window is full. Only replies are learnt."""
    ids, learn = [], []
    while len(ids) <= length:
        prompt = ""
        for role, text in chats.example():
            if role != "assistant":
                prompt += f"{corpus.START}{role}\n{text}{corpus.END}\n"
                continue
            for part, on in ((encode(f"{prompt}{corpus.START}assistant\n"), 0), (encode(text + corpus.END), 1), (encode("\n"), 0)):
                ids += part
                learn += [on] * len(part)
            prompt = ""
    return torch.tensor(ids[: length + 1]), torch.tensor(learn[: length + 1])


def batch(count, length):
    rows, learn = [], []
    for i in range(count):
        if i % 8 < 3:
            book = rng.choices(plain, sizes)[0]
            at = rng.randrange(len(book) - length)
            row, on = book[at : at + length + 1], torch.ones(length + 1, dtype=torch.long)
        else:
            row, on = chat_window(length)
        rows.append(row)
        learn.append(on)
    rows, learn = torch.stack(rows), torch.stack(learn)
    return rows[:, :-1], rows[:, 1:], learn[:, 1:].bool()


net = shape.Llama()
if args.resume:
    net.load_state_dict(torch.load(args.resume / "model.pt"))
matrices = [p for n, p in net.named_parameters() if p.ndim == 2 and "embd" not in n]
others = [p for n, p in net.named_parameters() if p.ndim == 1]
optimizers = [torch.optim.Muon(matrices, lr=0.02, momentum=0.95, weight_decay=0.01),
              torch.optim.AdamW([{"params": [net.token_embd.weight], "lr": 0.004}, {"params": others, "lr": 0.002}],
                                betas=(0.9, 0.95), weight_decay=0.0)]
for optimizer in optimizers:
    for group in optimizer.param_groups:
        group["peak"] = group["lr"]
print(f"{sum(p.numel() for p in net.parameters())} parameters", flush=True)


def loss_of(x, y, on):
    hidden = net(x)[on]
    return F.cross_entropy(net.logits(hidden), y[on])


@torch.no_grad()
def held_loss(length=512):
    rows = plain_held[: len(plain_held) // (length + 1) * (length + 1)].view(-1, length + 1)
    total = [F.cross_entropy(net.logits(net(r[None, :-1])).flatten(0, 1), r[1:]).item() for r in rows]
    return sum(total) / len(total)


def save():
    torch.save(net.state_dict(), args.out / "model.pt")


start = last = saved = time.time()
step = tokens = 0
average = None
while (progress := (time.time() - start) / 60 / args.minutes) < 1:
    # The last part of the time uses windows as long as the context we declare.
    count, length = (8, 512) if progress < 0.85 else (4, shape.CONTEXT)
    x, y, on = batch(count, length)
    loss = loss_of(x, y, on)
    loss.backward()
    rate = min(1, (step + 1) / 40, (1 - progress) / 0.6)
    if args.resume:
        rate = 0.4 * min(1, (step + 1) / 10, 1 - progress)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * max(rate, 0.01)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    step, tokens = step + 1, tokens + x.numel()
    average = loss.item() if average is None else 0.97 * average + 0.03 * loss.item()
    if step % 20 == 0:
        now = time.time()
        print(f"{step:5} {now - start:6.0f} s  {20 * x.numel() / (now - last):6.0f} tokens/s  loss {average:.3f}", flush=True)
        last = now
    if time.time() - saved > 240:
        save()
        saved = time.time()
        print(f"held-out loss {held_loss():.3f} per token", flush=True)
save()
held = held_loss()
print(f"done: {step} steps, {tokens} tokens, {time.time() - start:.0f} s, training loss {average:.3f}, "
      f"held-out prose {held:.3f} per token", flush=True)
