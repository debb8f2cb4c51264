#!/usr/bin/env python3
"""Write the manual page orch(1) from the command table of orch.py.

    python3 tests/tools/man.py dist/orch.1

The page is mdoc, which man-db and mandoc read. Its date is $SOURCE_DATE_EPOCH, else that of orch.py.
"""
from __future__ import annotations

import os
import re
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True

import orch  # noqa: E402    found by the line above

ESCAPES = {"\\": r"\e", "-": r"\-", "`": r"\(ga", "'": r"\(aq", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}

DESCRIPTION = """\
Pick a coding agent by your rules, run it, and hand the work on when it is at its limit, logged out or broken. The answer,
and nothing else, goes to standard output; notices go to standard error.

Several words of a prompt are joined by a space. A - among them adds standard input after a blank line; without it, or -p,
standard input is not read. The first word decides: a command below runs, anything else is a prompt. After -- all words are
a prompt; so they are after the command run.

Durations are numbers of seconds, or such as 90s, 10m, 1h30m, 2d, 1w."""

ENVIRONMENT = (
    ("ORCH_HOME", "the folder of config, state and ledger; default ~/.orch"),
    ("PATH", "where agents are looked up; only its absolute folders count"),
    ("NO_COLOR", "where it is set, nothing is coloured"),
)
FILES = (
    ("~/.orch/config.json", "the config; see the commands init and config"),
    ("~/.orch/state.json", "cooldowns, and the last 50 jobs"),
    ("~/.orch/usage.jsonl", "the ledger: a line for each attempt"),
    (".orch/config.json", "a project's config, at the top of its git repository; it may not set everything"),
)
EXAMPLES = (
    ("Run a prompt, and see who ran it:", 'orch "fix the failing test"; orch jobs'),
    ("Review what is staged, changing nothing:", 'git diff --staged | orch --access read "review this" -'),
    ("Wait two hours at most for an agent that is free:", 'orch --wait 2h "update the changelog"'),
    ("Show a failover, with nothing installed:", "orch demo"),
)


def main(argv: Sequence[str]) -> int:
    """Write the page to `argv[1]`."""
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    at = float(os.environ.get("SOURCE_DATE_EPOCH") or (ROOT / "orch.py").stat().st_mtime)
    out.write_text(render_page(time.gmtime(at)), encoding="utf-8")
    return 0


def render_page(date: time.struct_time) -> str:
    """The whole page."""
    month = time.strftime("%B", date)
    run = orch.BY_NAME["run"]
    parts = [
        f".Dd {month} {date.tm_mday}, {date.tm_year}\n.Dt ORCH 1\n.Os\n",
        ".Sh NAME\n.Nm orch\n.Nd run coding agents, and hand on the work of one at its limit\n",
        ".Sh SYNOPSIS\n.Nm\n.Op Ar options\n.Ar PROMPT ...\n.Op Fl\n.Nm\n.Op Ar options\n.Fl\n.Nm\n.Ar COMMAND ...\n",
        ".Sh DESCRIPTION\n", "\n.Pp\n".join(map(text_of, DESCRIPTION.split("\n\n"))), "\n",
        ".Sh OPTIONS\n", options_of((*run.options, orch.HELP, orch.Option(("--version",), "show the version"))),
        ".Sh COMMANDS\n", *map(command_of, orch.COMMANDS),
        ".Sh ENVIRONMENT\n", listed("Ev", ENVIRONMENT),
        ".Sh FILES\n", listed("Pa", FILES),
        ".Sh EXIT STATUS\n", listed("Li", [(str(int(code)), text) for code, text in orch.EXIT_TEXTS.items()]),
        ".Sh EXAMPLES\n", ".Pp\n".join(f"{text_of(what)}\n.Pp\n.Dl {arguments(line)}\n" for what, line in EXAMPLES),
    ]
    return "".join(parts)


def command_of(command: orch.Command) -> str:
    """The part about one command."""
    usage = f"orch {command.name} {command.words}".rstrip()
    options = "Its options are those above.\n" if command.name == "run" else options_of(command.options)
    return (f".Ss {arguments(usage)}\n{sentence(command.help)}\n{options}"
            f".Pp\nExample:\n.Pp\n.Dl {arguments(command.example)}\n")


def options_of(options: Sequence[orch.Option]) -> str:
    """A list of options; nothing where there are none."""
    rows = []
    for option in options:
        value = f" Ar {arguments(option.metavar)}" if option.metavar else ""
        flags = " , ".join(f"Fl {arguments(name[1:])}{value}" for name in option.names)
        choices = f" ({', '.join(option.choices)})" if option.choices and option.choices[0] not in option.help else ""
        rows.append(f".It {flags}\n{sentence(option.help + choices)}\n")
    return f".Bl -tag -width Ds\n{''.join(rows)}.El\n" if rows else ""


def listed(macro: str, rows: Sequence[tuple[str, str]]) -> str:
    """A list of names, each marked by `macro`, with their meanings."""
    items = "".join(f".It {macro} {arguments(name)}\n{sentence(text)}\n" for name, text in rows)
    return f".Bl -tag -width Ds\n{items}.El\n"


def sentence(text: str) -> str:
    """A help text, which is written without a capital letter and a full stop, as running text."""
    return text_of(text[0].upper() + text[1:] + ".")


def text_of(text: str) -> str:
    """Running text: a sentence to a line, wrapped, nothing in it taken for a request."""
    sentences = re.split(r"(?<=[.?!]) (?=[A-Z])", " ".join(text.split()))
    lines = [line for sentence in sentences
             for line in textwrap.wrap(sentence, 66, break_on_hyphens=False, break_long_words=False)]
    return "\n".join(re.sub(r"^([.'])", r"\&\1", escaped(line)) for line in lines)


def arguments(text: str) -> str:
    """Words on the line of a macro, where some words are macros and a mark at the end is set apart."""
    words = ["\\&" + word if re.fullmatch(r"[%A-Z][A-Za-z]{1,2}|[.,:;()\[\]?!|]", word) else escaped(word)
             for word in text.split()]
    return re.sub(r"[.,:;)\]?!]$", r"\g<0>\&", " ".join(words))


def escaped(text: str) -> str:
    """Text in which every character stands for itself."""
    return "".join(ESCAPES.get(char, char) for char in text)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
