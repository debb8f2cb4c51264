"""Completion in the real shells: bash (with and without the bash-completion package), zsh and fish."""
from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from conftest import TIMEOUT_S, codex_ok

BASH_COMPLETION = Path("/usr/share/bash-completion/bash_completion")
HOSTILE = ["$(touch pwned) `touch pwned`", "it's; touch pwned & #", 'say "$(touch pwned)"', "-x ${HOME} a b\\c\\", "~root * ? [a]",
           "%d:%n=é 🙂 <(touch pwned)"]
CONFIG = {
    "agents": {"mine": {"command": ["mine"]}},
    "contexts": {"lean": {"claude": ["--x"]}, "long list": {}},
    "model_map": {"simple": {"claude": "small:1", "codex": "quick"}, "complex": {"claude": "large"}},
    "rules": [{"keywords": ["x"], "agent": "codex", "model": "ruled"}],
    "roles": {"reviewer": {"prompt": "You review"}, "tester": {"prompt": "You test", "agent": "mine", "model": "tried"}},
    "teams": {"full": ["reviewer", "tester"]},
}


def need(shell):
    """The shell's path; skips where it is not installed."""
    return shutil.which(shell) or pytest.skip(f"{shell} is not installed")


@pytest.fixture
def at_tab(orch):
    """orch on the PATH, with a config that has names of each kind; a file and a folder to complete."""
    (orch.agents / "orch").symlink_to(orch.program)
    orch.configure(CONFIG)
    (orch.work / "notes.txt").touch()
    (orch.work / "nested dir").mkdir()
    return orch


def environment(orch, **more):
    return {**orch.env, "TERM": "dumb", "XDG_CONFIG_HOME": str(orch.base / "xdg"), "XDG_DATA_HOME": str(orch.base / "data"), **more}


def run(orch, *argv):
    done = subprocess.run(argv, cwd=orch.work, env=environment(orch), stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S,
                          check=False)
    assert done.stderr == b"", done.stderr
    return done.stdout.decode()


def bash_words(orch, line, part=None):
    """What bash's completion function offers for `line`, of which readline would replace the end `part`."""
    script = ('eval "$(orch completion bash)"; COMP_LINE=$1; COMP_POINT=${#1}; _orch orch "$2" ""; '
              'for word in "${COMPREPLY[@]}"; do printf "%s\\n" "$word"; done')
    part = re.split(r"[\s=:]", line)[-1] if part is None else part
    return run(orch, need("bash"), "--norc", "--noprofile", "-c", script, "bash", line, part).splitlines()


def fish_words(orch, line):
    script = f"orch completion fish | source; complete -C {json.dumps(line)}"
    return [word.partition("\t")[0] for word in run(orch, need("fish"), "--no-config", "-c", script).splitlines()]


class Terminal:
    """A shell in a pseudo terminal, where ^O shows the line being edited."""

    def __init__(self, orch, argv, setup, **env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(orch.work)
            os.execve(argv[0], argv, environment(orch, **env))
        self.seen = ""
        self.shown = 0
        os.write(self.fd, setup.encode() + b"\n")
        self.wait(r"READY\r?\n")

    def wait(self, pattern):
        end = time.monotonic() + TIMEOUT_S
        while not (found := re.search(pattern, self.seen)):
            if not select.select([self.fd], [], [], max(end - time.monotonic(), 0))[0]:
                pytest.fail(f"{pattern} did not come: {self.seen[-2000:]!r}")
            self.seen += os.read(self.fd, 65536).decode(errors="replace")
            if "\x1b[6n" in self.seen:                     # fish asks where the cursor is
                self.seen = self.seen.replace("\x1b[6n", "")
        self.seen = self.seen[found.end():]
        return found

    def complete(self, line):
        """The line after TAB; the next one begins empty."""
        os.write(self.fd, line.encode() + b"\t\x0f")
        return self.wait(r"LINE<(.*?)>END")[1]

    def close(self):
        os.close(self.fd)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


# Each prints with ^O what is being edited, and clears it; the words are split so that their echo is no match.
BASH_SETUP = """PS1='$ '; bind 'set enable-bracketed-paste off'
show() { printf "LI""NE<%s>END\\n" "$READLINE_LINE"; READLINE_LINE= READLINE_POINT=0; }; bind -x '"\\C-o": show'
"""
ZSH_SETUP = """PS1='$ '; unset zle_bracketed_paste; setopt nobeep; autoload -Uz compinit
show() { zle -I; print -r -- "LI""NE<$BUFFER>END"; BUFFER= }; zle -N show; bindkey '^o' show
"""
FISH_SETUP = """function fish_prompt; echo '$ '; end
bind \\co 'echo; printf "LI""NE<%s>END\\n" (commandline | string collect); commandline ""'
"""


@pytest.fixture(params=["bash", "bash-completion", "zsh", "zsh file", "fish"])
def terminal(request, at_tab):
    """Each shell at its prompt, the script taken in as the README says."""
    name = request.param
    shell = need(name.split()[0].split("-")[0])
    if name == "bash":
        opened = Terminal(at_tab, [shell, "--norc", "--noprofile", "-i"], BASH_SETUP + 'eval "$(orch completion bash)"; echo READ""Y')
    elif name == "bash-completion":
        if not BASH_COMPLETION.exists():
            pytest.skip("the bash-completion package is not installed")
        install(at_tab, "bash", at_tab.base / "data/bash-completion/completions/orch")
        opened = Terminal(at_tab, [shell, "--norc", "--noprofile", "-i"], BASH_SETUP + f'. {BASH_COMPLETION}; echo READ""Y')
    elif name.startswith("zsh"):
        (at_tab.user_home / ".zshrc").touch()
        install(at_tab, "zsh", at_tab.base / "functions/_orch")
        setup = f"fpath=({at_tab.base}/functions $fpath); " if name == "zsh file" else ""
        setup += "compinit -u -D; " + ("" if name == "zsh file" else 'eval "$(orch completion zsh)"; ')
        opened = Terminal(at_tab, [shell, "-f", "-i"], ZSH_SETUP + setup + 'echo READ""Y')
    else:
        install(at_tab, "fish", at_tab.base / "xdg/fish/completions/orch.fish")
        opened = Terminal(at_tab, [shell, "-i"], FISH_SETUP + 'echo READ""Y')
    opened.shell = shell
    yield opened
    opened.close()


def install(orch, shell, path):
    path.parent.mkdir(parents=True)
    path.write_text(orch("completion", shell).out)


# --- at a prompt ---------------------------------------------------------

LINES = [
    ("orch stat", "orch status "),
    ("orch --age", "orch --agent "),
    ("orch -a cla", "orch -a claude "),
    ("orch --agent=cla", "orch --agent=claude "),
    ("orch -qacla", "orch -qaclaude "),
    ("orch -c le", "orch -c lean "),
    ("orch -a claude -m sm", "orch -a claude -m small:1 "),
    ("orch -m small:", "orch -m small:1 "),
    ("orch --access=re", "orch --access=read "),
    ("orch --team fu", "orch --team full "),
    ("orch --roles=reviewer,te", "orch --roles=reviewer,tester "),
    ("orch --cd nes", "orch --cd nested\\ dir/"),
    ("orch --cd=nes", "orch --cd=nested\\ dir/"),
    ("orch --config=no", "orch --config=notes.txt "),
    ("orch explain --stderr no", "orch explain --stderr notes.txt "),
    ("orch fix no", "orch fix notes.txt "),
    ("orch run stat", "orch run stat"),
    ("orch -- stat", "orch -- stat"),
    ("orch 'fix it' --no-f", "orch 'fix it' --no-failover "),
    ("orch wait -- cla", "orch wait -- claude "),
    ("orch config ch", "orch config check "),
    ("true | orch -a cla", "true | orch -a claude "),
    ("orch hi 2> no", "orch hi 2> notes.txt "),
    ("orch -a nob", "orch -a nob"),
]


def test_tab_completes_the_line(terminal):
    for typed, becomes in LINES:
        line = terminal.complete(typed)
        assert line.rstrip() == becomes.rstrip(), typed
        assert line == becomes or line.endswith("/ "), typed     # zsh may put a blank after a folder


def test_zsh_lists_what_has_no_meaning_without_a_dash(at_tab):
    shell = Terminal(at_tab, [need("zsh"), "-f", "-i"], ZSH_SETUP + 'compinit -u -D; eval "$(orch completion zsh)"; echo READ""Y')
    try:
        os.write(shell.fd, b"orch --access \t\t\x0f")
        shell.wait("full")
        listed = shell.wait("(?s)(.*)LINE<")[1]
        assert "own" in listed and "-- " not in listed, listed
    finally:
        shell.close()


def test_a_name_of_the_config_is_never_evaluated(terminal, at_tab):
    names = [f"{number}{name}" for number, name in enumerate(HOSTILE, 10)]
    at_tab.configure({"contexts": {key: {} for key in [*names, *(f"{name}\nno\x1b[31m" for name in names)]}})
    lines = [terminal.complete(f"orch -c {quote}{name[:2]}") for name in names for quote in ("", "'", '"')]
    arguments = " ".join(line[len("orch -c "):].strip() for line in lines)
    given = run(at_tab, terminal.shell, "-c", f"printf '%s\\n' {arguments}").splitlines()
    assert given == [name for name in names for _ in range(3)], lines
    assert not list(at_tab.base.rglob("pwned"))


# --- what is offered -----------------------------------------------------

AGENTS = ["claude", "codex", "opencode", "gemini", "copilot", "mine"]


@pytest.mark.parametrize(("line", "offered"), [
    ("orch -a ", AGENTS),
    ("orch explain --agent ", AGENTS),
    ("orch --context ", ["lean", "long list"]),
    ("orch --model ", ["small:1", "quick", "large", "ruled", "tried"]),
    ("orch -a codex --model ", ["quick", "ruled"]),
    ("orch --role ", ["reviewer", "tester"]),
    ("orch --team ", ["full"]),
    ("orch --roles reviewer,", ["reviewer,tester"]),
    ("orch --roles tester,reviewer,", []),
    ("orch runs ", ["resume"]),
    ("orch runs some-id ", ["reviewer", "tester"]),
    ("orch --complexity ", ["simple", "medium", "complex"]),
    ("orch --access ", ["read", "edit", "full", "own"]),
    ("orch usage --by ", ["agent", "model", "role", "project", "outcome", "day", "task"]),
    ("orch cooldown ", ["list", "set", "clear"]),
    ("orch cooldown set ", AGENTS),
    ("orch wait claude ", AGENTS),
    ("orch config ", ["show", "check", "schema"]),
    ("orch completion ", ["bash", "zsh", "fish"]),
    ("orch --timeout ", []),
    ("orch status ", []),
    ("orch --frobnicate ", []),
    ("orch -a claude usage ", []),
])
def test_what_fits_is_offered(at_tab, line, offered):
    if shutil.which("fish"):
        assert sorted(fish_words(at_tab, line)) == sorted(offered)
    assert bash_words(at_tab, line) == [re.sub(" ", r"\\ ", word) for word in offered]


def test_commands_and_options_come_from_the_table(at_tab):
    import orch
    assert bash_words(at_tab, "orch ") == [command.name for command in orch.COMMANDS]
    for command in orch.COMMANDS:
        names = [option.names[-1] for option in command.options]
        assert bash_words(at_tab, f"orch {command.name} -") == [*names, "--help"]
    assert "--quiet" not in bash_words(at_tab, "orch -q --")
    assert bash_words(at_tab, "orch --all ") == ["cooldown"]


def test_jobs_and_kept_attempts_are_offered_newest_first(at_tab, fake):
    from conftest import step
    fake("claude", step(stdout="", exit=1))
    fake("codex", codex_ok())
    at_tab("fix $(it)")
    fake("claude", step(stdout="", exit=1))
    fake("codex", codex_ok())
    at_tab("fix that")
    ids = [job["id"] for job in at_tab.state()["jobs"]]
    assert bash_words(at_tab, "orch jobs ") == ids[::-1]
    assert sorted(bash_words(at_tab, "orch explain --task ")) == sorted(ids)
    if shutil.which("fish"):
        assert sorted(fish_words(at_tab, "orch jobs ")) == sorted(ids)


def test_runs_with_roles_alone_are_offered_to_go_on_with(at_tab, fake):
    fake("codex", codex_ok(), codex_ok())
    at_tab("fix it")
    at_tab("--role", "reviewer", "look")
    assert bash_words(at_tab, "orch runs resume ") == [at_tab.state()["jobs"][-1]["id"]]


def test_what_is_cooling_is_offered(at_tab, fake):
    at_tab("cooldown", "set", "claude:some model", "2h")
    assert "claude:some\\ model" in bash_words(at_tab, "orch cooldown clear ")
    assert bash_words(at_tab, "orch cooldown clear claude:s", "s") == ["some\\ model"]


def test_only_what_bash_replaces_is_given(at_tab):
    assert bash_words(at_tab, "orch --agent=cl", "cl") == ["claude"]
    assert bash_words(at_tab, "orch --agent=cl", "--agent=cl") == ["--agent=claude"]      # `=` breaks no words there
    assert bash_words(at_tab, "orch -c 'lo", "lo") == ["long list'"]


def test_the_config_that_the_line_names_holds(at_tab):
    at_tab.configure({"contexts": {"other": {}}}, at_tab.user_home / "c.json")
    assert bash_words(at_tab, "orch --config ~/c.json -c ") == ["other"]
    assert bash_words(at_tab, "orch --config=../user/c.json -c ") == ["other"]


def test_the_project_of_the_folder_that_the_line_names_holds(at_tab):
    (at_tab.work / "there" / ".git").mkdir(parents=True)
    at_tab.configure({"order": ["codex"]}, at_tab.work / "there" / ".orch" / "config.json")
    assert bash_words(at_tab, "orch -a ")[0] == "claude"
    assert bash_words(at_tab, "orch -C there -a ")[0] == "codex"


@pytest.mark.parametrize("spoil", ["{", '{"order": ["nobody"]}', "[]", '{"contexts": 1}'])
def test_trouble_is_silent_and_the_commands_stay(at_tab, spoil):
    at_tab.configure(spoil)
    assert bash_words(at_tab, "orch -c ") == []
    assert "status" in bash_words(at_tab, "orch ")
    result = at_tab("completion", "at-tab", "zsh", "--", "orch", "-c", "")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_nothing_is_started_or_written(at_tab, fake):
    for name in ("claude", "codex"):
        fake(name)
    before = sorted(at_tab.base.rglob("*"))
    for words in (["-a", ""], ["-c", ""], ["jobs", ""], [""], ["-m", ""]):
        assert at_tab("completion", "at-tab", "fish", "--", "orch", *words).code == 0
    assert sorted(at_tab.base.rglob("*")) == before and not fake.login_checks


def test_a_name_that_is_not_printable_is_left_out(at_tab):
    at_tab.configure({"contexts": {"fine": {}, "two\nlines": {}, "tab\tbed": {}, "\x1b[31m": {}, "\u202e": {}, "": {}}})
    assert at_tab("completion", "at-tab", "zsh", "--", "orch", "-c", "").out == "words\t\nfine\t\n"


def test_roles_are_completed_one_by_one_where_a_list_is_taken():
    import orch
    option = orch.Option(("--roles",), "several", "A,B")
    spot = orch.value_spot(option, "--roles=", "reviewer,te", {})
    assert (spot.prefix, spot.start, spot.slots, spot.taken) == ("--roles=reviewer,", "te", ("ROLE",), ("reviewer",))


# --- the command ---------------------------------------------------------

@pytest.mark.parametrize("words", [[], ["tcsh"], ["bash", "zsh"], ["at-tab"], ["at-tab", "bash"]])
def test_other_shells_are_refused(orch, words):
    result = orch("completion", *words)
    assert result.code == 2 and "bash | zsh | fish" in result.err and result.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["bash", "x"], ["bash", "orch 'x", "x", "y"], ["zsh", ""], ["zsh", "--", "orch", ""], ["what", "--", "orch", ""],
                                       ["bash", "--", "", ""], ["bash", "--", "orch -", "-"], ["fish", "--", "orch", "\\"]])
def test_odd_questions_are_no_bug(orch, arguments):
    assert orch("completion", "at-tab", *arguments).code in (0, 2)


def test_a_shell_reads_its_script_without_a_word(at_tab):
    for shell, check in (("bash", "-n"), ("zsh", "-n"), ("fish", "-n")):
        path = at_tab.base / shell
        path.write_text(at_tab("completion", shell).out)
        if shutil.which(shell):
            assert run(at_tab, shutil.which(shell), check, str(path)) == ""
