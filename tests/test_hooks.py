"""The README's git hooks, as they stand there, in real repositories: whatever happens, git goes on."""
from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import claude_error, claude_limit, claude_ok, git, needs_git, recipe, step, wait_until

import orch as program

pytestmark = needs_git
READ = next(agent for agent in program.AGENTS if agent.name == "claude").access_args["read"]


def asked(fake):
    """The prompt of the only call, text; it may only read, and is in no hook's git."""
    call = fake.call
    assert set(READ) <= set(call.argv)
    assert not [name for name in call.env if name in program.GIT_LOCAL_VARIABLES]
    return call.prompt.decode("utf-8", "replace")


def head(repo, form="%B"):
    return git("log", "-1", f"--format={form}", cwd=repo).rstrip("\n")


@pytest.fixture
def editor(orch):
    """An editor that keeps what it was shown and changes nothing: editor() is the text."""
    script, seen = orch.base / "editor", orch.base / "seen"
    script.write_text(f"#!/bin/sh\ncat \"$1\" > {seen}\n")
    script.chmod(0o755)

    def read():
        return seen.read_text()
    read.command = str(script)
    return read


# === PREPARE-COMMIT-MSG ==================================================

@pytest.fixture
def drafting(repo, shell, editor):
    """A repository with the README's prepare-commit-msg hook, and a change of a.txt that is not staged."""
    shell.env["GIT_EDITOR"] = editor.command
    shell(recipe("sh", "hooks/prepare-commit-msg"))
    (repo / "a.txt").write_text("one\nTWO\n")
    return repo


def test_a_draft_of_what_is_staged_stands_above_gits_comments(drafting, shell, fake, editor):
    fake("claude", claude_ok("Say it louder\n\nNobody heard it."))
    (drafting / "b.txt").write_text("staged\n")
    shell("git add b.txt && git commit")
    assert "+staged" in asked(fake)
    assert "TWO" not in asked(fake)
    assert re.match(r"Say it louder\n\nNobody heard it.\n\n# Please enter the commit message", editor())
    assert head(drafting) == "Say it louder\n\nNobody heard it."
    assert not list((drafting / ".git").glob("*.draft"))


@pytest.mark.parametrize("command", ["git commit -a", "git commit a.txt", "git commit -i a.txt", "git -C sub commit -a", "git commit -av"])
def test_the_hook_sees_the_index_that_only_git_knows(drafting, shell, fake, editor, command):
    fake("claude", claude_ok("Louder"))
    (drafting / "sub").mkdir()
    shell(command)
    assert "+TWO" in asked(fake)
    assert head(drafting) == "Louder"
    assert git("status", "--porcelain", cwd=drafting) == ""


def test_the_hook_sees_the_hunks_that_were_picked(drafting, shell, fake):
    lines = [f"{number}\n" for number in range(40)]
    (drafting / "a.txt").write_text("".join(lines))
    shell("git add a.txt && git commit -qm lines")
    lines[2], lines[35] = "picked\n", "left\n"
    (drafting / "a.txt").write_text("".join(lines))
    fake("claude", claude_ok("Pick one"))
    shell("git commit -p", input="y\nn\n")
    assert "+picked" in asked(fake)
    assert "+left" not in asked(fake)
    assert head(drafting) == "Pick one"
    assert "+left" in git("diff", cwd=drafting)


def test_in_a_worktree_it_is_the_worktrees_index(drafting, shell, fake, tmp_path):
    other = tmp_path / "other"
    shell(f"git worktree add -q {other}")
    (other / "b.txt").write_text("from the worktree\n")
    fake("claude", claude_ok("Elsewhere"))
    shell("git commit -a", cwd=other)
    assert "+from the worktree" in asked(fake)
    assert fake.call.cwd == str(other)
    assert (head(other), head(drafting)) == ("Elsewhere", "first")


def test_the_first_commit_of_all_gets_a_draft(shell, orch, fake, tmp_path):
    new = tmp_path / "new"
    new.mkdir()
    shell("git init -q", cwd=new)
    shell(recipe("sh", "hooks/prepare-commit-msg"), cwd=new)
    (new / "x").write_text("hello\n")
    fake("claude", claude_ok("Begin"))
    shell("git add x && git commit", cwd=new)
    assert "+hello" in asked(fake)
    assert head(new) == "Begin"


@pytest.mark.parametrize("command", [
    "git commit -qam mine", "git commit -qa -F ../message", "git commit -qa --amend --no-edit", "git commit -qa --amend",
    "git commit -qa -C HEAD", "git commit -qa -t ../message --no-edit || true", "git commit -qa --fixup HEAD",
    "git commit -qa --allow-empty-message -m ''"])
def test_a_message_that_is_there_already_stays(drafting, shell, fake, command):
    fake("claude")
    (drafting.parent / "message").write_text("from a file\n")
    shell(command)
    assert fake.calls == []
    assert head(drafting) in ("mine", "from a file", "first", "fixup! first", "")


@pytest.mark.parametrize("command", [
    "git merge -q side", "git merge -q --no-ff side", "git merge -q --squash side && git commit -q", "git cherry-pick side",
    "git revert HEAD", "git rebase -q side", "git cherry-pick -e side", "git merge -q side -m mine"])
def test_merges_picks_and_rebases_keep_their_messages(drafting, shell, fake, editor, command):
    fake("claude")
    shell("git commit -qam main && git checkout -qb side HEAD~1 && echo new > c.txt && git add c.txt && git commit -qm side"
          " && git checkout -q main")
    shell(command)
    assert fake.calls == []
    assert re.match("Merge branch 'side'|Squashed commit|side|Revert \"main\"|main|mine", head(drafting))


def test_a_conflict_keeps_its_message(drafting, shell, fake):
    fake("claude")
    shell("git commit -qam main && git checkout -qb side HEAD~1 && echo other > a.txt && git commit -qam side && git checkout -q main")
    assert shell("git merge side", ok=False).code == 1
    shell("echo both > a.txt && git add a.txt && git commit")
    assert fake.calls == []
    assert head(drafting).startswith("Merge branch 'side'")


def test_an_interactive_rebase_keeps_messages(drafting, shell, fake, editor):
    fake("claude")
    shell("git commit -qam main && echo 3 > b.txt && git commit -qam last")
    shell("git rebase -q -i HEAD~2", GIT_SEQUENCE_EDITOR="sed -i 's/^pick/reword/'")
    shell("git rebase -q -i HEAD~2", GIT_SEQUENCE_EDITOR="sed -i '2s/^pick/squash/'")
    assert fake.calls == []
    assert head(drafting) == "main\n\nlast"


def test_nothing_staged_asks_nobody(drafting, shell, fake, editor):
    fake("claude")
    assert shell("git commit --allow-empty", ok=False).code == 1      # an empty message, as without the hook
    assert fake.calls == []
    assert editor().startswith("\n# Please enter")


FAILURES = {"error": [claude_error()], "limit": [claude_limit(time.time() + 7200)], "crash": [step(kill=9)],
            "nothing said": [claude_ok("")], "slow": [step(run="time.sleep(60)")]}


@pytest.mark.parametrize("how", [*FAILURES, "no agent", "no orch", "inside an agent"])
def test_without_a_draft_the_commit_is_as_without_the_hook(drafting, shell, fake, editor, how):
    if how != "no agent":
        fake("claude", *FAILURES.get(how, []))
    if how == "no orch":
        (shell.orch.agents / "orch").unlink()
    hook = drafting / ".git" / "hooks" / "prepare-commit-msg"
    hook.write_text(hook.read_text().replace("--deadline 1m", "--deadline 0.5"))
    env = {"ORCH_DEPTH": "1"} if how == "inside an agent" else {}
    done = shell("git commit -a", ok=False, **env)
    assert "Aborting commit due to empty commit message" in done.err
    assert re.match(r"\n+# Please enter the commit message", editor())
    assert not list((drafting / ".git").glob("*.draft"))
    shell.env["GIT_EDITOR"] = "echo by hand >"
    fake.forgive_unused = True
    shell("git commit -a", PATH=shell.env["PATH"].replace(str(shell.orch.agents), "/nowhere"))
    assert head(drafting) == "by hand"


def test_a_disk_that_is_full_leaves_the_message_as_it_was(drafting, shell, fake, editor):
    fake("claude", claude_ok("x" * 90_000))
    done = shell("ulimit -f 64; git commit -a", ok=False)
    assert "Aborting commit due to empty commit message" in done.err
    assert re.match(r"\n# Please enter", editor())
    assert not list((drafting / ".git").glob("*.draft"))


def test_binary_and_huge_changes_are_told_in_short(drafting, shell, fake):
    (drafting / "image").write_bytes(bytes(range(256)) * 100)
    (drafting / "long").write_text("".join(f"line {number} \u00e9\n" for number in range(200_000)))
    fake("claude", claude_ok("Add much"))
    shell("git add . && git commit")
    prompt = asked(fake)
    assert len(prompt.encode()) < 101_000
    assert "Binary files /dev/null and b/image differ" in prompt
    assert re.search(r"long +\| +200000", prompt)
    assert head(drafting) == "Add much"


def test_colours_and_foreign_diffs_do_not_reach_the_prompt(drafting, shell, fake):
    shell("git config color.ui always && git config diff.external 'echo EXTERNAL' && git config commit.verbose true")
    fake("claude", claude_ok("Plain"))
    shell("git commit -a")
    assert "\x1b" not in asked(fake)
    assert "EXTERNAL" not in asked(fake)
    assert "+TWO" in asked(fake)
    assert head(drafting) == "Plain"


def test_fences_and_headings_do_not_cost_the_message(drafting, shell, fake):
    fake("claude", claude_ok("```\n# Title\n\nbody\n```"))
    shell("git commit -a")
    assert head(drafting) == " # Title\n\nbody"


@pytest.mark.parametrize("words", ["hooks/prepare-commit-msg", "hooks/pre-push"])
@pytest.mark.parametrize("with_shell", ["sh", "bash", "zsh"])
def test_a_hook_that_is_there_already_stays_and_the_shell_says_so(repo, shell, words, with_shell):
    if shutil.which(with_shell) is None:
        pytest.skip(f"{with_shell} is not installed")
    hook = repo / ".git" / words
    hook.write_text("theirs")
    hook.chmod(0o600)
    done = shell(f"{with_shell} -s", input=recipe("sh", words), ok=False)
    assert hook.read_text() == "theirs" and not os.access(hook, os.X_OK)
    assert re.search("exist", done.err), done
    hook.unlink()
    assert shell(f"{with_shell} -s", input=recipe("sh", words)).err == ""
    assert hook.read_text().startswith("#!/bin/sh\n") and os.access(hook, os.X_OK)


def test_an_interrupt_leaves_no_draft_behind(drafting, shell, fake):
    fake("claude", step(run="time.sleep(60)"))
    process = subprocess.Popen(["git", "commit", "-a"], cwd=drafting, env=shell.env, start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: fake.calls, what="the agent")
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=20) != 0
    wait_until(lambda: not shell.orch.leftovers(), timeout=20, what="the end of the hook")
    assert not list((drafting / ".git").glob("*.draft"))


def test_no_hook_runs_roles_whatever_the_config_says(pushing, shell, fake):
    shell.orch.configure({"roles": {"reviewer": {"prompt": "You review."}},
                          "auto": {"enabled": True, "rules": [{"role": "reviewer", "keywords": ["review", "write"]}]}})
    fake("claude", claude_ok("fine"), claude_ok("Say more"))
    assert "fine" in shell("git push").err
    shell(recipe("sh", "hooks/prepare-commit-msg"))
    shell("echo x > a.txt && git commit -a")
    assert head(pushing) == "Say more"
    assert not (pushing / ".orch").exists()


def test_a_hooks_path_of_the_users_is_where_it_goes(repo, shell, fake):
    shell("git config core.hooksPath .githooks")
    shell(recipe("sh", "hooks/prepare-commit-msg"))
    assert os.access(repo / ".githooks" / "prepare-commit-msg", os.X_OK)
    fake("claude", claude_ok("Through it"))
    shell("echo x > a.txt && git commit -a")
    assert head(repo) == "Through it"


# === PRE-PUSH ============================================================

@pytest.fixture
def pushing(repo, shell, tmp_path):
    """A repository with the README's pre-push hook, a remote that has its first commit, and a second commit."""
    shell(f"git init -q --bare {tmp_path}/remote.git && git remote add origin {tmp_path}/remote.git && git push -q -u origin main")
    shell(recipe("sh", "hooks/pre-push"))
    shell("echo pushed > a.txt && git commit -qam second")
    return repo


def remote_head(repo, branch="main"):
    return git("ls-remote", "origin", branch, cwd=repo).partition("\t")[0]


def test_a_review_of_what_is_new_is_shown_and_the_push_goes_on(pushing, shell, fake):
    fake("claude", claude_ok("a.txt:1: looks odd"), claude_ok("fine"))
    done = shell("git push")
    assert "a.txt:1: looks odd" in done.err
    assert "+pushed" in asked(fake)
    assert "+bee" not in asked(fake)
    assert remote_head(pushing) == head(pushing, "%H")
    shell("echo more > b.txt && git commit -qam third && git push")
    assert "+more" in fake.calls[1].prompt.decode()
    assert "+pushed" not in fake.calls[1].prompt.decode()


@pytest.mark.parametrize("command", ["git push origin HEAD:refs/heads/topic", "git push ../remote.git main:topic",
                                     "git tag -a v1 -m v1 && git push origin v1", "git push origin main HEAD:topic"])
def test_branches_addresses_and_tags_are_reviewed_once(pushing, shell, fake, command):
    fake("claude", claude_ok("fine"))
    shell(command)
    assert "+pushed" in asked(fake)
    assert "+bee" not in asked(fake)


def test_where_nothing_is_new_nobody_is_asked(pushing, shell, fake):
    fake("claude", claude_ok("fine"))
    shell("git push")
    shell("git push && git push origin main:same && git push origin :same && git push --tags")
    assert len(fake.calls) == 1


def test_a_worktree_pushes_its_own_branch(pushing, shell, fake, tmp_path):
    other = tmp_path / "other"
    shell(f"git worktree add -q -b other {other} HEAD~1")
    fake("claude", claude_ok("fine"))
    shell("echo elsewhere > b.txt && git commit -qam other && git push -q origin other", cwd=other)
    assert "+elsewhere" in asked(fake)
    assert "+pushed" not in asked(fake)


@pytest.mark.parametrize("how", ["limit", "error", "crash", "slow", "no agent", "no orch"])
def test_without_a_review_the_push_warns_and_goes_on(pushing, shell, fake, how):
    if how != "no agent":
        fake("claude", *FAILURES.get(how, []))
    hook = pushing / ".git" / "hooks" / "pre-push"
    hook.write_text(hook.read_text().replace("--deadline 2m", "--deadline 0.5"))
    if how == "no orch":
        (shell.orch.agents / "orch").unlink()
    done = shell("git push")
    assert "pre-push: pushing without a review" in done.err
    assert how != "limit" or re.search(r"orch: .*limit.* \(until ", done.err)
    assert remote_head(pushing) == head(pushing, "%H")


# === PRE-COMMIT ==========================================================

@pytest.fixture
def framework(repo, shell):
    """A repository with the README's .pre-commit-config.yaml, the framework installed."""
    if importlib.util.find_spec("pre_commit") is None:
        pytest.skip("pre-commit is not installed (pip install pre-commit)")
    (repo / ".pre-commit-config.yaml").write_text(recipe("yaml", "repo: local"))
    shell.env["PRE_COMMIT_HOME"] = str(shell.orch.base / "pre-commit")
    (shell.orch.agents / "pre-commit").write_text(f"#!/bin/sh\nexec '{sys.executable}' -m pre_commit \"$@\"\n")
    (shell.orch.agents / "pre-commit").chmod(0o755)
    shell("git add . && git commit -qm config && pre-commit install")
    (repo / "a.txt").write_text("one\nTWO\n")
    return repo


@pytest.mark.parametrize("command", ["git commit -qam second", "git add a.txt && git commit -qm second", "git commit -qm second a.txt",
                                     "git commit -qa --amend --no-edit"])
def test_the_framework_shows_the_review(framework, shell, fake, command):
    fake("claude", claude_ok("a.txt:2: too loud"))
    before = head(framework, "%H")
    done = shell(command)
    assert "a.txt:2: too loud" in done.out + done.err
    assert "+TWO" in asked(fake)
    assert head(framework, "%H") != before


def test_the_framework_reviews_the_hunks_that_were_picked(framework, shell, fake):
    (framework / "b.txt").write_text("left\n")
    fake("claude", claude_ok("fine"))
    shell("git commit -p -m second", input="y\nn\n")
    assert "+TWO" in asked(fake)
    assert "+left" not in asked(fake)


def test_the_framework_in_a_worktree(framework, shell, fake, tmp_path):
    other = tmp_path / "other"
    shell(f"git worktree add -q {other}")
    fake("claude", claude_ok("fine"))
    shell("echo elsewhere > b.txt && git commit -qam other", cwd=other)
    assert "+elsewhere" in asked(fake)


@pytest.mark.parametrize("how", ["limit", "error", "no agent"])
def test_the_framework_never_blocks(framework, shell, fake, how):
    if how != "no agent":
        fake("claude", *FAILURES.get(how, []))
    shell("git commit -qam second")
    assert head(framework) == "second"


def test_the_framework_asks_nobody_about_nothing(framework, shell, fake):
    fake("claude")
    shutil.copy(framework / "b.txt", framework / "a.txt")
    shell("pre-commit run --all-files")
    assert fake.calls == []
