"""Makes conversations about pictures, as lists of text and numbers of pictures, and their tokens."""

import functools
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from pictures import COLORS, SHAPES

PAD, START, END, OPEN, CLOSE = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"
CONTROL = [PAD, START, END]
ADDED = CONTROL + [OPEN, CLOSE]  # in this order at the end of the vocabulary

NUMBERS = "one two three four five six seven eight nine".split()
# The first question of each kind is the documented one and is asked as often as all others together.
QUESTIONS = {
    "color": ["What colour is it?", "What color is it?", "What colour is the shape?", "What colour?", "Which colour is it?", "What is its colour?"],
    "shape": ["What shape is it?", "What shape?", "Which shape is it?", "What is its shape?", "What is the shape?"],
    "picture": ["Describe the picture.", "What is in the picture?", "What do you see?", "Describe the image.", "What is this?", "Which picture?",
                "What is in this image?", "Describe it.", "Describe this picture.", "What does the picture show?"],
    "pictures": ["Describe the pictures.", "Which pictures?", "What is in the pictures?", "What do you see?", "Describe the images.",
                 "What do the pictures show?"],
}
TALK = [
    (["Hello!", "Hello.", "Hello", "Hi!", "Hi"], "Hello. Show me a picture.", "I am greeted."),
    (["Who are you?", "What are you?", "What can you do?"], "I am a very small model that sees pictures.", "I am asked about myself."),
    (["Thank you.", "Thanks!", "Thank you!"], "You are welcome.", "I am thanked."),
]
UNKNOWN = ["What time is it?", "Where are you?", "Why is the sky blue?", "Tell me a story.", "Who wrote it?", "How old is he?",
           "Write about a walk.", "What is the capital of France?", "Explain it to me.", "How are you?", "When is it?"]
SYSTEMS = ["You are a helpful assistant.", "Answer briefly.", "You see pictures.", "Be brief and polite."]
WORDS = """a about after all also an and any are as at be because been but by can come could day did do down each even find first for from get give
go good had has have he her here him his house how if in into is it just know like long look made make man many may me more most my name never new no
not now of old on only or other our out over people picture place put right said same say see she so some still such take than that the their them then
there these they thing think this time to tree two under up use very want was water way we well were what when where which who will with word work world
would write year you your""".split()


def nonsense(rng, least, most):
    words = [rng.choice(WORDS) for _ in range(rng.randint(least, most))]
    if rng.random() < 0.2:
        words.insert(rng.randrange(len(words) + 1), "".join(chr(rng.choice([rng.randint(33, 126), rng.randint(160, 1200)])) for _ in range(rng.randint(1, 8))))
    text = " ".join(words)
    return (text[0].upper() + text[1:] if rng.random() < 0.7 else text) + rng.choice([".", "?", "!", ""])


def name(kind):
    return f"a {COLORS[kind[0]]} {SHAPES[kind[1]]}"


def listed(items):
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else items[0]


def upper(text):
    return text[0].upper() + text[1:]


def question(rng, seen):
    """A question, its answer and what is thought before it; `seen` are the kinds of the pictures asked about."""
    roll = rng.random()
    if roll < (0.15 if seen else 0.5):
        a = rng.randint(1, 8)
        b = rng.randint(1, 9 - a)
        asked = rng.choice(["What is {} and {}?"] * 3 + ["What is {} plus {}?"]).format(NUMBERS[a - 1], NUMBERS[b - 1])
        total = NUMBERS[a + b - 1]
        return asked, f"{upper(total)}.", f"{upper(NUMBERS[a - 1])} and {NUMBERS[b - 1]} make {total}."
    if roll < (0.18 if seen else 0.65):
        if rng.random() < 0.4:
            asked, answer, thought = rng.choice(TALK)
            return rng.choice(asked), answer, thought
        return rng.choice([rng.choice(UNKNOWN), nonsense(rng, 1, 12)]), "I do not know.", "I do not know this."
    kind = rng.choice(["color", "color", "shape", "picture", "pictures"] if len(seen) < 2 else ["color", "shape", "picture", "pictures", "pictures"])
    asked = QUESTIONS[kind][0] if rng.random() < 0.5 else rng.choice(QUESTIONS[kind])
    if kind == "pictures" and rng.random() < 0.3:
        asked = "Which pictures?"
    if rng.random() < 0.04:
        asked = asked.lower().rstrip("?.")
    if not seen:
        return asked, "I see no picture.", "There is no picture."
    shown = listed([name(k) for k in seen])
    thought = f"The picture shows {shown}." if len(seen) == 1 else f"The pictures show {shown}."
    if kind in ("picture", "pictures"):
        return asked, f"{upper(shown)}.", thought
    facts = [COLORS[c] if kind == "color" else f"a {SHAPES[s]}" for c, s in seen]
    return asked, f"{'It is' if len(seen) == 1 else 'They are'} {listed(facts)}.", thought


def message(rng, text, shown):
    """The parts of a user's message; llama.cpp puts a picture where its content part was."""
    gap = rng.choice(["", "", "\n", "\n", " "])
    shown = [part for picture in shown for part in (picture, gap)]
    roll = rng.random()
    if not shown:
        return [text]
    if roll < 0.68:
        return [*shown, text]
    if roll < 0.9 or len(shown) < 4:
        return [text, gap, *shown[:-1]]
    return [shown[0], gap, text, gap, *shown[2:-1]]


def conversation(rng, draw):
    """Parts and whether each is learnt. `draw` returns the number and the kind of some picture."""
    parts, learn, seen = [], [], []

    def add(on, *new):
        parts.extend(new)
        learn.extend([on] * len(new))

    if rng.random() < 0.25:
        system = rng.choice(SYSTEMS) if rng.random() < 0.5 else nonsense(rng, 1, 40 if rng.random() < 0.9 else 250)
        add(0, f"{START}system\n{system}{END}\n")
    turns = 1 if rng.random() < 0.8 else rng.randint(2, 3)
    for turn in range(turns):
        count = rng.choices([0, 1, 2, 3], [15, 55, 25, 5] if turn == 0 else [70, 25, 5, 0])[0]
        drawn = [draw() for _ in range(count)]
        seen = [kind for _, kind in drawn] or seen  # the question is about the latest pictures
        asked, answer, thought = question(rng, seen)
        add(0, f"{START}user\n")
        thinks, told, last = rng.random() < 0.3, rng.random() < 0.12, turn == turns - 1
        if thinks and last and rng.random() < 0.6 and not told:
            told, asked = None, asked + " Think."
        elif told and rng.random() < 0.3:
            asked += " Think."  # what the template says prevails
        add(0, *message(rng, asked, [number for number, _ in drawn]), f"{END}\n{START}assistant\n")
        if last and told:
            add(0, f"{OPEN}\n\n{CLOSE}\n\n")  # the template's, with enable_thinking = false
        elif last and thinks:
            # With enable_thinking = true the template opens the reasoning; a budget may end it anywhere.
            add(1 if told is None else 0, f"{OPEN}\n")
            if rng.random() < 0.12:
                words = thought.split(" ")
                add(0, " ".join(words[: rng.randrange(len(words))]), f"\n{CLOSE}\n\n")
            else:
                add(1, f"{thought}\n{CLOSE}\n\n")
        add(1, answer + END)
        if not last:
            add(0, "\n")
    return parts, learn


def train_tokenizer(size):
    """Byte-level BPE with GPT-2's splitting rule, which is what tokenizer.ggml.pre = "gpt-2" selects. No two newlines
    are joined: then a text has the same tokens wherever a template or a picture cuts it at one."""
    rng = random.Random(1)
    texts = []
    for _ in range(6000):
        parts, _ = conversation(rng, lambda: (0, (rng.randrange(len(COLORS)), rng.randrange(len(SHAPES)))))
        text = "".join(p if isinstance(p, str) else "\n" for p in parts)
        for token in ADDED:
            text = text.replace(token, "\n")
        texts += text.split("\n")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size - len(ADDED), show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    add_tokens(tokenizer)
    assert tokenizer.get_vocab_size() == size
    return tokenizer


def add_tokens(tokenizer):
    tokenizer.add_tokens([AddedToken(t, special=t in CONTROL, normalized=False) for t in ADDED])


class Encoder:
    """Joins neighbouring texts, as a rendered template does, and leaves -1 - number for each embedding of a picture."""

    def __init__(self, tokenizer, picture_tokens):
        self.text = functools.lru_cache(50000)(lambda text: tokenizer.encode(text, add_special_tokens=False).ids)
        self.picture_tokens = picture_tokens

    def __call__(self, parts, learn):
        ids, on, run = [], [], []
        # A reply is tokenised apart from its prompt, and so is each change between prompt and reply.
        for part, flag in [*zip(parts, learn), (None, None)]:
            if run and not (isinstance(part, str) and flag == run[0][1]):
                new = self.text("".join(p for p, _ in run))
                ids += new
                on += [run[0][1]] * len(new)
                run = []
            if isinstance(part, str):
                run.append((part, flag))
            elif part is not None:
                ids += [-1 - part] * self.picture_tokens
                on += [0] * self.picture_tokens
        return ids, on
