"""Prints the manual page of a program of the system (section 8), made of what it prints for `--help`, with all of its commands.

    manual.py PROGRAM GUIDE     GUIDE is where the package has the document for its readers
"""

import pathlib
import re
import subprocess
import sys


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def commands(text):
    """The names in the list of commands of a help text."""
    _, _, rest = text.partition("\nCommands:\n")
    lines = rest.split("\n\n", 1)[0].splitlines()
    found = (re.match(r"  (\S+)(?:  |$)", line) for line in lines)
    return [match[1] for match in found if match and match[1] != "help"]


def roff(text):
    """Text that is shown as it is."""
    lines = (line.replace("\\", "\\e").replace("-", "\\-") for line in text.rstrip().splitlines())
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in lines)


def sections(program, names=()):
    """Every command below these names, each before its own."""
    text = output(program, *names, "--help")
    yield names, text
    for name in commands(text):
        yield from sections(program, (*names, name))


def page(program, guide):
    name = pathlib.Path(program).name
    version = output(program, "--version").split()[-1]
    pages = list(sections(program))
    about = pages[0][1].split("\n", 1)[0]
    yield f'.TH {name.upper()} 8 "" "{name} {version}" "Island"'
    yield f".SH NAME\n{name} \\- {roff(about)}"
    for names, text in pages:
        yield f".SH {roff(' '.join((name, *names)))}\n.nf\n{roff(text)}\n.fi"
    yield f".SH SEE ALSO\n.I {roff(guide)}"


if __name__ == "__main__":
    print("\n".join(page(*sys.argv[1:3])))
