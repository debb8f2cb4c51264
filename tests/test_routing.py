"""Which agent a prompt goes to, and with what arguments."""
from __future__ import annotations

import shutil
import time

import pytest
from conftest import claude_ok, codex_ok, one_line_error

import orch as orch_module


def route_of(orch, *arguments, **how):
    """The agent that a dry run reports."""
    return orch("-n", "--json", *arguments, **how).json["agent"]


@pytest.mark.parametrize(("prompt", "agent"), [
    ("please Refactor this", "codex"),
    ("prefactoring", "claude"),
    ("update the docs", "codex"),
    ("DOCS!", "codex"),
    ("docstring", "claude"),
    ("docs_x", "claude"),
    ("nothing special", "claude"),
    ("tune web/index.html please", "codex"),
    ("see site.css", "codex"),
    ("see site.css and main.py", "claude"),
    ("both alpha and beta in one", "codex"),
    ("only alpha", "claude"),
])
def test_the_first_rule_that_matches_decides(orch, fake, prompt, agent):
    orch.configure({"rules": [
        {"match": "\\brefactor\\b", "agent": "codex"},
        {"keywords": ["docs", "readme"], "agent": "codex"},
        {"paths": ["*.css", "web/**"], "agent": "codex"},
        {"match": "alpha", "keywords": ["beta"], "agent": "codex"},
        {"match": "refactor|docs", "agent": "claude"},
    ]})
    fake("claude")
    fake("codex")
    assert route_of(orch, prompt) == agent


def test_changed_files_count_before_the_names_in_the_prompt(orch, fake, repo):
    orch.configure({"rules": [{"paths": ["*.css", "web/**"], "agent": "codex"}]})
    fake("claude")
    fake("codex")
    (repo / "site.css").write_text("x")
    (repo / "web").mkdir()
    (repo / "web" / "deep.js").write_text("x")
    assert route_of(orch, "look at main.py") == "codex"
    (repo / "a.txt").write_text("changed\n")
    assert route_of(orch, "look at site.css") == "claude"


def test_git_is_asked_once_however_many_rules_have_paths(orch, fake, repo):
    fake("claude", claude_ok(), claude_ok())
    asked, counts = orch.base / "asked", []
    (orch.agents / "git").write_text(f'#!/bin/sh\necho "$@" >> {asked}\nexec {shutil.which("git")} "$@"\n')
    (orch.agents / "git").chmod(0o755)
    for rules in (1, 20):
        orch.configure({"rules": [{"paths": [f"no-such-{number}"], "agent": "codex"} for number in range(rules)]})
        for arguments in (["-n"], []):
            asked.write_text("")
            assert orch(*arguments, "look at a.txt").code == 0
            counts.append(len(asked.read_text().splitlines()))
    assert counts[:2] == counts[2:] and all(counts), counts


@pytest.mark.parametrize("prompt", [
    "look at @web/a.css", "fix {top}/web/a.css", "fix @{top}/web/a.css, please", "`{top}/web/a.css`", "./web/a.css and {top}/web/b/c.js"])
def test_a_file_may_be_named_as_people_and_agents_name_files(orch, fake, prompt):
    checkout = orch.base / "a checkout, mine"
    (checkout / ".git").mkdir(parents=True)
    (checkout / "web").mkdir()
    orch.configure({"rules": [{"paths": ["web/**"], "agent": "codex"}]})
    fake("claude")
    fake("codex")
    for folder in (checkout, checkout / "web"):
        assert route_of(orch, prompt.format(top=checkout), cwd=folder) == "codex"
    assert route_of(orch, "fix /elsewhere/web/a.css", cwd=checkout) == "claude"


def test_the_order_of_the_config_decides_without_a_rule(orch, fake):
    fake("claude")
    fake("codex")
    assert route_of(orch, "hi") == "claude"
    orch.configure({"order": ["codex", "claude"]})
    assert route_of(orch, "hi") == "codex"
    assert route_of(orch, "-a", "claude", "hi") == "claude"


def test_an_agent_wanted_by_name_beats_a_rule(orch, fake):
    orch.configure({"rules": [{"keywords": ["docs"], "agent": "codex", "model": "rules-model"}]})
    fake("claude", claude_ok())
    fake("codex")
    orch("-a", "claude", "the docs")
    assert "rules-model" not in fake.call.argv


def test_a_missing_agent_is_passed_over_in_silence(orch, fake):
    fake("codex", codex_ok("42"))
    result = orch("hi")
    assert (result.out, result.err) == ("42\n", "")


def test_a_cooling_agent_is_passed_over_without_its_rules_model(orch, fake):
    orch.configure({"rules": [{"keywords": ["docs"], "agent": "claude", "model": "rules-model", "effort": "high"}]})
    fake("claude")
    fake("codex", codex_ok())
    orch("cooldown", "set", "claude", "1h")
    orch("the docs")
    assert not {"rules-model"} & set(fake.call.argv)


def test_a_rule_gives_model_and_effort(orch, fake):
    orch.configure({"rules": [{"keywords": ["docs"], "agent": "codex", "model": "rules-model", "effort": "high"}]})
    fake("codex", codex_ok())
    value = orch("--json", "the docs").json
    assert "rules-model" in fake.call.argv
    assert any("high" in word for word in fake.call.argv)
    assert value["route"]["rule"] is not None
    assert (value["attempts"][0]["model"], value["attempts"][0]["effort"]) == ("rules-model", "high")


CONTEXTS = {"contexts": {"lean": {"claude": ["--lean-claude"], "codex": ["--lean-codex"]}, "rich": {"claude": ["--rich-claude"]}},
            "rules": [{"keywords": ["docs"], "context": "lean"}]}


@pytest.mark.parametrize(("arguments", "agent", "flag"), [
    (["-c", "lean", "hi"], "claude", "--lean-claude"),
    (["-c", "lean", "-a", "codex", "hi"], "codex", "--lean-codex"),
    (["the docs"], "claude", "--lean-claude"),
    (["-c", "rich", "the docs"], "claude", "--rich-claude"),
    (["-c", "rich", "-a", "codex", "hi"], "codex", None),
    (["hi"], "claude", None),
])
def test_a_context_adds_the_flags_of_whoever_runs(orch, fake, arguments, agent, flag):
    orch.configure(CONTEXTS)
    fake("claude", claude_ok())
    fake("codex", codex_ok())
    fake.forgive_unused = True
    orch(*arguments)
    assert fake.call.agent == agent
    assert [word for word in fake.call.argv if word.startswith(("--lean", "--rich"))] == ([flag] if flag else [])


def test_an_unknown_context_is_refused_before_anything_starts(orch, fake):
    orch.configure(CONTEXTS)
    fake("claude")
    assert "lean" in one_line_error(orch("-c", "leen", "hi"))


@pytest.mark.parametrize(("arguments", "agent", "model"), [
    (["-x", "simple", "hi"], "claude", "small-c"),
    (["-x", "complex", "-a", "codex", "hi"], "codex", "large-x"),
    (["-x", "simple", "-a", "codex", "hi"], "codex", None),
    (["-x", "simple", "-m", "mine", "hi"], "claude", "mine"),
    (["a simple thing"], "claude", "small-c"),
])
def test_a_complexity_picks_the_model_of_whoever_runs(orch, fake, arguments, agent, model):
    orch.configure({"model_map": {"simple": {"claude": "small-c"}, "complex": {"claude": "large-c", "codex": "large-x"}},
                    "rules": [{"keywords": ["thing"], "complexity": "simple"}]})
    fake("claude", claude_ok())
    fake("codex", codex_ok())
    fake.forgive_unused = True
    orch(*arguments)
    assert fake.call.agent == agent
    assert [word for word in fake.call.argv if word in ("small-c", "large-c", "large-x", "mine")] == ([model] if model else [])


def test_a_complexity_that_was_asked_for_beats_the_model_of_a_rule(orch, fake):
    orch.configure({"model_map": {"simple": {"claude": "small"}},
                    "rules": [{"keywords": ["thing"], "agent": "claude", "model": "large", "complexity": "complex"}]})
    fake("claude", claude_ok(), claude_ok())
    orch("do the thing")
    orch("-x", "simple", "do the thing")
    assert ["large" in call.argv for call in fake.calls] == [True, False]
    assert "small" in fake.calls[1].argv


def test_a_complexity_travels_to_the_next_agent(orch, fake):
    from conftest import claude_error
    orch.configure({"model_map": {"complex": {"claude": "large-c", "codex": "large-x"}}})
    fake("claude", claude_error())
    fake("codex", codex_ok())
    orch("-x", "complex", "hi")
    assert "large-c" in fake.calls[0].argv and "large-x" in fake.calls[1].argv


CLAUDE = ["-p", "--output-format", "stream-json", "--verbose"]
CODEX = ["exec", "--json", "--skip-git-repo-check"]


@pytest.mark.parametrize(("agent", "plain"), [("claude", CLAUDE), ("codex", CODEX)])
def test_own_access_passes_nothing(orch, fake, agent, plain):
    fake(agent, claude_ok() if agent == "claude" else codex_ok())
    orch("-a", agent, "--access", "own", "hi")
    assert sorted(fake.call.argv) == sorted([*plain, "--", "hi"])


@pytest.mark.parametrize(("agent", "access", "words"), [
    ("claude", "edit", ["acceptEdits"]),
    ("claude", "full", ["--dangerously-skip-permissions"]),
    ("codex", "read", ["read-only"]),
    ("codex", "edit", ["workspace-write"]),
    ("codex", "full", ["--dangerously-bypass-approvals-and-sandbox"]),
    ("gemini", "edit", ["auto_edit"]),
    ("gemini", "full", ["yolo"]),
])
def test_access_becomes_the_agents_own_flags(orch, fake, agent, access, words):
    fake(agent)
    value = orch("-n", "--json", "--no-failover", "-a", agent, "--access", access, "hi").out
    for word in words:
        assert word in value


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "gemini", "copilot"])
def test_the_three_levels_of_access_differ_and_edit_is_the_default(orch, fake, agent):
    fake(agent)
    shown = {}
    for access in ("read", "edit", "full"):
        shown[access] = orch("-n", "--no-failover", "-a", agent, "--access", access, "hi").out
    assert shown["read"] != shown["edit"]
    assert shown["read"] != shown["full"]
    assert orch("-n", "--no-failover", "-a", agent, "hi").out == shown["edit"]


@pytest.mark.parametrize(("agent", "model"), [("claude", ["--model", "m1"]), ("codex", ["-m", "m1"]), ("opencode", ["-m", "m1"]),
                                              ("gemini", ["-m", "m1"]), ("copilot", ["--model", "m1"])])
def test_a_model_is_passed_as_two_arguments(orch, fake, agent, model):
    fake(agent, claude_ok())
    orch("-q", "--no-failover", "-a", agent, "-m", "m1", "hi")
    words = " ".join(fake.call.argv)
    assert " ".join(model) in words or "--model m1" in words or "--model=m1" in words


@pytest.mark.parametrize(("glob", "path", "matches"), [
    ("*.css", "a.css", True), ("*.css", "x/y/a.css", True), ("/*.css", "a.css", True), ("/*.css", "x/a.css", False),
    ("web/**", "web/a", True), ("web/**", "web/x/y", True), ("web/**", "web", False), ("web/**", "other/web/a", False),
    ("web/*", "web/a", True), ("web/*", "web/x/y", False), ("**/a", "a", True), ("**/a", "x/y/a", True),
    ("x/**/a", "x/a", True), ("x/**/a", "x/1/2/a", True), ("x/**/a", "y/a", False), ("**", "x/y", True), ("**", "x", True),
    ("a?c", "abc", True), ("a?c", "ac", False), ("a?c", "a/c", False), ("*a*b*", "xaxbx", True), ("*a*b*", "xbxax", False),
    ("[a-c]x", "bx", True), ("[a-c]x", "dx", False), ("[!a-c]x", "dx", True), ("[!a-c]x", "ax", False), ("[z-a]", "z", False),
    ("docs/", "docs/a", True), ("docs/", "docs/x/y", True), ("docs/", "x/docs/y", True), ("docs/", "docs", False), ("docs/", "docsy/a", False),
    ("/docs/", "x/docs/y", False), ("a/docs/", "a/docs/y", True), ("a/docs/", "docs/y", False), ("d*/", "docs/a", True), ("**/", "x/y", True),
    ("docs", "docs/a", True), ("docs", "x/docs/y/z", True), ("docs", "docs", True), ("/docs", "x/docs/y", False), ("a/docs", "a/docs/y", True),
    ("docs", "docs.md", False), ("*.css", "a.css/b", False),
    ("a[", "a[", True), ("a.c", "abc", False), ("*/a/**/b", "x/a/a/c/b", True), ("a/**/b/**/c", "a/b/b/x/c", True),
])
def test_a_glob_matches_as_in_gitignore(glob, path, matches):
    assert orch_module.glob_matches(glob, path) is matches


def test_a_glob_of_a_checkout_cannot_hang_a_run(orch, fake, repo):
    orch.configure({"rules": [{"paths": [".orch/**", "*a" * 20 + "b", "**/a" * 20 + "/b"], "agent": "codex"}]},
                   repo / ".orch" / "config.json")
    (repo / ("a" * 60)).write_text("x")
    fake("claude")
    fake("codex")
    assert route_of(orch, "hi", timeout=20) == "claude"


@pytest.mark.parametrize("glob", ["[" * 990, "*[" + "a-b" * 320 + "]x", "*a" * 400 + "b"], ids=["brackets", "class", "stars"])
def test_many_globs_of_a_checkout_on_many_files_take_little_time(glob):
    begun = time.process_time()
    paths = [f"web/a_rather_long_name_of_a_file_{number}" for number in range(100)]
    assert not any(orch_module.glob_matches(glob + str(number), path) for number in range(60) for path in paths)
    assert time.process_time() - begun < 4
