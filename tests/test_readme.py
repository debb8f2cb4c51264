"""Every shell block of the README does what it says, as it is written.

A block runs with `bash -eu` in a world made from nothing: a home whose config is that of `orch init` with all of the README's
JSON examples, fake agents that answer anything, a git repository with a change. A console block that shows what happens has
its story in STORIES, which the agents then play, and is compared with what orch prints. A block that names orch.py, make or `pipx install .` runs in a
copy of the clone. What cannot run here carries a comment right above its fence, and stands in NOT_RUN below:

    <!-- not run by the tests: REASON -->
"""
from __future__ import annotations

import json
import re
import shutil
import sys
import time

import pytest
from conftest import ROOT, claude_limit, claude_ok, codex_failed, codex_ok, readme_blocks
from test_build import has_setuptools

import orch as program

NOT_RUN: dict[str, str] = {}                               # name of a block -> reason; as few as can be
BLOCKS = readme_blocks("sh", "bash", "console")
CLONE = ("orch.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "tests")
IN_CLONE = re.compile(r"\borch\.py\b|\bmake\b|pipx install \.")


def limit():
    return claude_limit((time.time() // 3600 + 2) * 3600)


def tell_of_a_limit(fake, block):
    """Claude is at its limit, Codex says what the README has it say."""
    fake("claude", limit())
    fake("codex", codex_ok(re.search(r"^\$ orch \"add.*\norch: .*\n(.*)\n", block.text, re.M)[1]))


def tell_of_a_team(fake, _block):
    """Claude plans and is at its limit, Codex goes on and fails as the last role, and then does not."""
    fake("claude", claude_ok("plan"), limit())
    fake("codex", codex_ok("built"), codex_ok("reviewed"), codex_failed("stream disconnected before completion"), codex_ok("tested"))


STORIES = {'$ orch "add a goodbye': tell_of_a_limit, "$ orch --team full": tell_of_a_team}


def story_of(block):
    """What the agents do in a console block, or None where they may do anything."""
    return next((story for part, story in STORIES.items() if part in block.text), None)


def merge(below, above):
    """Two configs as orch merges them: objects merge, all else replaces."""
    for key, value in above.items():
        below[key] = merge(below[key], value) if isinstance(value, dict) and isinstance(below.get(key), dict) else value
    return below


def example_config():
    """What `orch init` writes, with all JSON examples of the README that are configs, as one."""
    known, config = set(program.DEFAULTS), json.loads(program.EXAMPLE_CONFIG)
    for block in readme_blocks("json"):
        value = json.loads(block.text)
        if set(value) <= known | {"$schema"}:
            merge(config, value)
    return config


def executable(path, text):
    """Make an executable file, a link of that name removed."""
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def place(orch, shell, tmp_path):
    """Where a block runs: agents, tools, home, repository; place(block) is the directory."""
    for name, answer in (("claude", claude_ok("Said claude.")), ("codex", codex_ok("Said codex."))):
        (tmp_path / f"{name}.says").write_bytes(answer["stdout"].encode("latin-1"))
    for name in (*(agent.name for agent in program.AGENTS), "my-agent"):
        says = f"cat '{tmp_path}/{name}.says'" if (tmp_path / f"{name}.says").exists() else f"echo Said {name}."
        executable(orch.agents / name, f"#!/bin/sh\n[ -t 0 ] || cat > /dev/null\n{says}\n")
    # nothing here reaches the network: npm does nothing, pipx installs what is here with the setuptools that are there
    executable(orch.agents / "npm", "#!/bin/sh\n")
    executable(orch.agents / "python3", f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
    executable(orch.agents / "pipx", f"#!/bin/sh\nexec '{sys.executable}' -m pip \"$@\"\n")
    for name in ("scontrol", "code"):
        executable(orch.agents / name, "#!/bin/sh\n")
    executable(orch.agents / "sbatch", SBATCH)
    shell.env.update({"PIP_TARGET": str(orch.user_home / "site"), "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0",
                      "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTEST_ADDOPTS": "--collect-only -q", "ORCH_HOME": None})
    orch.configure(example_config(), orch.user_home / ".orch" / "config.json")

    def directory(block):
        if IN_CLONE.search(block.script):
            return copy_of_the_clone(tmp_path / "clone")
        for name in ("a.txt", "b.txt", "c.txt", "greet.py"):
            (orch.work / name).write_text(f"{name}\n")
        shell("git init -q && git add . && git commit -qm first && echo changed > a.txt && git add a.txt && echo more > b.txt")
        return orch.work
    return directory


# Runs the tasks of an array at once, as far as its %N lets it.
SBATCH = r"""#!/bin/bash
cat > "$TMPDIR/batch.sh"
[[ $(cat "$TMPDIR/batch.sh") =~ --array=([0-9]+)-([0-9]+)%([0-9]+) ]] || exit 1
seq "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" |
  xargs -P "${BASH_REMATCH[3]}" -I{} env SLURM_JOB_ID={} SLURM_ARRAY_TASK_ID={} sh "$TMPDIR/batch.sh"
"""


def copy_of_the_clone(target):
    """What the repository holds, without what was built or installed in it."""
    target.mkdir()
    for name in CLONE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copy(ROOT / name, target)
    return target


def lacking(script):
    """What a block needs that is not here, or None."""
    for word in ("parallel", "make"):
        if re.search(rf"^\s*{word} |\|\s*{word} ", script, re.M) and not shutil.which(word):
            return f"needs {word}"
    if "pipx install ." in script and not has_setuptools():
        return "needs setuptools 77"
    return None


@pytest.mark.parametrize("block", [block for block in BLOCKS if not block.not_run and not story_of(block)], ids=lambda block: block.name)
def test_a_block_runs_as_it_is_written(orch, shell, place, block):
    missing = lacking(block.script)
    if missing:
        pytest.skip(missing)
    result = shell(block.script, cwd=place(block), timeout=300)
    assert "Traceback" not in result.err, result
    assert "command not found" not in result.err, result
    assert not [line for line in result.err.splitlines() if line.startswith("orch: ") and "config" in line], result


def test_the_blocks_that_do_not_run_are_known():
    assert {block.name: block.not_run for block in BLOCKS if block.not_run} == NOT_RUN


def test_no_block_escapes_by_its_language():
    text = (ROOT / "README.md").read_text()
    fences = re.findall(r"^ *(?:```|~~~)(\S*)$", text, re.M)
    assert len(fences) % 2 == 0
    assert set(fences[::2]) <= {"", "sh", "bash", "console", "json", "toml", "yaml", "python", "text"}
    assert not set(fences[1::2]) - {""}
    assert len({block.name for block in BLOCKS}) == len(BLOCKS)
    assert len(BLOCKS) >= 7


HEREDOC = re.compile(r"<<'(\w+)'(.*)\n(?s:.*?)^\1$", re.M)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language != "console"], ids=lambda block: block.name)
def test_a_block_has_no_comment_which_zsh_does_not_know_at_its_prompt(block):
    assert not re.findall(r"(?:^|\s)#.*", HEREDOC.sub(r"\2", block.script))


def test_the_json_examples_are_configs_that_orch_accepts(orch):
    config = example_config()
    assert len(config) > 5
    orch.configure(config)
    result = orch("config", "check")
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize("block", [block for block in BLOCKS if story_of(block)], ids=lambda block: block.name)
def test_a_session_shows_what_orch_prints(orch, shell, fake, repo, block):
    orch.configure(program.EXAMPLE_CONFIG)
    story_of(block)(fake, block)
    sample = re.search(r"\d{8}T\d{6}", block.text)          # a run id; what is typed of one begins another one now
    script = re.sub(rf"^(.*) {sample[0][:9]}$", r"\1 20", block.script, flags=re.M) if sample else block.script
    result = shell("exec 2>&1\n" + script, options="-u", ok=False)
    shown = [words(line) for line in block.text.splitlines() if line and not line.startswith("$ ")]
    printed = [words(line) for line in result.out.splitlines()]
    if shown[-1] == ["..."]:
        shown, printed = shown[:-1], printed[:len(shown) - 1]
    assert printed == shown


def words(line):
    """A line without what differs from run to run: times, numbers, zones, ids, width of columns."""
    line = re.sub(r"\(Europe/Berlin\)|\(UTC\)", "ZONE", line)
    line = re.sub(r"\d{8}T\d{6}-[0-9a-f]{8}", "ID", line)
    line = re.sub(r"until (\w+ \d+, )?[\d:]+", "until WHEN", line)
    line = re.sub(r"in (\d+ (d|h|min|s) ?)+", "in SPAN ", line)
    line = re.sub(r"resets \d+(:\d+)?[ap]m", "resets CLOCK", line)
    return re.sub(r"\d+(\.\d+)?k?", "N", line).replace(" ,", ",").replace(" )", ")").split()


def test_every_story_is_told():
    assert [sum(part in block.text for block in BLOCKS) for part in STORIES] == [1] * len(STORIES)
