#!/usr/bin/env python3
"""Checks the wording of documents, comments and messages, and the paths that documents name.

    scripts/words.py             everything but scripts/words.exclude
    scripts/words.py FILE...     these files, excluded or not

The rules are the forms that CONTRIBUTING.md ("Style") names. In Markdown, code blocks and inline code are not checked; in other
files only comments and string literals are. A line that must use a form ends with `words: ok`.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXCLUDE = ROOT / "scripts/words.exclude"

# What is wrong, and what to write instead.
RULES = [
    (r"\b(?:is|are) none\b", "is invalid, is absent"),
    (r"(?<!there )(?<!there are )(?<!where )\b(?:is|are) no (?!longer\b|more\b|less\b)", "is not a"),
    (r"\bso (?:many|much)\b(?! that)", "this number of, n"),
    (r"\bby (?:itself|themselves)\b", "automatically, separately, alone"),
    (r"\bwho(?:so)?ever\b", "the person, account or program that"),
    (r"\b(?:go|goes|went) before\b", "overrides, precedes"),
    (r"\breckon\w*", "estimate, compute"),
    (r"\bthe (?:least|most|greatest)\b(?= (?:of|that|is|and|in)\b|[,.;:)]|$)", "minimum, maximum"),
    (r"\b(?:least|most) and (?:least|most|greatest)\b", "minimum and maximum"),
    (r"\bask(?:s|ed|ing)? for\b", "request"),
    (r"\b(?:tell|tells|told|telling)\b", "report, state, show"),
    (r"\b(?:say|says|said)\b", "state, contain, report"),
    (r"\b(?:hear|hears|heard|deaf)\b", "receive"),
    (r"\b(?:obey|heed)\w*", "apply, follow"),
    (r"\bwish(?:es|ed)?\b", "request, setting"),
    (r"\bowner's (?:own )?word\b", "the owner's command"),
    (r"\b(?:come|comes|came) to rest\b", "becomes idle"),
    (r"\bgiv(?:e|es|en|ing) way\b", "yield, be evicted"),
    (r"\bkept to\b", "restricted to, pinned to"),
    (r"\bwall(?:s|ed)?\b(?!-clock)", "sandbox"),
    (r"\b(?:seat|shelf|clerk|errand)s?\b", "the field's term"),
    (r"\bmend(?:s|ed|ing)?\b", "fix"),
    (r"\bstrangers?\b", "untrusted, other consumers"),
    (r"\bbelongs? to nobody\b", "is not enrolled"),
    (r"\bwent wrong\b", "failed"),
    (r"\bwanted (?:are|is)\b", "the target is"),
    (r"\bsince then\b", "(no diary of earlier states)"),
    (
        r"\b\w*(?:behaviour|colour|favour|honour|labelled|enrolment)\w*|\b\w*(?:optimi|recogni|normali|quanti|summari|initiali|seriali|authori|"
        r"tokeni|organi|synchroni|minimi|maximi)s(?:e|ed|es|er|ers|ing|ation|ations)\b",
        "American spelling",
    ),
]
RULES = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in RULES]

# Checked at every start, so that a changed rule cannot stop matching unnoticed.
FOUND = [
    "the manifest is none", "this is no UUID", "about so many tokens", "ends by itself", "whoever confirms it",
    "its entry goes before a pin", "memory is reckoned", "the least of all", "asked for", "it tells how far it is",
    "connected but deaf", "the owner's word", "models give way", "kept to one GPU", "walled in", "strangers' jobs",
]
NOT_FOUND = [
    "there is no host", "it is no longer there", "the least recently used", "the most promising model", "wall-clock time",
]

ALLOW = "words: ok"
SUFFIXES = {".md", ".rs", ".py", ".sh", ".toml", ".service", ".timer", ".mjs", ".js", ".cmake"}
FENCE = re.compile(r"^ *(```|~~~)")
INLINE_CODE = re.compile(r"(`+).*?\1")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)[^)]*\)")
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
# Comments of Rust, JavaScript, shell, Python and TOML, and literals between double quotes.
HASH_COMMENT = re.compile(r"(?:^|\s)#(?!!)(.*)")
SLASH_COMMENT = re.compile(r"(?<!:)//[/!]?(.*)")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')


def prose_of_markdown(text):
    """Lines with code taken out; what is code keeps its place as spaces."""
    fenced = False
    for line in text.splitlines():
        if FENCE.match(line):
            fenced = not fenced
            yield ""
        else:
            yield "" if fenced else INLINE_CODE.sub("``", line)


def prose_of_code(text, comment):
    for line in text.splitlines():
        parts = [found.group(1) for found in LITERAL.finditer(line)]
        found = comment.search(LITERAL.sub('""', line))
        if found:
            parts.append(INLINE_CODE.sub("``", found.group(1)))
        yield " ".join(parts)


def prose(path, text):
    if path.suffix == ".md":
        return prose_of_markdown(text)
    return prose_of_code(text, SLASH_COMMENT if path.suffix in {".rs", ".js", ".mjs"} else HASH_COMMENT)


def wording(path, text):
    lines = text.splitlines()
    for number, (line, words) in enumerate(zip(lines, prose(path, text)), start=1):
        if ALLOW in line:
            continue
        for pattern, instead in RULES:
            for found in pattern.finditer(words):
                yield number, f"`{found.group(0)}`: write {instead}"


def is_path(name, top):
    """Whether a name in backticks is meant as a path of this repository."""
    return name.split("/")[0] in top and not re.search(r"\.(org|com|io)\b", name)


def exists(name):
    path = ROOT / name
    # Decisions are named by their number.
    return path.exists() or any(path.parent.glob(path.name + "-*"))


def paths(path, text, top):
    """Links and paths of a document that lead nowhere."""
    for number, line in enumerate(text.splitlines(), start=1):
        for found in LINK.finditer(INLINE_CODE.sub("``", line)):
            if not (path.parent / found.group(1)).exists():
                yield number, f"the link to {found.group(1)} leads nowhere"
        for found in PATH.finditer(line):
            name = found.group(1)
            if is_path(name, top) and not exists(name):
                yield number, f"there is no {name} in the tree"


def check_rules():
    def is_found(sample):
        return any(pattern.search(sample) for pattern, _ in RULES)

    for sample in FOUND:
        assert is_found(sample), f"no rule finds: {sample}"
    for sample in NOT_FOUND:
        assert not is_found(sample), f"a rule finds: {sample}"


def tracked():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.splitlines()
    return sorted({name for name in listed if (ROOT / name).is_file()})


def main(arguments):
    check_rules()
    names = tracked()
    top = {name.split("/")[0] for name in names if "/" in name}
    if arguments:
        chosen = [str(Path(name).resolve().relative_to(ROOT)) for name in arguments]
    else:
        lines = (line.split("#")[0].strip() for line in EXCLUDE.read_text().splitlines())
        excluded = tuple(line for line in lines if line)
        chosen = [name for name in names if not name.startswith(excluded)]
    checked = wrong = 0
    for name in chosen:
        path = ROOT / name
        if path.suffix not in SUFFIXES:
            continue
        checked += 1
        text = path.read_text(encoding="utf-8", errors="replace")
        findings = list(wording(path, text))
        if path.suffix == ".md":
            findings += paths(path, text, top)
        for number, message in sorted(findings):
            wrong += 1
            print(f"{name}:{number}: {message}")
    if not checked:
        print("words: no file was checked", file=sys.stderr)
        return 1
    print(f"words: {checked} files, {wrong} findings", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
