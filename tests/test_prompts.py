"""The prompt arrives at the agent byte for byte, whatever it holds, and standard input never hangs a run."""
from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time

import pytest
from conftest import claude_failed, claude_ok, codex_ok, one_line_error

import orch as o

HOSTILE = {
    "help": b"--help",
    "version": b"--version",
    "command substitution": b"$(touch x) `touch y` ; touch z & touch w | cat",
    "quotes": b"it's \"quoted\" \\ and \\\" more '\"'",
    "newlines": b"one\ntwo\r\n\n\tthree",
    "emoji": "🎉 ünï – ’".encode(),
    "invalid UTF-8": b"caf\xe9 \xff\xfe \xc3",
    "lone dash": b"- a list item",
    "braces": b"{prompt} {model} %s %(x)s ${HOME} ~ *",
    "dash dash": b"-- -- --json",
    "limit text": b"You've hit your usage limit. Try again at 3pm",
    "escape codes": b"\x1b[31mred\x07",
    "percent": b"100%",
}


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "copilot", "opencode"])
@pytest.mark.parametrize("prompt", HOSTILE.values(), ids=HOSTILE)
def test_a_prompt_reaches_every_agent_byte_for_byte(orch, fake, agent, prompt):
    fake(agent, claude_ok())
    orch("--no-failover", "-q", "-a", agent, "--", prompt)
    in_arguments = sum(os.fsencode(word).endswith(prompt) for word in fake.call.argv)
    assert fake.call.prompt == prompt
    assert (in_arguments, fake.call.stdin) == ((0, prompt) if agent == "opencode" else (1, b""))
    assert list(orch.work.iterdir()) == []


def test_the_prompt_stands_after_a_double_dash(orch, fake):
    fake("claude", claude_ok())
    orch("--", "--help")
    assert fake.call.argv[-2:] == ["--", "--help"]


@pytest.mark.parametrize("size", [131_000, 131_071, 131_072, 131_073, 200_000])
@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_a_prompt_around_the_limit_of_one_argument_arrives_whole(orch, fake, agent, size):
    fake(agent, claude_ok())
    prompt = ("ö" * size).encode()[:size]
    orch("--no-failover", "-q", "-a", agent, "-", input=prompt)
    assert fake.call.prompt == prompt


def test_five_megabytes_of_arbitrary_bytes_arrive_whole(orch, fake):
    fake("claude", claude_ok("read"))
    prompt = random.Random(7).randbytes(5_000_000).replace(b"\0", b"0")
    result = orch("-", input=prompt)
    assert result.out == "read\n", result
    assert fake.call.prompt == prompt
    assert list(orch.work.iterdir()) == []


@pytest.mark.parametrize(("arguments", "piped", "prompt"), [
    (["fix", "the", "bug"], None, "fix the bug"),
    (["fix", "--agent", "claude", "the", "-v", "bug"], None, "fix the bug"),
    (["fix the bug", "--json"], None, "fix the bug"),
    (["run", "status"], None, "status"),
    (["run", "stauts"], None, "stauts"),
    (["--", "status"], None, "status"),
    (["--", "stauts"], None, "stauts"),
    (["run", "--", "--help"], None, "--help"),
    (["--", "a", "--json", "-"], None, "a --json -"),
    (["--", "a", "--", "b"], None, "a -- b"),
    (["--agent", "claude", "--", "run"], None, "run"),
    (["status of the build?"], None, "status of the build?"),
    (["say", "status"], None, "say status"),
    (["-x do this"], None, "-x do this"),
    (["--help me with this"], None, "--help me with this"),
    (["- one\n- two"], None, "- one\n- two"),
    (["--json", "-v is this"], None, "-v is this"),
    (["-"], "from a pipe\n", "from a pipe\n"),
    (["-"], "no newline", "no newline"),
    (["look at this", "-"], "diff\n", "look at this\n\ndiff\n"),
    (["look", "at", "this", "-"], "diff", "look at this\n\ndiff"),
    (["-", "--", "--help"], "diff", "--help\n\ndiff"),
    (["-", "--", "-"], "diff", "-\n\ndiff"),
    (["run", "-"], "from a pipe", "from a pipe"),
    (["-p", "look"], "piped", "look\npiped"),
    (["-p"], "piped", "piped"),
    (["-p", "look"], "", "look"),
    (["-p", "look"], None, "look"),
    (["--print", "status of it"], None, "status of it"),
])
def test_the_words_and_the_pipe_make_the_prompt(orch, fake, arguments, piped, prompt):
    fake("claude", claude_ok())
    result = orch(*arguments, input=piped)
    assert result.code == 0, result
    assert fake.call.prompt == prompt.encode()


def test_print_appends_a_file_on_standard_input(orch, fake, tmp_path):
    fake("claude", claude_ok())
    (tmp_path / "notes").write_text("from a file")
    with open(tmp_path / "notes") as file:
        orch("-p", "look", stdin=file)
    assert fake.call.prompt == b"look\nfrom a file"


def test_an_option_with_a_value_may_hold_a_space(orch, fake):
    path = orch.configure({"order": ["codex"]}, orch.base / "my configs" / "c.json")
    fake("codex", codex_ok())
    assert orch(f"--config={path}", "hi").code == 0
    assert fake.names == ["codex"]


def test_an_open_silent_pipe_never_hangs_a_run(orch, fake):
    fake("claude", claude_ok("42"))
    process = orch.start("what?", stdin=subprocess.PIPE)
    try:
        assert process.wait(timeout=20) == 0
        assert process.stdout.read() == b"42\n"
        assert process.stderr.read() == b""
    finally:
        process.stdin.close()
    assert fake.call.stdin == b""


def test_print_gives_up_on_a_pipe_that_stays_silent_for_three_seconds(orch, fake):
    fake("claude", claude_ok("42"))
    process = orch.start("-p", "what?", stdin=subprocess.PIPE)
    begun = time.monotonic()
    try:
        assert process.wait(timeout=20) == 0
        assert 2.5 < time.monotonic() - begun < 8
        assert process.stdout.read() == b"42\n"
        assert process.stderr.read().startswith(b"orch: ")
    finally:
        process.stdin.close()
    assert fake.call.prompt == b"what?"


def test_print_waits_for_a_pipe_that_speaks_slowly(orch, fake):
    fake("claude", claude_ok("42"))
    process = orch.start("-p", "what?", stdin=subprocess.PIPE)
    process.stdin.write(b"one ")
    process.stdin.flush()
    time.sleep(3.3)
    process.communicate(b"two", timeout=20)
    assert fake.call.prompt == b"what?\none two"


def test_unread_piped_input_is_told(orch, fake):
    fake("claude", claude_ok(), claude_ok())
    result = orch("what?", input="some data")
    assert len(result.notices) == 1, result
    assert len(orch("--json", "what?", input="some data").json["warnings"]) == 1


@pytest.mark.parametrize("how", ["closed pipe", "closed descriptor", "file"])
def test_input_that_holds_nothing_unread_is_no_reason_to_speak(orch, fake, how):
    fake("claude", claude_ok("42"))
    if how == "closed pipe":
        result = orch("what?", input="")
    elif how == "file":
        with open(__file__) as file:    # not a pipe: `orch x < file` is a choice of the shell's user
            result = orch("what?", stdin=file)
    else:
        result = orch("what?", stdin=None, preexec_fn=lambda: os.close(0))
    assert result.out == "42\n", result
    assert how == "file" or result.err == ""


@pytest.mark.parametrize(("arguments", "piped"), [([""], None), (["--"], None), (["-"], ""), (["run"], None), (["-p"], None),
                                                  (["-"], "  \n"), (["   "], None)])
def test_an_empty_prompt_is_refused(orch, fake, arguments, piped):
    fake("claude")
    one_line_error(orch(*arguments, input=piped))
    assert fake.calls == []


def test_a_nul_is_refused(orch, fake):
    fake("claude")
    one_line_error(orch("-", input=b"a\0b"))
    assert fake.calls == []


def test_the_c_locale_changes_no_byte(orch, fake):
    fake("claude", claude_ok())
    orch("ünï 🎉".encode(), env={"LANG": None, "LC_ALL": "C"})
    assert fake.call.prompt == "ünï 🎉".encode()


@pytest.fixture(params=["built", "source"])
def latin(orch, request):
    """`orch` in a locale that is not UTF-8: the program as built, or its source under a Python that follows the locale."""
    locales = orch.base / "locales"
    locales.mkdir()
    made = shutil.which("localedef") and subprocess.run(
        ["localedef", "-c", "-i", "de_DE", "-f", "ISO-8859-1", locales / "de_DE.ISO-8859-1"], check=False,
        stderr=subprocess.DEVNULL).returncode <= 1
    if not made:
        pytest.skip("needs localedef and its sources")
    orch.env.update(LOCPATH=str(locales), LC_ALL="de_DE.ISO-8859-1")
    if request.param == "source":
        orch.program = orch.base / "source"
        orch.program.write_text(f"#!/bin/sh\nexec python3 '{o.__file__}' \"$@\"\n")
        orch.program.chmod(0o755)
    return orch


def test_a_locale_that_is_not_utf_8_changes_no_byte(latin, fake):
    prompt = b"caf\xe9 " + "日本 é".encode()
    fake("claude", claude_failed("日本 →", error="rate_limit", status=529))
    fake("codex", codex_ok("ünï 🎉"))
    (latin.work / "ünï").mkdir()
    result = latin("-C", "ünï", prompt)
    assert (result.code, result.out) == (0, "ünï 🎉\n"), result
    assert fake.calls[0].cwd == str(latin.work / "ünï") and fake.calls[0].prompt == prompt and prompt in fake.calls[1].prompt and "日本 →".encode() in fake.calls[1].prompt


def test_a_long_prompt_in_such_a_locale_goes_through_standard_input_as_it_is(latin, fake):
    prompt = ("日本 é" * 20_000).encode() + b" caf\xe9"
    fake("claude", claude_ok("42"))
    result = latin("ü →".encode(), "-", input=prompt)
    assert (result.code, result.out) == (0, "42\n"), result
    assert fake.call.stdin == "ü →\n\n".encode() + prompt


def test_a_program_in_such_a_locale_gives_its_prompt_as_utf_8(latin, fake):
    fake("claude", claude_ok("42"), claude_ok("42"))
    assert in_python(latin, "orch.run('\\u65e5').answer, orch.run('\\u65e5' * 50_000).answer") == "42 42\n"
    assert [call.prompt for call in fake.calls] == ["日".encode(), "日".encode() * 50_000]


def in_python(orch, call):
    """What `print(call)` prints in a program that imports orch; an exception is printed as its class."""
    code = (f"import sys; sys.path.insert(0, {os.path.dirname(o.__file__)!r}); import orch\n"
            f"try: print({call})\nexcept Exception as err: print(type(err).__name__)\n")
    return subprocess.run([sys.executable, "-c", code], env=orch.env, cwd=orch.work, capture_output=True, text=True,
                          check=True, timeout=30).stdout


@pytest.mark.parametrize("call", [
    "'hi', timeout_s='5m'", "'hi', deadline_s=-1", "'hi', wait_s=float('nan')", "'hi', idle_timeout_s=True", "b'hi'", "None",
    "'hi', agent=5", "'hi', failover='no'", "'hi', roles='a,b'", "'hi', roles=[5]", "'hi', cwd=5", "'hi', config_file=5"])
def test_what_a_program_gives_of_the_wrong_type_is_refused(orch, fake, call):
    fake("claude")
    assert in_python(orch, f"orch.run({call})") == "OrchError\n"
    assert fake.calls == [] and not orch.home.exists()


def test_a_program_may_give_paths_and_whole_numbers(orch, fake):
    fake("claude", claude_ok("42"))
    orch.configure({}, orch.base / "c.json")
    paths = f"cwd=__import__('pathlib').Path({str(orch.base)!r}), config_file=__import__('pathlib').Path({str(orch.base / 'c.json')!r})"
    assert in_python(orch, f"orch.run('hi', timeout_s=60, wait_s=float('inf'), {paths}).answer") == "42\n"
    assert fake.call.cwd == str(orch.base)


def test_a_program_that_loses_exit_statuses_is_refused(orch, fake):
    fake("claude")
    ignore = "__import__('signal').signal(__import__('signal').SIGCHLD, __import__('signal').SIG_IGN)"
    assert in_python(orch, f"{ignore}, orch.run('hi')") == "OrchError\n"
    assert fake.calls == [] and not orch.home.exists()


def test_a_program_in_a_removed_directory_is_refused(orch, fake):
    fake("claude")
    (orch.work / "gone").mkdir()
    leave = f"__import__('os').chdir({str(orch.work / 'gone')!r}), __import__('os').rmdir({str(orch.work / 'gone')!r})"
    assert in_python(orch, f"{leave}, orch.run('hi')") == in_python(orch, "orch.run('hi', cwd='gone')") == "OrchError\n"


def test_half_a_character_in_a_prompt_is_refused(orch, fake):
    fake("claude")
    assert in_python(orch, "orch.run('half: \\ud83d')") == "OrchError\n"
    assert fake.calls == []
