"""What happens when an agent cannot go on: who is next, what it is told, and what stays benched."""
from __future__ import annotations

import hashlib
import time

import pytest
from conftest import (
    SESSION,
    THREAD,
    claude_auth,
    claude_error,
    claude_failed,
    claude_limit,
    claude_ok,
    codex_auth,
    codex_failed,
    codex_limit,
    codex_ok,
    codex_overloaded,
    epoch_of,
    git,
    one_line_error,
    step,
)

HOUR = 3600


@pytest.fixture
def three(orch, fake):
    """A third agent, `mine`, that prints text."""
    orch.configure({"order": ["claude", "codex", "mine"],
                    "agents": {"mine": {"command": ["mine"], "output": "text", "limit_patterns": ["credits used up"]}}})
    for name in ("claude", "codex", "mine"):
        fake(name)
    return fake


def outcomes(result):
    return [(one["agent"], one["outcome"]) for one in result.json["attempts"]]


# --- who is next ---------------------------------------------------------

def test_a_limit_hands_over_to_the_next_agent_with_the_request(orch, fake):
    fake("claude", claude_limit(time.time() + 2 * HOUR))
    fake("codex", codex_ok("finished"))
    result = orch("rename foo to bar,\nplease")
    assert (result.code, result.out) == (0, "finished\n"), result
    handoff = fake.calls[1].prompt.decode()
    assert "rename foo to bar,\nplease" in handoff
    assert "claude" in handoff and "limit" in handoff
    assert any("claude" in line and "codex" in line for line in result.notices), result


@pytest.mark.parametrize("first", [claude_auth(), claude_error(), step(exit=127), step(exit=126)],
                         ids=["auth", "overloaded", "launcher 127", "launcher 126"])
def test_any_other_end_hands_over_too(orch, fake, first):
    fake("claude", first)
    fake("codex", codex_ok("finished"))
    assert orch("go").out == "finished\n"


def test_a_plain_failure_fails_over_once_only(orch, three):
    three("claude", claude_error())
    three("codex", codex_overloaded())
    result = orch("--json", "go")
    assert result.code == 1
    assert outcomes(result) == [("claude", "failed"), ("codex", "failed")]


@pytest.mark.parametrize(("first", "second"), [
    (claude_limit(time.time() + HOUR), codex_auth()),
    (claude_auth(), codex_limit()),
    (step(exit=127), codex_auth()),
    (claude_error(), codex_limit()),
    (claude_limit(time.time() + HOUR), codex_overloaded()),
], ids=["limit auth", "auth limit", "not found auth", "failed limit", "limit failed"])
def test_limits_and_missing_logins_move_on_through_the_list(orch, three, first, second):
    three("claude", first)
    three("codex", second)
    three("mine", step(stdout="finished\n"))
    assert orch("go").out == "finished\n"
    assert three.names == ["claude", "codex", "mine"]


def test_no_agent_is_tried_twice(orch, three):
    three("codex", codex_limit())
    three("claude", claude_auth())
    three("mine", step(exit=127))
    orch("-a", "codex", "go")
    assert three.names == ["codex", "claude", "mine"]


@pytest.mark.parametrize(("first", "code"), [(claude_limit(time.time() + HOUR), 75), (claude_auth(), 77), (claude_error(), 1)],
                         ids=["limit", "auth", "failed"])
def test_no_failover_stays_with_one_agent(orch, fake, first, code):
    fake("claude", first)
    fake("codex")
    assert orch("--no-failover", "go").code == code
    assert fake.names == ["claude"]


def test_no_failover_takes_no_substitute_at_routing_either(orch, fake):
    fake("codex")
    result = orch("--no-failover", "--json", "-a", "claude", "go")
    assert (result.code, result.json["status"]) == (127, "unavailable"), result
    orch("cooldown", "set", "codex", "1h")
    result = orch("--no-failover", "--json", "-a", "codex", "go")
    assert (result.code, result.json["status"]) == (75, "unavailable"), result
    assert fake.calls == []


def test_a_substitute_for_a_wanted_agent_is_told(orch, fake):
    fake("codex", codex_ok())
    result = orch("-a", "claude", "go")
    assert result.code == 0
    assert any("claude" in line and "codex" in line for line in result.notices), result


def test_the_model_of_the_preferred_agent_does_not_travel(orch, fake):
    fake("claude", claude_error())
    fake("codex", codex_ok())
    orch("-m", "some-model", "-e", "high", "go")
    assert "some-model" in fake.calls[0].argv
    assert not any("some-model" in word or "high" in word for word in fake.calls[1].argv[:-1])


# --- exit statuses -------------------------------------------------------

CASES = [
    ([claude_limit(time.time() + HOUR)], [codex_limit()], 75, "unavailable"),
    ([claude_limit(time.time() + HOUR)], [codex_auth()], 75, "unavailable"),
    ([claude_auth()], [codex_limit()], 75, "unavailable"),
    ([claude_auth()], [codex_auth()], 77, "failed"),
    ([claude_error()], [codex_auth()], 1, "failed"),
    ([claude_auth()], [codex_overloaded()], 1, "failed"),
    ([claude_error()], [step(exit=127)], 1, "failed"),
    ([claude_limit(time.time() + HOUR)], [codex_overloaded()], 1, "failed"),
    ([step(exit=127)], [step(exit=127)], 127, "unavailable"),
]


@pytest.mark.parametrize(("claude", "codex", "code", "status"), CASES, ids=[
    "limit limit", "limit auth", "auth limit", "auth auth", "failed auth", "auth failed", "failed missing", "limit failed",
    "missing missing"])
def test_the_attempts_decide_the_exit_status(orch, fake, claude, codex, code, status):
    fake("claude", *claude)
    fake("codex", *codex)
    result = orch("--json", "go")
    value = result.json
    assert (result.code, value["exit_code"], value["status"]) == (code, code, status), result
    assert (value["retry_at"] is not None) == (code == 75)


def test_an_agent_skipped_as_cooling_counts_as_a_limit(orch, fake):
    fake("claude")
    fake("codex", codex_auth())
    orch("cooldown", "set", "claude", "1h")
    assert orch("go").code == 75


def test_no_agent_installed_is_127_with_help(orch, fake):
    result = orch("go")
    assert (result.code, result.out) == (127, "")
    text = result.err
    assert "orch demo" in text and "claude" in text and "codex" in text and orch.env["PATH"] in text
    assert orch("--json", "go").json["status"] == "unavailable"


def test_a_timeout_is_124(orch, fake):
    fake("claude", step(run="time.sleep(30)"))
    result = orch("--json", "--no-failover", "-t", "0.3", "go")
    value = result.json
    assert (result.code, value["status"], value["error_class"]) == (124, "failed", "timeout"), result


def test_a_deadline_is_124(orch, fake):
    fake("claude", step(run="time.sleep(30)"))
    fake("codex")
    begun = time.monotonic()
    assert orch("--deadline", "0.5", "go").code == 124
    assert time.monotonic() - begun < 6


# --- cooldowns -----------------------------------------------------------

def test_a_stated_reset_benches_the_agent_until_then(orch, fake):
    reset = int(time.time()) + 2 * HOUR
    fake("claude", claude_limit(reset))
    fake("codex", codex_ok(), codex_ok("second"))
    first = orch("--json", "go").json
    assert epoch_of(first["attempts"][0]["retry_at"]) == reset
    assert orch("go").out == "second\n"
    assert fake.names == ["claude", "codex", "codex"]
    assert "claude" in orch.state()["cooldowns"]
    alone = orch("--no-failover", "--json", "-a", "claude", "go")
    assert (alone.code, epoch_of(alone.json["retry_at"])) == (75, reset)
    assert orch.state()["cooldowns"]["claude"]


def test_a_reset_printed_to_the_minute_gets_one_more(orch, fake):
    reset = int(time.time()) // 60 * 60 + 3 * 24 * HOUR
    fake("codex", codex_limit(reset))
    result = orch("--json", "go")
    assert (result.code, epoch_of(result.json["retry_at"])) == (75, reset + 60)


def test_the_earliest_reset_is_the_one_to_wait_for(orch, fake):
    now = int(time.time())
    fake("claude", claude_limit(now + 3 * HOUR))
    fake("codex", codex_limit())
    result = orch("--json", "go")
    assert abs(epoch_of(result.json["retry_at"]) - now - 300) < 10


def test_a_limit_without_a_time_cools_longer_each_time(orch, fake):
    orch.configure({"default_cooldown": 1})
    fake("codex", codex_limit(), codex_limit(), codex_ok(), codex_limit())
    for count, expected in ((1, 1), (2, 3), (None, None), (1, 1)):    # the third run answers: the count begins anew
        value = orch("--json", "--wait", "20s", "go") if expected is None else orch("--json", "go")
        assert (value.json["retry_at"] is None) == (expected is None), value
        assert orch.state()["limit_counts"].get("codex") == count
        if expected:
            entry = orch.state()["cooldowns"]["codex"]
            length = epoch_of(entry["until"]) - epoch_of(entry["set_at"])     # in whole seconds, outwards
            assert expected <= length <= expected + 2, entry
            time.sleep(max(0, epoch_of(entry["until"]) - time.time()) + 0.1)


@pytest.mark.parametrize("first", [claude_auth(), claude_error(), step(exit=127), claude_failed("rate limiter added", status=400)],
                         ids=["auth", "overloaded", "not found", "failed"])
def test_only_a_limit_benches(orch, fake, first):
    orch.configure({"handoff": {"summary": False}})
    fake("claude", first)
    fake("codex", codex_ok())
    orch("go")
    assert not orch.state().get("cooldowns")


def test_work_about_rate_limits_benches_nobody(orch, fake):
    fake("claude", claude_ok("Added: You've hit your usage limit, try again at 3pm. HTTP 429."))
    assert orch("handle `You've hit your usage limit` and 429").code == 0
    assert not orch.state().get("cooldowns")


def test_a_user_sets_lists_and_clears_cooldowns(orch, fake):
    fake("claude", claude_ok())
    fake("codex", codex_ok())
    assert orch("cooldown", "set", "claude", "2h").code == 0
    listed = orch("cooldown", "list", "--json").json
    assert isinstance(listed, list) and len(listed) == 1
    assert "claude" in str(listed[0]) and "user" in str(listed[0])
    assert "claude" in orch("cooldown", "list").out
    orch("go")
    assert fake.names == ["codex"]
    assert orch("cooldown", "clear", "claude").code == 0
    assert orch("cooldown", "list", "--json").json == []
    orch("go")
    assert fake.names == ["codex", "claude"]
    orch("cooldown", "set", "claude", "2h")
    orch("cooldown", "set", "codex", "2h")
    assert orch("cooldown", "clear", "--all").code == 0
    assert orch("cooldown", "list", "--json").json == []


def test_a_cooldown_of_one_model_leaves_the_agent_usable(orch, fake):
    fake("claude", claude_ok())
    fake("codex", codex_ok())
    orch("cooldown", "set", "claude:big-model", "2h")
    orch("go")
    orch("-a", "claude", "-m", "big-model-4", "go")
    assert fake.names == ["claude", "codex"]


def test_a_limit_on_the_model_that_was_passed_cools_that_model_only(orch, fake):
    fake("claude", claude_limit(time.time() + HOUR, kind="seven_day_opus"), claude_ok("other model"))
    fake("codex", codex_ok())
    orch("-a", "claude", "-m", "opus", "go")
    assert orch("-a", "claude", "-m", "sonnet", "go").out == "other model\n"
    assert fake.names == ["claude", "codex", "claude"]


def test_status_shows_who_is_cooling_and_why(orch, fake):
    fake("claude", claude_limit(time.time() + HOUR))
    fake("codex", codex_ok())
    orch("go")
    value = orch("status", "--json").json
    assert "claude" in str(value)
    shown = orch("status").out
    assert "claude" in shown and "codex" in shown
    assert fake.names == ["claude", "codex"]


# --- waiting -------------------------------------------------------------

def test_wait_returns_at_once_when_an_agent_is_free(orch, fake):
    fake("claude")
    assert orch("wait", timeout=10).code == 0


def test_wait_returns_when_the_cooldown_ends(orch, fake):
    fake("claude")
    orch("cooldown", "set", "claude", "1s")
    begun = time.monotonic()
    assert orch("wait", "claude", timeout=20).code == 0
    assert time.monotonic() - begun > 0.5


def test_wait_gives_up_after_max(orch, fake):
    fake("claude")
    orch("cooldown", "set", "claude", "1h")
    assert orch("wait", "--max", "0.2", timeout=20).code == 75


def test_a_run_waits_for_the_earliest_reset_when_asked(orch, fake):
    fake("claude", claude_ok("after"))
    orch("cooldown", "set", "claude", "1s")
    value = orch("--wait", "20s", "--json", "go", timeout=30).json
    assert (value["answer"], value["route"]) == ("after", {"agent": "claude", "reason": "order", "rule": None})


def test_a_run_waits_for_a_limit_that_it_met_itself(orch, fake):
    orch.configure({"default_cooldown": 1})
    fake("codex", codex_limit(), codex_ok("after"))
    result = orch("--wait", "20s", "--json", "go", timeout=30).json
    assert (result["answer"], [a["outcome"] for a in result["attempts"]]) == ("after", ["limited", "ok"])


def test_a_run_does_not_wait_longer_than_asked_or_unasked(orch, fake):
    fake("claude")
    orch("cooldown", "set", "claude", "1h")
    begun = time.monotonic()
    assert orch("go").code == 75
    assert orch("--wait", "0.3", "go").code == 75
    assert orch("--wait", "forever", "--deadline", "0.5", "go").code == 124
    assert time.monotonic() - begun < 6


LAUNCHER = step(exit=127)


@pytest.mark.parametrize(("other", "config", "state"), [
    (claude_auth(), {}, None), (LAUNCHER, {}, None), (claude_failed("The widget could not be frobnicated."), {}, None),
    (claude_auth(), {}, "newer"), (claude_auth(), {}, "none"), (claude_auth(), {"default_cooldown": 0}, None),
], ids=["not logged in", "a launcher of nothing", "failed", "newer state", "no home", "no cooldown"])
def test_waiting_starts_nobody_again_before_its_time_and_ends_in_time(orch, fake, other, config, state):
    """Whether the limit can be remembered or not: only who met it is waited for, and only as long as was asked."""
    path = orch.configure({"order": ["claude", "codex"], "handoff": {"summary": False}, **config}, orch.base / "config.json")
    orch.home.mkdir(exist_ok=True)
    if state == "newer":
        (orch.home / "state.json").write_text('{"version": 99}')
    elif state == "none":
        orch.env["ORCH_HOME"] = str(path / "home")
    fake("claude", other)
    fake("codex", *[codex_limit() for _ in range(3)])
    fake.forgive_unused = True
    begun = time.monotonic()
    assert orch("--config", str(path), "--wait", "2s", "go", timeout=30).code == 75
    assert 1.5 < time.monotonic() - begun < 15
    assert fake.names.count("claude") == 1
    assert fake.names.count("codex") == 1 or (config and fake.names.count("codex") <= 3), fake.names


def test_a_default_cooldown_is_no_longer_than_what_is_believed(orch):
    orch.configure({"default_cooldown": "36d"})
    assert "default_cooldown" in one_line_error(orch("config", "check"))
    orch.configure({"default_cooldown": "5w"})
    assert orch("config", "check").code == 0


def test_waiting_goes_on_with_those_that_were_at_their_limit(orch, fake):
    orch.configure({"default_cooldown": 1, "order": ["claude", "codex"]})
    fake("claude", claude_auth())
    fake("codex", codex_limit(), codex_ok("after"))
    result = orch("--wait", "20s", "--json", "go", timeout=30).json
    assert (result["answer"], fake.names) == ("after", ["claude", "codex", "codex"])
    assert result["route"] == {"agent": "claude", "reason": "order", "rule": None}, "as it was before the wait"


@pytest.mark.parametrize(("options", "key", "model"), [
    (["-x", "complex"], "codex:big", None), (["-x", "complex"], "codex:else", "big"), (["-x", "complex"], "codex", "nobody")])
def test_a_limit_that_another_orch_meets_meanwhile_counts_as_one_that_was_known(orch, fake, options, key, model):
    """That of a model drops the model, and the agent is tried all the same."""
    orch.configure({"model_map": {"complex": {"codex": "big"}}})
    command = [str(orch.program), "cooldown", "set", key, "1h"]
    fake("claude", step(exit=1, stderr="API Error: 529 Overloaded.", run=f"import subprocess; subprocess.run({command!r}, check=True)"))
    fake("codex", codex_ok())
    fake.forgive_unused = model == "nobody"
    orch(*options, "go")
    assert fake.names == ["claude", "codex"][:1 if model == "nobody" else 2]
    assert ("big" in fake.calls[-1].argv) is (model == "big")


# --- the handoff ---------------------------------------------------------

def tree_hash(folder):
    """One hash over every path and byte below `folder`."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        total.update(str(path).encode())
        if path.is_file():
            total.update(path.read_bytes())
    return total.hexdigest()


def test_the_handoff_shows_what_the_first_agent_changed_and_nothing_else(orch, fake, repo):
    (repo / "b.txt").write_text("my own edit\n")
    fake("claude", claude_limit(time.time() + HOUR, write={"a.txt": "one\ntwo\nADDED\n", "new.txt": "brand new\n"}))
    fake("codex", codex_ok())
    result = orch("--json", "go").json
    handoff = fake.calls[1].prompt.decode()
    assert "+ADDED" in handoff and "+brand new" in handoff
    assert "my own edit" not in handoff
    assert "b.txt" in handoff and "main" in handoff
    assert sorted(result["changed_files"]) == ["a.txt", "new.txt"]


def test_a_commit_of_the_first_agent_is_in_the_handoff(orch, fake, repo):
    commit = ("import subprocess; subprocess.run(['git', '-c', 'user.name=A', '-c', 'user.email=a@b.c', 'commit', '-qam', 'mid'],"
              " check=True, stdout=2)")
    fake("claude", claude_limit(time.time() + HOUR, write={"a.txt": "COMMITTED\n"}, run=commit))
    fake("codex", codex_ok())
    orch("go")
    assert git("log", "-1", "--format=%s", cwd=repo) == "mid\n"
    assert "+COMMITTED" in fake.calls[1].prompt.decode()


@pytest.mark.parametrize(("begin", "then", "told"), [
    ("main", "main", "Branch: main\n"),
    ("main", "-b new", "Branch: main when the task began, now new\n"),
    ("main", "--detach", "Branch: main when the task began, now none\n"),
    ("--detach", "-b new", "Branch: none when the task began, now new\n"),
])
def test_the_handoff_names_the_branch_and_the_one_that_the_first_agent_took(orch, fake, repo, begin, then, told):
    git("checkout", "-q", begin, cwd=repo)
    fake("claude", claude_limit(time.time() + HOUR, run=f"import subprocess; subprocess.run('git checkout -q {then}'.split(), check=True)"))
    fake("codex", codex_ok())
    orch("go")
    assert told in fake.calls[1].prompt.decode()


def test_the_repository_stays_untouched_byte_for_byte(orch, fake, repo):
    (repo / "untracked.txt").write_text("u\n")
    before = tree_hash(repo)
    fake("claude", claude_limit(time.time() + HOUR))
    fake("codex", codex_ok())
    orch("--json", "go")
    assert tree_hash(repo) == before


def test_secrets_are_taken_out_of_the_handoff(orch, fake, repo):
    key = "sk-ant-api03-" + "A1b2C3d4" * 10
    fake("claude", claude_limit(time.time() + HOUR, write={"a.txt": f"key = {key}\npassword = \"hunter2hunter2\"\n"}))
    fake("codex", codex_ok())
    result = orch("go")
    handoff = fake.calls[1].prompt.decode()
    assert key not in handoff and "hunter2hunter2" not in handoff
    assert "[REDACTED:" in handoff
    assert any("2" in line and ("redacted" in line.lower() or "secret" in line.lower()) for line in result.notices), result


def test_a_large_diff_becomes_a_summary(orch, fake, repo):
    fake("claude", claude_limit(time.time() + HOUR, write={"big.txt": "x" * 79 + "\n" + "line of text\n" * 9000}))
    fake("codex", codex_ok())
    orch("go")
    handoff = fake.calls[1].prompt.decode()
    assert "big.txt" in handoff and len(handoff) < 20_000


def test_without_git_the_run_goes_on(orch, fake):
    fake("claude", claude_limit(time.time() + HOUR, write={"made.txt": "x"}))
    fake("codex", codex_ok("finished"))
    result = orch("--json", "go").json
    assert (result["answer"], result["changed_files"]) == ("finished", None)
    assert list(orch.work.iterdir()) == [orch.work / "made.txt"]


def test_a_repository_around_the_one_that_is_gone_is_nobodys_work(orch, fake, repo):
    (repo / "inner").mkdir()
    (repo / "inner" / "x").write_text("x\n")
    git("init", "-q", cwd=repo / "inner")
    (repo / "diary").write_text("private\n")
    fake("claude", claude_limit(time.time() + HOUR, run="import shutil; shutil.rmtree('.git'); open('y', 'w').close()"))
    fake("codex", codex_ok("finished"))
    result = orch("--json", "go", cwd=repo / "inner").json
    handoff = fake.calls[1].prompt.decode()
    assert (result["answer"], result["changed_files"]) == ("finished", None)
    assert "not known: the repository that the task began in is gone" in handoff
    assert "diary" not in handoff and "private" not in handoff


def test_where_no_snapshot_can_be_kept_the_handoff_says_why(orch, fake, repo):
    fake("claude", claude_limit(time.time() + HOUR))
    fake("codex", codex_ok("finished"))
    missing = str(orch.base / "missing")
    assert orch("go", env={"TMPDIR": missing}).out == "finished\n"
    assert f"not known: no snapshot: {missing}: No such file or directory" in fake.calls[1].prompt.decode()


def test_a_working_directory_that_the_first_agent_removed_is_named(orch, fake):
    fake("claude", claude_limit(time.time() + HOUR, run="import shutil; shutil.rmtree(os.getcwd())"))
    fake("codex")
    result = orch("--json", "go")
    assert result.json["attempts"][1]["error"] == f"the working directory {orch.work}: No such file or directory", result


def test_a_long_request_is_handed_over_through_standard_input(orch, fake):
    fake("claude", claude_limit(time.time() + HOUR))
    fake("codex", codex_ok())
    prompt = "long " * 40_000 + "END"
    orch("-", input=prompt)
    assert prompt in fake.calls[1].stdin.decode()


def test_a_plain_failure_is_asked_for_a_summary_in_its_own_session(orch, fake):
    fake("codex", codex_failed("The widget could not be frobnicated."), codex_ok("SUMMARY: half done"))
    fake("claude", claude_ok("finished"))
    result = orch("-a", "codex", "go")
    assert result.out == "finished\n", result
    assert fake.names == ["codex", "codex", "claude"]
    assert "resume" in fake.calls[1].argv and THREAD in fake.calls[1].argv
    assert "SUMMARY: half done" in fake.calls[2].prompt.decode()
    assert [record["kind"] for record in orch.ledger()] == ["run", "summary", "run"]


def test_claude_too_is_asked_in_its_own_session(orch, fake):
    fake("claude", claude_failed("something odd happened"), claude_ok("SUMMARY: half done"))
    fake("codex", codex_ok("finished"))
    assert orch("go").out == "finished\n"
    assert SESSION in fake.calls[1].argv
    assert "SUMMARY: half done" in fake.calls[2].prompt.decode()


@pytest.mark.parametrize("config", [{"handoff": {"summary": False}}, {}])
def test_no_summary_is_asked_where_it_is_off_or_useless(orch, fake, config):
    orch.configure(config)
    fake("codex", codex_failed("The widget could not be frobnicated.") if config else codex_overloaded())
    fake("claude", claude_ok("finished"))
    assert orch("-a", "codex", "go").out == "finished\n"
    assert fake.names == ["codex", "claude"]


def test_the_last_words_of_a_failed_agent_are_handed_over(orch, fake):
    orch.configure({"handoff": {"summary": False}})
    fake("codex", codex_failed("The widget could not be frobnicated.", said="I renamed half of the files."))
    fake("claude", claude_ok())
    orch("-a", "codex", "go")
    assert "I renamed half of the files." in fake.calls[1].prompt.decode()


def test_an_agents_own_patterns_extend_the_built_in_ones(orch, three):
    three("mine", step(exit=1, stderr="sorry, credits used up\n"))
    result = orch("--json", "--no-failover", "-a", "mine", "go")
    assert result.code == 75
    assert outcomes(result) == [("mine", "limited")]


def test_an_agent_that_cannot_be_given_the_handoff_is_passed_over(orch, fake):
    orch.configure({"agents": {"mine": {"command": ["mine"], "stdin_args": None}}, "order": ["claude", "mine", "codex"]})
    fake("claude", claude_error(), claude_error())
    fake("mine")
    fake("codex", codex_ok("42"))
    result = orch("-", input="x" * 200_000)
    assert (result.code, result.out) == (0, "42\n"), result
    orch.configure({"agents": {"mine": {"command": ["mine"], "stdin_args": None}}, "order": ["claude", "mine"]})
    result = orch("--json", "-", input="x" * 200_000)
    assert (result.code, result.json["status"], result.json["agent"]) == (1, "failed", "claude"), result
    assert [job["status"] for job in orch.state()["jobs"]] == ["ok", "failed"]


def test_a_reset_time_that_is_behind_us_does_not_shorten_a_known_one(orch, fake):
    known = int(time.time()) + HOUR
    fake("claude", claude_limit(known, delay=0.5), claude_limit(int(time.time()) - 60, delay=1.5))
    both = [orch.start("-q", "go"), orch.start("-q", "go")]
    assert [run.wait(timeout=20) for run in both] == [75, 75]
    assert epoch_of(orch.state()["cooldowns"]["claude"]["until"]) >= known


@pytest.mark.parametrize("name", [".orch-home", "a b/[c]*", "plain", "..orch", "."])
def test_a_home_inside_the_repository_is_no_work_of_an_agent(orch, fake, repo, name):
    fake("claude", claude_limit(time.time() + HOUR, write={"new.txt": "x\n"}))
    fake("codex", codex_ok("done"))
    result = orch("--json", "go", env={"ORCH_HOME": str(repo / name)})
    assert (repo / name / "state.json").exists()
    assert result.json["changed_files"] == ["new.txt"]
    assert f"{name}/" not in fake.calls[1].prompt.decode()
    assert "new.txt" in fake.calls[1].prompt.decode()


def test_what_is_tracked_of_a_home_inside_the_repository_counts(orch, fake, repo):
    orch.configure({}, repo / "home" / "config.json")
    git("add", ".", cwd=repo)
    fake("claude", claude_ok("done", write={"home/config.json": "{ }"}))
    assert orch("--json", "go", env={"ORCH_HOME": str(repo / "home")}).json["changed_files"] == ["home/config.json"]


def test_an_agent_that_says_a_nul_does_not_keep_the_next_from_its_work(orch, fake):
    fake("codex", codex_failed("Selected model is at capacity.", said="half\0way"))
    fake("claude", claude_ok("42"))
    assert orch("-a", "codex", "hi").out == "42\n"
    assert b"halfway" in fake.calls[1].prompt
