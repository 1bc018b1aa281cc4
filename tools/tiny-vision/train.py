"""Trains the tokenizer and both networks; writes tokenizer.json, vision.pt and text.pt into --out."""

import argparse
import pathlib
import random
import time

import torch
import torch.nn.functional as F
from torch import nn

import chats
import pictures
import vision as shape

ap = argparse.ArgumentParser()
ap.add_argument("--out", default="out", type=pathlib.Path)
ap.add_argument("--look", type=float, default=2, help="minutes in which the tower learns colors and shapes alone")
ap.add_argument("--minutes", type=float, default=6, help="minutes in which both networks learn to answer")
ap.add_argument("--pool", type=int, default=60000, help="number of pictures")
ap.add_argument("--threads", type=int, default=2)
ap.add_argument("--resume", type=pathlib.Path, help="continue from the tokenizer and weights of this folder, gently")
ap.add_argument("--seed", type=int, default=1)
args = ap.parse_args()
args.out.mkdir(parents=True, exist_ok=True)
torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
rng = random.Random(args.seed)

if args.resume:
    tokenizer = chats.Tokenizer.from_file(str(args.resume / "tokenizer.json"))
else:
    tokenizer = chats.train_tokenizer(shape.llama.VOCAB)
tokenizer.save(str(args.out / "tokenizer.json"))
encode = chats.Encoder(tokenizer, shape.TOKENS)
begin = time.time()
pixels, labels = pictures.pool(rng, args.pool, shape.IMAGE)
pixels, kinds = torch.from_numpy(pixels), torch.tensor(labels)
print(f"{args.pool} pictures in {time.time() - begin:.0f} s", flush=True)

tower, text = shape.Vision(), shape.Text()
if args.resume:
    tower.load_state_dict(torch.load(args.resume / "vision.pt"))
    text.load_state_dict(torch.load(args.resume / "text.pt"))
count = lambda net: sum(p.numel() for p in net.parameters())
print(f"{count(tower)} parameters see, {count(text)} write", flush=True)


def optimizers_for(*nets, scale=1.0):
    """Muon for the matrices inside the networks, AdamW for the rest."""
    named = [item for net in nets for item in net.named_parameters()]
    inner = lambda n, p: p.ndim == 2 and "embd" not in n and "head" not in n
    made = [torch.optim.Muon([p for n, p in named if inner(n, p)], lr=0.02 * scale, momentum=0.95, weight_decay=0.01),
            torch.optim.AdamW([p for n, p in named if not inner(n, p)], lr=0.003 * scale, betas=(0.9, 0.98), weight_decay=0.0)]
    for optimizer in made:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return made


def step_all(made, rate):
    for optimizer in made:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * max(rate, 0.01)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def mirrored(picked):
    """Shapes keep their names in a mirror."""
    picked = picked.flip(1) if rng.random() < 0.5 else picked
    return picked.flip(2) if rng.random() < 0.5 else picked


class Pool(nn.Module):
    """Reads color and shape from a picture's embeddings, only while the tower learns alone."""

    def __init__(self):
        super().__init__()
        self.head_score = nn.Linear(shape.llama.WIDTH, 4)
        self.head_kind = nn.Linear(4 * shape.llama.WIDTH, len(pictures.COLORS) + len(pictures.SHAPES))

    def forward(self, x):
        x = F.rms_norm(x, x.shape[-1:])
        seen = self.head_score(x).softmax(1).transpose(1, 2) @ x
        return self.head_kind(seen.flatten(1)).split([len(pictures.COLORS), len(pictures.SHAPES)], 1)


def look(minutes, size=192):
    head = Pool()
    made = optimizers_for(tower, head)
    start, step, average = time.time(), 0, None
    while (progress := (time.time() - start) / 60 / minutes) < 1:
        pick = torch.randint(len(pixels), (size,))
        color, form = head(tower(mirrored(pixels[pick])))
        loss = F.cross_entropy(color, kinds[pick, 0]) + F.cross_entropy(form, kinds[pick, 1])
        loss.backward()
        step_all(made, min(1, (step + 1) / 40, (1 - progress) / 0.5))
        right = ((color.argmax(1) == kinds[pick, 0]) & (form.argmax(1) == kinds[pick, 1])).float().mean().item()
        average = right if average is None else 0.97 * average + 0.03 * right
        step += 1
        if step % 100 == 0:
            print(f"look {step:5} {time.time() - start:6.0f} s  loss {loss.item():.3f}  right {average:.4f}", flush=True)


def draw():
    number = rng.randrange(len(labels))
    return number, labels[number]


def batches(size, groups=8):
    """Sorted by length, so that little is padding."""
    while True:
        rows = sorted((encode(*chats.conversation(rng, draw)) for _ in range(size * groups)), key=lambda row: len(row[0]))
        # A few very long ones would cost as much as all others.
        rows = [rows[i : i + size] for i in range(0, len(rows), size)]
        rows[-1:] = [rows[-1][: size // 2], rows[-1][size // 2 :]]
        rng.shuffle(rows)
        yield from rows


def loss_of(rows):
    length = max(len(ids) for ids, _ in rows)
    ids, on = torch.zeros(len(rows), length, dtype=torch.long), torch.zeros(len(rows), length, dtype=torch.bool)
    for i, (row, flags) in enumerate(rows):
        ids[i, : len(row)], on[i, : len(row)] = torch.tensor(row), torch.tensor(flags, dtype=torch.bool)
    x = text.token_embd(ids.clamp(min=0))
    at = ids < 0
    if at.any():
        numbers, where = torch.unique(-1 - ids[at], return_inverse=True)
        seen = tower(mirrored(pixels[numbers]))
        # The n-th embedding of a picture in the row is that picture's n-th: rows hold whole pictures.
        place = torch.arange(len(where)) % shape.TOKENS
        x = x.masked_scatter(at[..., None], seen[where, place])
    hidden = text.hidden(x[:, :-1])[on[:, 1:]]
    return F.cross_entropy(text.logits(hidden), ids[:, 1:][on[:, 1:]])


def save():
    torch.save(tower.state_dict(), args.out / "vision.pt")
    torch.save(text.state_dict(), args.out / "text.pt")


if args.look > 0 and not args.resume:
    look(args.look)
made = optimizers_for(tower, text, scale=0.7 if args.resume else 1.0)
# The tower has learnt already; the text's steps would be too large for it at first.
start = last = time.time()
step, average = 0, None
for rows in batches(64):
    progress = (time.time() - start) / 60 / args.minutes
    if progress >= 1:
        break
    loss = loss_of(rows)
    loss.backward()
    step_all(made, min(1, (step + 1) / 40, (1 - progress) / 0.6))
    step += 1
    average = loss.item() if average is None else 0.98 * average + 0.02 * loss.item()
    if step % 50 == 0:
        print(f"{step:5} {time.time() - start:6.0f} s  loss {average:.4f}", flush=True)
        if step % 500 == 0:
            save()
save()
print(f"done: {step} steps, {64 * step} conversations at most, loss {average:.4f}", flush=True)
