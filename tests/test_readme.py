"""Every shell block of the README does what it says, as it is written.

A block runs with `bash -eu` in a world made from nothing: a home whose config is all of the README's JSON examples, fake
agents that answer anything, a git repository with a change. A block that names orch.py, make or `pip install .` runs in a
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
from conftest import ROOT, claude_limit, claude_ok, codex_ok, readme_blocks
from test_build import has_setuptools

import orch as program

NOT_RUN: dict[str, str] = {}                               # name of a block -> reason; as few as can be
BLOCKS = readme_blocks("sh", "bash", "console")
CLONE = ("orch.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "tests")
IN_CLONE = re.compile(r"\borch\.py\b|\bmake\b|pip install \.|pipx install \.")


def merge(below, above):
    """Two configs as orch merges them: objects merge, all else replaces."""
    for key, value in above.items():
        below[key] = merge(below[key], value) if isinstance(value, dict) and isinstance(below.get(key), dict) else value
    return below


def example_config():
    """All JSON examples of the README that are configs, as one."""
    known, config = set(program.DEFAULTS), {}
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
    # nothing here reaches the network: npm does nothing, pip installs what is here with the setuptools that are there
    executable(orch.agents / "npm", "#!/bin/sh\n")
    executable(orch.agents / "python3", f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
    executable(orch.agents / "pip", f"#!/bin/sh\nexec '{sys.executable}' -m pip \"$@\"\n")
    executable(orch.agents / "scontrol", "#!/bin/sh\n")
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
    if "pip install ." in script and not has_setuptools():
        return "needs setuptools 77"
    return None


@pytest.mark.parametrize("block", [block for block in BLOCKS if not block.not_run], ids=lambda block: block.name)
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
    assert set(fences[::2]) <= {"", "sh", "bash", "console", "json", "yaml", "python", "text"}
    assert not set(fences[1::2]) - {""}
    assert len({block.name for block in BLOCKS}) == len(BLOCKS)
    assert len(BLOCKS) >= 7


def test_the_json_examples_are_configs_that_orch_accepts(orch):
    config = example_config()
    assert len(config) > 5
    orch.configure(config)
    result = orch("config", "check")
    assert (result.code, result.err) == (0, "")


def test_the_session_at_the_top_is_what_orch_prints(orch, shell, fake):
    block = readme_blocks("console")[0]
    reset = (time.time() // 3600 + 2) * 3600
    said = re.search(r"^\$ orch \"add.*\norch: .*\n(.*)\n", block.text, re.M)[1]
    fake("claude", claude_limit(reset))
    fake("codex", codex_ok(said))
    shell.env["ORCH_HOME"] = str(orch.home)
    shell(f"git init -q {orch.work}")
    result = shell("exec 2>&1\n" + block.script)
    shown = [line for line in block.text.splitlines() if line and not line.startswith("$ ")]
    assert [words(line) for line in result.out.splitlines()] == [words(line) for line in shown]


def words(line):
    """A line without what differs from run to run: times, numbers, zones, width of columns."""
    line = re.sub(r"\(Europe/Berlin\)|\(UTC\)", "ZONE", line)
    line = re.sub(r"until [\d:]+, in (\d+ (d|h|min|s) ?)+", "until WHEN ", line)
    line = re.sub(r"resets \d+(:\d+)?[ap]m", "resets CLOCK", line)
    return re.sub(r"\d+(\.\d+)?k?", "N", line).split()
