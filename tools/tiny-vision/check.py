"""Answers through PyTorch with the two GGUF files: reads nothing else of the training, so it checks the export too.

    check.py TEXT.gguf MMPROJ.gguf PICTURE.png... [--ask QUESTION] [--thinking true|false]
    check.py TEXT.gguf MMPROJ.gguf --count N       the share of right answers, on N new conversations of each kind
"""

import argparse
import random

import gguf
import jinja2
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import chats
import pictures
import vision as shape

ap = argparse.ArgumentParser()
ap.add_argument("text")
ap.add_argument("mmproj")
ap.add_argument("pictures", nargs="*")
ap.add_argument("--ask", default="What color is it?")
ap.add_argument("--thinking", choices=["true", "false"])
ap.add_argument("--count", type=int)
ap.add_argument("--seed", type=int, default=1000)
ap.add_argument("--exact", action="store_true", help="do not round activations to eight bits, as llama.cpp does on a CPU")
args = ap.parse_args()
torch.set_num_threads(1)

reader = gguf.GGUFReader(args.text)
field = lambda key: reader.fields[key].contents()
tokens, merges = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.merges")
tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in merges]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
tokenizer.decoder = decoders.ByteLevel()
chats.add_tokens(tokenizer)
template = jinja2.Environment().from_string(field("tokenizer.chat_template"))
eos = field("tokenizer.ggml.eos_token_id")
values = lambda r: {t.name: torch.tensor(gguf.dequantize(t.data, t.tensor_type)) for t in r.tensors}
text, tower = shape.Text(), shape.Vision()
text.load_state_dict(values(reader))
seen = values(gguf.GGUFReader(args.mmproj))
seen["v.patch_embd.weight"] = seen["v.patch_embd.weight"].flatten(1)
tower.load_state_dict({name.removeprefix("v."): value for name, value in seen.items()})

if not args.exact:
    exact = F.linear

    def rounded(x, weight, bias=None):
        """Blocks of 32 activations share a scale, as they do where llama.cpp multiplies Q8_0."""
        blocks = x.unflatten(-1, (-1, 32))
        scale = (blocks.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-12)
        return exact((torch.round(blocks / scale) * scale).flatten(-2), weight, bias)

    F.linear = rounded


@torch.no_grad()
def reply(parts, pixels, limit=64):
    """Greedy; `parts` are texts and numbers of pictures."""
    encode = chats.Encoder(tokenizer, shape.TOKENS)
    ids, _ = encode(parts, [0] * len(parts))
    ids = torch.tensor(ids)
    x = text.token_embd(ids.clamp(min=0))
    for number in {-1 - i for i in ids.tolist() if i < 0}:
        x[ids == -1 - number] = tower(torch.from_numpy(np.array(pixels[number]))[None])[0].repeat((ids == -1 - number).sum() // shape.TOKENS, 1)
    new, margin = [], 100.0
    while len(new) < limit:
        logits = text.logits(text.hidden(x[None])[0, -1])
        best = logits.topk(2).values
        margin = min(margin, (best[0] - best[1]).item())
        token = logits.argmax().item()
        if token == eos:
            break
        new.append(token)
        x = torch.cat([x, text.token_embd.weight[token][None]])
    return tokenizer.decode(new, skip_special_tokens=False), margin, len(ids)


def ask(content, pixels, **variables):
    """`content`: texts and numbers of pictures, of one message."""
    marked = "".join(p if isinstance(p, str) else f"\x00{p}\x00" for p in content)
    whole = template.render(messages=[{"role": "user", "content": marked}], add_generation_prompt=True, **variables)
    return reply([int(p) if i % 2 else p for i, p in enumerate(whole.split("\x00"))], pixels)


if args.count is None:
    pixels = [pictures.fit(Image.open(p).convert("RGB"), shape.IMAGE) for p in args.pictures]
    variables = {"enable_thinking": args.thinking == "true"} if args.thinking else {}
    answer, margin, length = ask([*range(len(pixels)), args.ask], pixels, **variables)
    print(answer)
    print(f"({length} tokens of prompt, {shape.TOKENS} of each picture; least difference of the two best logits {margin:.2f})")
    raise SystemExit

rng = random.Random(args.seed)
pixels, labels = pictures.pool(rng, 3600, shape.IMAGE)  # no picture of the training: another seed


def drawn():
    number = rng.randrange(len(labels))
    return number, labels[number]


def drawn_in(w, h):
    """A picture of exactly this size."""
    kept, pictures.sizes = pictures.sizes, lambda _: (w, h)
    kind = (rng.randrange(len(pictures.COLORS)), rng.randrange(len(pictures.SHAPES)))
    pixels.append(pictures.fit(pictures.draw(rng, *(names[k] for names, k in zip((pictures.COLORS, pictures.SHAPES), kind))), shape.IMAGE))
    pictures.sizes = kept
    return len(pixels) - 1, kind


pixels = list(pixels)
wrong = []


def score(title, one):
    right, least = 0, 100.0
    for _ in range(args.count):
        (answer, margin, _), wanted, parts = one()
        right += answer == wanted
        if answer == wanted:
            least = min(least, margin)
        else:
            wrong.append((title, parts, wanted, answer))
    print(f"{title:44} {right:5} of {args.count}  least margin of a right one {least:.2f}", flush=True)


def single(kind, asked, draw=drawn, after=False, suffix="", **variables):
    def one():
        number, (c, s) = draw()
        name = chats.name((c, s))
        wanted = {"color": f"It is {pictures.COLORS[c]}.", "shape": f"It is a {pictures.SHAPES[s]}.", "picture": chats.upper(name) + "."}[kind]
        if suffix or variables.get("enable_thinking"):
            opened = "" if variables.get("enable_thinking") else f"{chats.OPEN}\n"
            wanted = f"{opened}The picture shows {name}.\n{chats.CLOSE}\n\n{wanted}"
        gap = rng.choice(["", "\n"])
        content = [asked + suffix, gap, number] if after else [number, gap, asked + suffix]
        return ask(content, pixels, **variables), wanted, content
    return one


def pair(asked):
    def one():
        (a, first), (b, second) = drawn(), drawn()
        gap = rng.choice(["", "\n"])
        content = [a, gap, b, gap, asked]
        return ask(content, pixels), f"{chats.upper(chats.name(first))} and {chats.name(second)}.", content
    return one


def plain(pick, suffix="", **variables):
    def one():
        asked, wanted, thought = pick()
        if suffix or variables.get("enable_thinking"):
            opened = "" if variables.get("enable_thinking") else f"{chats.OPEN}\n"
            wanted = f"{opened}{thought}\n{chats.CLOSE}\n\n{wanted}"
        return ask([asked + suffix], pixels, **variables), wanted, asked
    return one


def add():
    a = rng.randint(1, 8)
    b = rng.randint(1, 9 - a)
    one, two, total = (chats.NUMBERS[n - 1] for n in (a, b, a + b))
    return f"What is {one} and {two}?", f"{chats.upper(total)}.", f"{chats.upper(one)} and {two} make {total}."


def unseen():
    return rng.choice(["What color is it?", "What shape is it?", "Describe the picture."]), "I see no picture.", "There is no picture."


def any_conversation():
    parts, _ = chats.conversation(rng, drawn)
    return reply(parts[:-1], pixels), parts[-1].removesuffix(chats.END), parts[:-1]


COLOR, SHAPE, PICTURE = "What color is it?", "What shape is it?", "Describe the picture."
score(COLOR, single("color", COLOR))
score(SHAPE, single("shape", SHAPE))
score(PICTURE, single("picture", PICTURE))
for size in [(48, 48), (64, 48), (200, 150), (37, 91), (640, 480), (16, 16)]:
    score(f"{PICTURE} {size[0]}x{size[1]}", single("picture", PICTURE, lambda: drawn_in(*size)))
score(f"{COLOR} (picture after the text)", single("color", COLOR, after=True))
score(f"{COLOR} Think.", single("color", COLOR, suffix=" Think."))
score(f"{SHAPE} enable_thinking=true", single("shape", SHAPE, enable_thinking=True))
score(f"{COLOR} enable_thinking=false", single("color", COLOR, enable_thinking=False))
score("Which pictures? (two)", pair("Which pictures?"))
score("Describe the pictures. (two)", pair("Describe the pictures."))
score("about a picture, without one", plain(unseen))
score("What is two and three?", plain(add))
score("What is two and three? Think.", plain(add, " Think."))
score("What is two and three? enable_thinking=true", plain(add, enable_thinking=True))
score("any conversation of the training's kinds", any_conversation)
for title, parts, wanted, answer in wrong[:20]:
    print("wrong:", title, parts, "| wanted", repr(wanted), "| got", repr(answer))
