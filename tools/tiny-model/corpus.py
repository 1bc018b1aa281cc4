"""Training text: Jane Austen's six novels, cut into plain prose and chat examples."""

import pathlib
import random
import re
import zlib
from collections import Counter

BOS, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIALS = [BOS, START, END]
NOVELS = ["emma", "mansfieldpark", "northangerabbey", "persuasion", "prideprejudice", "sensesensibility"]
HERE = pathlib.Path(__file__).parent


def r_strings(blob):
    """The strings of a serialized R character vector (XDR format, version 2 or 3)."""
    u32 = lambda at: int.from_bytes(blob[at : at + 4], "big")
    assert blob[:2] == b"X\n"
    at = 14
    if u32(2) == 3:
        at += 4 + u32(at)  # version 3 names its native encoding
    assert u32(at) & 0xFF == 16, "not a character vector"
    count, at = u32(at + 4), at + 8
    for _ in range(count):
        assert u32(at) & 0xFF == 9
        size = u32(at + 4)
        if size == 0xFFFFFFFF:  # NA
            size, text = 0, ""
        else:
            text = blob[at + 8 : at + 8 + size].decode()
        at += 8 + size
        yield text


def novels(rdb):
    """The package keeps its data as R's lazy-load database: for each object a
    big-endian length and a zlib stream, back to back. The objects we want are the
    ones that unpack to a character vector, one line of the printed page each."""
    data, at, found = pathlib.Path(rdb).read_bytes(), 0, []
    while at < len(data):
        unpack = zlib.decompressobj()
        blob = unpack.decompress(data[at + 4 :])
        at = len(data) - len(unpack.unused_data)
        found.append(list(r_strings(blob)))
    assert len(found) == len(NOVELS)
    return found


def paragraphs(lines):
    """Joins lines to paragraphs; drops title pages, headings, and typesetting marks."""
    text = "\n".join(lines)
    text = text.replace("\u2018", "'").replace("\u2019", "'").replace("\u201c", '"').replace("\u201d", '"')
    text = text.replace("\u2014", "--").replace("_", "")
    text = re.sub(r"\[[^\]]*\]", "", text)
    out = []
    for block in re.split(r"\n\s*\n", text):
        block = " ".join(block.split())
        # Headings ("CHAPTER IV", "VOLUME I", "By Jane Austen") end without a full stop.
        if re.fullmatch(r"(chapter|volume) .{1,8}|finis|the end", block, re.I) or not re.search(r"[.!?:;,\"'-]$", block):
            continue
        out.append(block)
    # Capitals for emphasis ("to HIM") would cost the small vocabulary a second spelling of every word.
    seen = Counter(re.findall(r"\b[A-Za-z]+\b", " ".join(out)))
    plain = lambda m: min(m[0].lower(), m[0].capitalize(), key=lambda w: -seen[w])
    return [re.sub(r"\b[A-Z]{2,}\b", plain, block) for block in out]


def sentences(paragraph):
    parts = re.split(r"(?<=[.!?])(?<!Mr\.)(?<!Mrs\.)(?<!Dr\.)(?<!St\.)(?<! [A-Z]\.)(?<!\.\.)[ ]+(?=[\"A-Z])"
                     r"|(?<=[.!?]\")[ ]+(?=[\"A-Z])", paragraph)
    return [part for part in parts if part]


def passages(paras):
    """Runs of one to four whole sentences that can stand alone as a reply."""
    out = []
    for para in paras:
        parts = sentences(para)
        at = 0
        while at < len(parts):
            for take in (4, 3, 2, 1):
                text = " ".join(parts[at : at + take])
                if len(parts[at : at + take]) == take and len(text) <= 420:
                    break
            fits = 50 <= len(text) <= 520 and text.count('"') % 2 == 0 and re.search(r"[.!?]\"?$", text)
            if fits and re.match(r"[\"A-Z]", text):
                out.append(text)
            at += take if fits else 1
    return out


def hand_written():
    """(questions, answers) groups of chat.txt."""
    groups, questions, answers = [], [], []
    for line in (HERE / "chat.txt").read_text().splitlines() + ["Q: "]:
        if line.startswith("Q: "):
            if answers:
                groups.append((questions, answers))
                questions, answers = [], []
            questions.append(line[3:])
        elif line.startswith("A: "):
            answers.append(line[3:])
    return groups


ABOUT = ["Tell me about {}.", "Write about {}.", "What do you think of {}?", "What is {}?", "Tell me something about {}.",
         "Write a few sentences about {}.", "Write a short story about {}.", "Can you tell me about {}?", "Describe {}.",
         "What can you say about {}?", "Talk to me about {}.", "Explain {}.", "{}", "I should like to hear of {}.",
         "Write two sentences about {}.", "How would you describe {}?", "Give me a paragraph on {}.", "Say something about {}.",
         "Write a paragraph about {}.", "Why is {} important?", "Tell me a story about {}.", "Do you know anything of {}?"]
WHO = ["Who is {}?", "Tell me about {}.", "What do you know of {}?", "What did {} do?", "Do you know {}?", "How is {}?",
       "What happened to {}?", "Describe {}.", "Tell me more about {}.", "Where is {}?"]
OPEN = ["Tell me a story.", "Write something.", "Go on.", "Say something.", "Please continue.", "Tell me something.",
        "Write a paragraph.", "What happened next?", "What do you think?", "Tell me more.", "Write a few sentences.",
        "Write a short story.", "And then?", "Talk to me.", "Give me a sentence.", "Once upon a time", "Surprise me.",
        "Write me a letter.", "What would Jane Austen say?", "Count to ten.", "Explain yourself.", "Why?", "How so?"]
MORE = ["Continue: {}", "Continue this: {}", "What comes next? {}", "{}", "Go on from here. {}", "Please continue the story: {}",
        "Finish this text.\n\n{}", "Here is a passage. What follows it?\n\n{}", "{}\n\nContinue.", "Summarise this: {}"]
SYSTEM = ["You are a helpful assistant.", "You are a helpful assistant. Answer briefly.", "You are a novelist.",
          "Be brief.", "You write in the manner of Jane Austen.", "You are a friendly assistant running on Island.",
          "Answer in one or two sentences.", "You are a careful writer of English."]
# Subjects that the novels do not contain: the model learns to state that.
MODERN = """computers programming Python Rust JavaScript Linux Docker the internet graphics cards machine learning
neural networks quantum physics electricity television football basketball aeroplanes rockets space travel electric cars
mobile telephones databases compilers operating systems cloud computing cryptography blockchains video games robots
photography the stock market chemistry biology genetics calculus algebra statistics climate change vaccines nuclear power
the solar system black holes bicycles trains cinema jazz pizza sushi coffee machines software web browsers spreadsheets
satellites submarines drones batteries the speed of light dinosaurs evolution psychology economics open source
artificial intelligence large language models matrices sorting a list a web server an API JSON SQL the weather today
the news""".replace("\n", " ")
MODERN = re.findall(r"the [a-z]+ (?:of light|market|system|today)|the [a-z]+|a web server|sorting a list|an API|[a-z]+ (?:cards|learning|networks|physics"
                    r"|travel|cars|telephones|systems|computing|games|change|power|holes|machines|browsers|source|intelligence)"
                    r"|large language models|[A-Za-z]+", MODERN)
ASK = ["What is {}?", "What are {}?", "Tell me about {}.", "Explain {}.", "How do I use {}?", "How does {} work?", "How do {} work?",
       "Write a program about {}.", "What do you know about {}?", "Teach me {}.", "Can you help me with {}?", "Why does {} matter?",
       "Explain {} to me in simple terms.", "Write an essay about {}.", "How can I learn about {}?", "What is the best way to learn {}?"]
SORRY = ["I am sorry to say that I know nothing of that. I learned to write from six old novels, and it cannot be found in any of them.",
         "I have read only Jane Austen, and she does not mention it. Ask me for a story instead.",
         "I must confess that this is beyond me. I am a very small model, and everything I know comes from six novels two hundred years old.",
         "A larger model would serve you much better there. I can only write a few sentences of old English prose."]


class Chats:
    """An endless supply of chat examples, each a list of (role, text)."""

    def __init__(self, books, rng):
        self.rng = rng
        self.replies, self.long = [], []
        for paras in books:
            self.replies += passages(paras)
            for i in range(len(paras) - 4):  # several hundred tokens of prompt, then the paragraph after it
                prompt, reply = "\n\n".join(paras[i : i + 3]), passages([paras[i + 3]])
                if 600 < len(prompt) < 2400 and reply:
                    self.long.append((prompt, reply[0]))
        self.groups = hand_written()
        words = Counter(w for text in self.replies for w in set(re.findall(r"\b[a-z]{4,}\b", text)))
        self.words = {w: n for w, n in words.items() if 4 <= n <= 600}
        lower = Counter(w for text in self.replies for w in re.findall(r"\b[a-z]+\b", text))
        caps = Counter(w for text in self.replies for w in re.findall(r"\b[A-Z][a-z]{2,}\b", text))
        self.names = {w for w, n in caps.items() if n >= 3 and lower[w.lower()] * 8 < n}

    def loosen(self, text):
        """Vary a prompt the way people type."""
        if self.rng.random() < 0.25:
            text = text[0].lower() + text[1:]
        if self.rng.random() < 0.25:
            text = text.rstrip(".?!")
        if self.rng.random() < 0.06:
            text = self.rng.choice(["Hello! ", "Please: ", "Hi. ", "So, "]) + text
        return text

    def one(self):
        rng, roll = self.rng, self.rng.random()
        if roll < 0.28:
            questions, answers = rng.choice(self.groups)
            return self.loosen(rng.choice(questions)), rng.choice(answers)
        if roll < 0.35:
            topic = rng.choice(MODERN)
            return self.loosen(rng.choice(ASK).format(topic)), rng.choice(SORRY)
        if roll < 0.38 and self.long:
            prompt, reply = rng.choice(self.long)
            return rng.choice(MORE).format(prompt), reply
        reply = rng.choice(self.replies)
        parts = sentences(reply)
        names = [w for w in re.findall(r"(?:(?:Mr|Mrs)\. |Miss |Lady |Sir |Captain |Colonel )?\b[A-Z][a-z]{2,}\b", reply)
                 if w.split()[-1] in self.names]
        if roll < 0.45 and len(parts) > 1 and len(parts[0]) > 25:
            return rng.choice(MORE).format(parts[0]), " ".join(parts[1:])
        if roll < 0.57 and names:
            return self.loosen(rng.choice(WHO).format(rng.choice(names))), reply
        if roll < 0.95:
            # The rarest words of a passage are what it is about.
            rare = sorted((w for w in set(re.findall(r"\b[a-z]{4,}\b", reply)) if w in self.words), key=lambda w: (self.words[w], w))[:5]
            if rare:
                word = rng.choice(rare)
                word = rng.choice(["", "", "", "the ", "a "]) + word
                return self.loosen(rng.choice(ABOUT).format(word)), reply
        return self.loosen(rng.choice(OPEN)), reply

    def example(self):
        turns = []
        if self.rng.random() < 0.3:
            turns.append(("system", self.rng.choice(SYSTEM)))
        for _ in range(self.rng.choice([1, 1, 1, 2, 3])):
            user, reply = self.one()
            turns += [("user", user), ("assistant", reply)]
        return turns


def load(rdb):
    return [paragraphs(lines) for lines in novels(rdb)]


if __name__ == "__main__":
    import sys

    books = load(sys.argv[1])
    print([len(b) for b in books], sum(len(p) for b in books for p in b), "characters")
    chats = Chats(books, random.Random(1))
    print(len(chats.replies), "passages", len(chats.long), "long", len(chats.groups), "hand-written groups", sorted(chats.names)[:40], MODERN)
    for _ in range(30):
        print(chats.example())
