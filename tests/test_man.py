"""The manual page, made from the command table."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import orch

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The path of the page."""
    path = tmp_path_factory.mktemp("man") / "new" / "orch.1"
    write(path)
    return path


def write(path):
    subprocess.run([sys.executable, str(ROOT / "tests" / "tools" / "man.py"), str(path)], check=True,
                   env={**os.environ, "SOURCE_DATE_EPOCH": "86400"})


def shown(page, program):
    """The page as a person sees it, without emboldening."""
    command = {"man": ["man", "-P", "cat", "-l"], "mandoc": ["mandoc", "-T", "utf8"]}[program]
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "MANWIDTH": "100", "TERM": "dumb"}
    done = subprocess.run([*command, str(page)], capture_output=True, text=True, check=True, env=env)
    return re.sub(r".\x08|\x1b\[[\d;]*m", "", done.stdout)


def test_mandoc_finds_nothing_to_complain_about(page):
    if not shutil.which("mandoc"):
        pytest.skip("mandoc is not installed")
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "all", str(page)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


def test_man_finds_nothing_to_complain_about(page):
    if not shutil.which("man") or not shutil.which("groff"):
        pytest.skip("man and groff are not installed")
    done = subprocess.run(["man", "--warnings=all", "-P", "cat", "-l", str(page)], capture_output=True, text=True, check=False,
                          env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "dumb"})
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize("program", ["man", "mandoc"])
def test_it_shows_every_command_option_and_exit_status(page, program):
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    text = shown(page, program)
    words = " ".join(text.split())
    for command in orch.COMMANDS:
        assert f"orch {command.name} {command.words}".strip() in words
        assert " ".join(command.example.split()) in words
        for option in command.options:
            value = f" {option.metavar}" if option.metavar else ""
            assert ", ".join(name + value for name in option.names) in words, (command.name, option.names)
    for code, meaning in orch.EXIT_TEXTS.items():
        assert re.search(rf"\b{int(code)} +{re.escape(meaning[:1].upper() + meaning[1:20])}", words), code
    assert "January 2, 1970" in text


def test_it_is_the_same_each_time(page, tmp_path):
    write(tmp_path / "again.1")
    assert (tmp_path / "again.1").read_bytes() == page.read_bytes()
