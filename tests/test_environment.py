"""What an agent's environment holds, and the guard against recursion."""
from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import claude_error, claude_ok, codex_ok, git, needs_root, one_line_error, step

GIT_LOCAL = {"GIT_DIR": "/elsewhere/.git", "GIT_INDEX_FILE": "/elsewhere/index", "GIT_WORK_TREE": "/elsewhere",
             "GIT_PREFIX": "sub/", "GIT_OBJECT_DIRECTORY": "/elsewhere/objects", "GIT_COMMON_DIR": "/elsewhere/.git",
             "GIT_ALTERNATE_OBJECT_DIRECTORIES": "/elsewhere/more"}
GIT_CONFIG = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
              "GIT_CONFIG_PARAMETERS": "'safe.directory=*'"}


def test_an_agent_gets_the_marks_of_its_attempt(orch, fake):
    fake("claude", claude_ok())
    result = orch("--json", "--model", "some-model", "hi").json
    env = fake.call.env
    assert env["ORCH_DEPTH"] == "1"
    assert env["ORCH_AGENT"] == "claude"
    assert env["ORCH_MODEL"] == "some-model"
    assert env["ORCH_TASK_ID"] == result["task_id"]
    assert env["ORCH_ATTEMPT_ID"] == result["task_id"] + ".1"


def test_every_attempt_has_an_id_of_its_own(orch, fake):
    fake("claude", claude_error())
    fake("codex", codex_ok())
    task_id = orch("--json", "hi").json["task_id"]
    assert [call.env["ORCH_ATTEMPT_ID"] for call in fake.calls] == [f"{task_id}.1", f"{task_id}.2"]
    assert [call.env["ORCH_AGENT"] for call in fake.calls] == ["claude", "codex"]


def test_two_runs_have_different_ids(orch, fake):
    fake("claude", claude_ok(), claude_ok())
    orch("hi")
    orch("hi")
    assert len({call.env["ORCH_TASK_ID"] for call in fake.calls}) == 2


def test_the_variables_of_a_git_hook_do_not_reach_the_agent(orch, fake):
    fake("claude", claude_ok())
    assert orch("hi", env={**GIT_LOCAL, **GIT_CONFIG}).code == 0
    assert not set(GIT_LOCAL) & set(fake.call.env)
    assert {name: fake.call.env.get(name) for name in GIT_CONFIG} == GIT_CONFIG


def test_a_run_inside_a_real_git_hook_works_on_its_own_repository(orch, fake, repo):
    hook = repo / ".git" / "hooks" / "pre-commit"
    hook.write_text(f"#!/bin/sh\n'{orch.program}' --json hi > ../result.json\n")
    hook.chmod(0o755)
    fake("claude", claude_ok(write={"made.txt": "x"}))
    (repo / "a.txt").write_text("changed\n")
    subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qam", "second"],
                   cwd=repo, env=orch.env, check=True, timeout=60)
    assert "GIT_INDEX_FILE" not in fake.call.env
    assert fake.call.cwd == str(repo)
    assert '"made.txt"' in (orch.base / "result.json").read_text()
    assert git("show", "--stat", "--format=%s", cwd=repo).split("\n")[0] == "second"


@pytest.mark.parametrize("name", ["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"])
def test_what_makes_a_nested_agent_refuse_is_removed(orch, fake, name):
    fake("claude", claude_ok())
    orch("hi", env={name: "1"})
    assert name not in fake.call.env


def test_the_rest_of_the_environment_is_handed_on(orch, fake):
    fake("claude", claude_ok())
    orch("hi", env={"MY_TOKEN": "abc", "EDITOR": "vi"})
    assert (fake.call.env["MY_TOKEN"], fake.call.env["EDITOR"]) == ("abc", "vi")
    assert fake.call.env["PATH"] == orch.env["PATH"]
    assert fake.call.env["HOME"] == orch.env["HOME"]


def test_the_config_sets_and_removes_variables(orch, fake):
    orch.configure({"agents": {"claude": {"env": {"MINE": "1"}, "unset_env": ["THEIRS"]}}})
    fake("claude", claude_ok())
    orch("hi", env={"THEIRS": "1"})
    assert fake.call.env["MINE"] == "1"
    assert "THEIRS" not in fake.call.env


def test_the_agent_runs_in_the_directory_that_was_asked_for(orch, fake):
    (orch.work / "sub dir").mkdir()
    fake("claude", claude_ok(), claude_ok())
    orch("hi")
    assert orch("-C", "sub dir", "--json", "hi").json["cwd"] == str(orch.work / "sub dir")
    assert [call.cwd for call in fake.calls] == [str(orch.work), str(orch.work / "sub dir")]
    assert fake.calls[1].env.get("PWD") in (None, str(orch.work / "sub dir"))


@pytest.mark.parametrize("depth", ["1", "7", "x", "1.5e"])
def test_a_run_inside_a_run_is_refused(orch, fake, depth):
    fake("claude")
    for arguments in (["hi"], ["run", "hi"], ["-p", "hi"]):
        one_line_error(orch(*arguments, env={"ORCH_DEPTH": depth}))
    assert fake.calls == [] and not orch.home.exists()


def test_a_refused_run_inside_a_run_has_a_result(orch, fake):
    fake("claude")
    result = orch("--json", "hi", env={"ORCH_DEPTH": "1"})
    assert (result.code, result.json["status"]) == (2, "rejected")


@pytest.mark.parametrize("depth", ["", "0"])
def test_depth_zero_is_the_outermost_run(orch, fake, depth):
    fake("claude", claude_ok())
    assert orch("hi", env={"ORCH_DEPTH": depth}).code == 0
    assert fake.call.env["ORCH_DEPTH"] == "1"


@pytest.mark.parametrize("command", [["status"], ["jobs"], ["usage"], ["config"], ["cooldown", "list"], ["-n", "hi"], ["--version"]])
def test_what_only_reads_works_inside_a_run(orch, fake, command):
    fake("claude")
    result = orch(*command, env={"ORCH_DEPTH": "1"})
    assert result.code == 0, result
    assert fake.calls == []


def test_an_agent_gets_an_empty_standard_input(orch, fake):
    fake("claude", claude_ok())
    orch("hi", input="the caller's own")
    assert fake.call.stdin == b""


def test_an_agent_that_writes_its_tokens_to_a_file_runs_where_there_is_no_room_for_one(orch, fake):
    answer = '{"type":"assistant.message","data":{"content":"42"}}\n{"type":"result","exitCode":0}\n'
    fake("copilot", step(stdout=answer))
    result = orch("-a", "copilot", "hi", env={"TMPDIR": "/nonexistent"})
    assert (result.code, result.out, result.err) == (0, "42\n", ""), result


@pytest.mark.parametrize("entry", ["", "."])
def test_a_relative_entry_of_path_runs_no_program_of_the_checkout(orch, fake, repo, entry):
    fake("claude", claude_ok("42"))
    fake("codex")
    for name in ("git", "claude"):
        (repo / name).write_text(f"#!/bin/sh\ntouch {orch.base}/started-{name}\n")
        (repo / name).chmod(0o755)
    path = f"{entry}:{orch.env['PATH']}"
    assert orch("--json", "hi", env={"PATH": path}).json["answer"] == "42"
    orch("agents", env={"PATH": path})
    assert list(orch.base.glob("started-*")) == []


@needs_root
def test_a_user_without_a_home_leaves_nothing_in_the_project(built, tmp_path):
    code = (f"import os, pwd, sys; sys.path.insert(0, {str(built.parent.parent)!r}); import orch\n"
            "os.setuid(54321); print(orch.make_world({}, os.getcwd(), None).home)")
    done = subprocess.run([sys.executable, "-IS", "-c", code], cwd=tmp_path, env={}, capture_output=True, text=True, check=True)
    assert done.stdout == "/.orch\n"
