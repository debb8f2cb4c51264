"""Where settings come from, how they merge, and what a checkout may not set."""
from __future__ import annotations

import json
import re
import time

import pytest
from conftest import claude_auth, claude_ok, codex_auth, codex_ok, one_line_error, step

EXAMPLE = {
    "$schema": "https://example.org/schema.json", "_note": "keys that begin with _ are comments",
    "order": ["claude", "codex"],
    "agents": {"claude": {"args": ["+", "--strict-mcp-config"], "env": {"CLAUDE_CODE_MAX_RETRIES": "2"}},
               "mine": {"command": ["my-agent"], "output": "text", "limit_patterns": ["credits? used up"]}},
    "rules": [{"match": "\\b(refactor|rename)\\b", "agent": "codex", "model": "some-model", "effort": "high", "context": "lean"},
              {"keywords": ["docs", "readme"], "agent": "claude", "complexity": "simple"},
              {"paths": ["*.css", "web/**"], "agent": "claude"}],
    "contexts": {"lean": {"claude": ["--strict-mcp-config"], "codex": ["-c", "mcp_servers={}"]}},
    "model_map": {"simple": {"claude": "a-small-model"}, "complex": {"claude": "a-large-model", "codex": "another"}},
    "access": "edit", "timeout": "1h", "idle_timeout": 0, "deadline": 0, "limit_grace": "30s", "default_cooldown": "5m",
    "handoff": {"summary": True, "diff_chars": 12000},
    "usage": {"keep_days": 90}, "jobs": {"prompt": True},
    "roles": {"reviewer": {"agent": "codex", "writes": False, "prompt": "You review", "agent_args": {"codex": []},
                           "on_failure": "continue"},
              "planner": {"prompt": "You plan"}, "builder": {"prompt": "You build"}, "tester": {"prompt": "You test"},
              "artist": {"capability": "image", "prompt": "You draw"}},
    "teams": {"full": ["planner", "builder", "reviewer", "tester"]},
    "auto": {"enabled": False, "max_roles": 3, "rules": [{"role": "tester", "keywords": ["test", "tests"], "priority": 1}]},
    "pipeline": {"max_parallel": 2, "handoff_chars": 6000},
    "trusted_projects": ["~/src/mine"],
}


def test_the_documented_example_is_right(orch):
    orch.configure(EXAMPLE)
    result = orch("config", "check")
    assert (result.code, result.err) == (0, ""), result


def test_no_config_at_all_is_right(orch):
    assert orch("config", "check").code == 0
    assert orch("config").code == 0


def test_an_empty_object_and_comments_change_nothing(orch):
    plain = orch("config").out
    orch.configure({"_note": "x", "$schema": "y"})
    assert orch("config").out == plain
    orch.configure({"agents": {"_note": ["z"], "claude": {"_why": {"args": 1}}}, "rules": [{"_note": 1, "keywords": ["x"], "agent": "codex"}]})
    assert orch("config", "check").code == 0


def test_objects_merge_and_arrays_replace_or_extend(orch, fake):
    orch.configure({"agents": {"claude": {"args": ["+", "--more"]}}, "order": ["codex", "claude"]})
    fake("claude", claude_ok(), claude_ok())
    fake("codex", codex_ok())
    orch("hi")
    orch("-a", "claude", "hi")
    orch.configure({"agents": {"claude": {"args": ["-p", "--output-format", "stream-json", "--verbose"]}}})
    orch("hi")
    codex, extended, replaced = fake.calls
    assert codex.agent == "codex"
    assert "--more" in extended.argv and "-p" in extended.argv
    assert "--more" not in replaced.argv


def test_the_config_option_takes_the_place_of_the_users_config(orch, fake):
    orch.configure({"order": ["codex"]})
    other = orch.configure({"order": ["claude"]}, orch.base / "other.json")
    fake("claude", claude_ok())
    fake("codex", codex_ok())
    orch("hi")
    orch("--config", str(other), "hi")
    assert fake.names == ["codex", "claude"]


def test_an_option_wins_over_the_config(orch, fake):
    orch.configure({"order": ["codex"], "timeout": "1h"})
    fake("claude", claude_ok())
    fake("codex")
    orch("-a", "claude", "hi")
    assert fake.names == ["claude"]


def test_config_shows_the_merged_values_and_where_each_came_from(orch, repo):
    orch.configure({"timeout": "7m"})
    orch.configure({"order": ["codex", "claude"]}, repo / ".orch" / "config.json")
    shown = orch("config").out.splitlines()
    timeout = [line for line in shown if "timeout" in line and "idle" not in line]
    assert any(("420" in line or "7m" in line) and "config.json" in line for line in timeout), shown
    assert any("codex" in line and ".orch/config.json" in line for line in shown), shown
    assert any("default" in line or "built-in" in line for line in shown), shown
    assert orch("config", "show").out.splitlines() == shown


def test_a_user_adds_an_agent(orch, fake):
    orch.configure({"agents": {"mine": {"command": ["mine", "exec"], "output": "text", "prompt_args": ["--prompt={prompt}"],
                                        "model_args": ["--model", "{model}"]}}, "order": ["mine"]})
    fake("mine", step(stdout="hello\n"))
    assert orch("-m", "m1", "-v", "say -x").out == "hello\n"
    assert fake.call.argv[0] == "exec"
    assert fake.call.argv[-1] == "--prompt=say -x"
    assert "m1" in fake.call.argv


def test_a_disabled_agent_is_not_used(orch, fake):
    orch.configure({"agents": {"claude": {"enabled": False}}})
    fake("claude")
    fake("codex", codex_ok())
    orch("hi")
    assert fake.names == ["codex"]


def test_init_writes_an_example_that_is_right(orch):
    result = orch("init")
    assert result.code == 0
    json.loads((orch.home / "config.json").read_text())
    assert orch("config", "check").code == 0


# --- the schema ----------------------------------------------------------

TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}
NESTED = {"properties", "patternProperties", "$defs", "definitions"}
SINGLE = {"additionalProperties", "items", "not", "propertyNames", "contains", "if", "then", "else"}
SEVERAL = {"anyOf", "oneOf", "allOf", "prefixItems"}


def check_schema(schema, root, where="#"):
    """Assert what the meta-schema of JSON Schema says, as far as a config's schema needs it."""
    assert isinstance(schema, (dict, bool)), where
    if isinstance(schema, bool):
        return
    kinds = schema.get("type", [])
    assert set([kinds] if isinstance(kinds, str) else kinds) <= TYPES, where
    assert isinstance(schema.get("enum", ["x"]), list) and schema.get("enum", ["x"]), where
    assert isinstance(schema.get("description", ""), str), where
    if "$ref" in schema:
        resolve(schema["$ref"], root)
    for key in NESTED & set(schema):
        for name, child in schema[key].items():
            check_schema(child, root, f"{where}/{key}/{name}")
    for key in SINGLE & set(schema):
        check_schema(schema[key], root, f"{where}/{key}")
    for key in SEVERAL & set(schema):
        for number, child in enumerate(schema[key]):
            check_schema(child, root, f"{where}/{key}/{number}")


def resolve(reference, root):
    """What `#/$defs/x` names."""
    assert reference.startswith("#"), reference
    for part in reference.split("/")[1:]:
        root = root[part]
    return root


def test_the_schema_is_one(orch):
    schema = orch("config", "schema").json
    assert schema["type"] == "object"
    assert schema["$schema"].startswith(("http://json-schema.org/", "https://json-schema.org/"))
    check_schema(schema, schema)


def test_the_schema_knows_every_documented_key(orch):
    schema = orch("config", "schema").json
    known = set(schema["properties"])
    assert {key for key in EXAMPLE if key[0] not in "_$"} <= known
    for name in ("handoff", "usage", "jobs", "auto", "pipeline"):
        part = schema["properties"][name]
        part = resolve(part["$ref"], schema) if "$ref" in part else part
        assert set(EXAMPLE[name]) <= set(part["properties"]), name


# --- a checkout is not trusted -------------------------------------------

REFUSED = [
    ("agents", {"agents": {"claude": {"command": ["/bin/sh"]}}}),
    ("agents", {"agents": {"claude": {"env": {"X": "1"}}}}),
    ("contexts", {"contexts": {"lean": {"claude": ["--evil"]}}}),
    ("model_map", {"model_map": {"simple": {"claude": "m"}}}),
    ("roles", {"roles": {"r": {"prompt": "p", "agent_args": {"claude": ["--evil"]}}}}),
    ("access", {"access": "full"}),
    ("access", {"access": "own"}),
    ("timeout", {"timeout": "9h"}),
    ("timeout", {"timeout": 0}),
    ("usage", {"usage": {"keep_days": 1}}),
    ("jobs", {"jobs": {"prompt": False}}),
    ("default_cooldown", {"default_cooldown": 1}),
    ("handoff", {"handoff": {"summary": False}}),
    ("auto", {"auto": {"enabled": True}}),
    ("trusted_projects", {"trusted_projects": ["/"]}),
    ("match", {"rules": [{"match": "(a+)+$", "agent": "claude"}]}),
    ("model", {"rules": [{"keywords": ["hi"], "agent": "claude", "model": "dear"}]}),
    ("effort", {"rules": [{"keywords": ["hi"], "agent": "claude", "effort": "high"}]}),
]


@pytest.mark.parametrize(("key", "config"), REFUSED, ids=[json.dumps(config)[:50] for _, config in REFUSED])
def test_a_checkout_may_not_set_what_could_do_harm(orch, fake, repo, key, config):
    orch.configure(config, repo / ".orch" / "config.json")
    fake("claude", claude_ok("42"), claude_ok())
    result = orch("hi there")
    assert (result.code, result.out) == (0, "42\n"), result
    assert len(result.notices) == 1, result
    assert key in result.notices[0] and "trusted_projects" in result.notices[0]
    assert not {"X"} & set(fake.calls[0].env)
    assert not {"--evil", "dear", "high"} & set(fake.calls[0].argv)
    assert len(orch("--json", "hi there").json["warnings"]) == 1


def test_a_checkout_may_not_make_another_team_of_the_users(orch, fake, repo):
    orch.configure({"access": "read", "roles": {"reader": {"prompt": "r", "writes": False}, "deploy": {"prompt": "d", "access": "full"}},
                    "teams": {"review": ["reader"]}})
    fake("claude")
    for team in (["deploy"], ["+", "deploy"], ["reader"]):
        orch.configure({"teams": {"review": team, "ours": ["deploy"]}}, repo / ".orch" / "config.json")
        result = orch("--team", "review", "-n", "--json", "hi").json
        assert [role["name"] for role in result["roles"]] == ["reader"]
        assert len(result["warnings"]) == 1 and '"teams.review"' in result["warnings"][0]


@pytest.mark.parametrize("config", [
    {"rules": [{"match": "[\1-\uffff]" * 3000, "agent": "claude"}]}, {"agents": {"claude": {"limit_patterns": ["(" * 60_000]}}},
    {"timeout": "1" * 60_000}, {"timeout": "1s" * 30_000}, {"rules": [{"paths": ["[" * 60_000], "agent": "claude"}]},
    {"rules": [{"paths": ["*[" + "b" * 60_000 + "]"], "agent": "claude"}]}, {"rules": [{"keywords": ["b" * 60_000], "agent": "claude"}]},
    {"rules": [{"keywords": ["b"], "agent": "claude"}] * 3000},
], ids=lambda config: json.dumps(config)[:30])
def test_a_checkouts_config_costs_no_time(orch, fake, repo, config):
    (repo / ".orch").mkdir()
    (repo / ".orch" / "config.json").write_text(json.dumps(config, ensure_ascii=False))
    fake("claude")
    begun = time.monotonic()
    result = orch("-n", "look at a.txt", timeout=20)
    assert result.code in (0, 2) and len(result.notices) == 1, result
    assert time.monotonic() - begun < 10


def test_what_a_checkout_may_not_set_is_not_looked_at(orch, fake, repo):
    orch.configure({"agents": 5, "roles": {"a b": 1}, "rules": [{"match": 7}, {"keywords": ["hi"], "agent": "codex", "model": 1}]},
                   repo / ".orch" / "config.json")
    fake("claude")
    fake("codex")
    plan = orch("-n", "--json", "hi").json
    assert (plan["agent"], len(plan["warnings"])) == ("codex", 4)


def test_a_rule_that_is_refused_takes_no_rule_of_the_user_away(orch, fake, repo):
    orch.configure({"rules": [{"keywords": ["hi"], "agent": "codex"}]})
    fake("claude")
    fake("codex")
    for rules in ([{"match": "zzz", "agent": "claude"}], ["+", {"match": "zzz", "agent": "claude"}]):
        orch.configure({"rules": rules}, repo / ".orch" / "config.json")
        assert orch("-n", "--json", "hi").json["agent"] == "codex"
    orch.configure({"rules": []}, repo / ".orch" / "config.json")
    assert orch("-n", "--json", "hi").json["agent"] == "claude"


def test_a_checkout_with_much_to_refuse_gets_few_warnings(orch, repo):
    orch.configure({"rules": [{"match": "x", "agent": "claude"}] * 1000}, repo / ".orch" / "config.json")
    notices = orch("config", "check").notices
    assert len(notices) <= 6 and "995 more" in notices[-1], notices[-1]


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("link", [".orch", ".orch/config.json"])
def test_a_link_in_place_of_a_checkouts_config_is_ignored_with_a_warning(orch, repo, link, trusted):
    orch.configure({"trusted_projects": [str(repo)] if trusted else []})
    secret = orch.base / "secret" / "config.json"
    orch.configure('"sk-ant-0123456789"', secret)
    (repo / link).parent.mkdir(exist_ok=True)
    (repo / link).symlink_to(secret.parent if link == ".orch" else secret)
    result = orch("config", "check")
    assert (result.code, len(result.notices)) == (0, 1), result
    assert "sk-ant" not in result.err and "link" in result.err and "config.json" in result.err


def test_a_link_that_leads_to_no_config_is_not_spoken_of(orch, repo):
    (orch.base / "elsewhere").mkdir()
    (repo / ".orch").symlink_to(orch.base / "elsewhere")
    assert orch("config", "check").err == ""


def test_the_home_of_a_checkout_that_is_a_link_is_read_once(orch, repo):
    orch.configure({"order": ["codex"]})
    (repo / ".orch").symlink_to(orch.home)
    assert orch("config", "check").err == ""


def test_a_checkout_may_order_route_narrow_and_shorten(orch, fake, repo):
    orch.configure({"roles": {"builder": {"prompt": "You build"}}})
    config = {"order": ["codex", "claude"], "access": "read", "timeout": "10m", "idle_timeout": "5m", "deadline": "20m",
              "rules": [{"keywords": ["docs"], "agent": "claude"}, {"paths": ["*.css"], "agent": "claude"}],
              "teams": {"mine": ["builder"]}}
    orch.configure(config, repo / ".orch" / "config.json")
    fake("claude", claude_ok())
    fake("codex", codex_ok())
    assert [orch("hi").err, orch("write the docs").err] == ["", ""]
    assert fake.names == ["codex", "claude"]
    assert "read-only" in " ".join(fake.calls[0].argv)


def test_a_trusted_checkout_may_set_anything(orch, fake, repo):
    orch.configure({"trusted_projects": [str(repo)]})
    orch.configure({"agents": {"claude": {"env": {"X": "1"}}}}, repo / ".orch" / "config.json")
    fake("claude", claude_ok(), claude_ok())
    assert orch("hi").err == ""
    assert fake.calls[0].env["X"] == "1"
    (repo / "sub").mkdir()
    orch("hi", cwd=repo / "sub")
    assert fake.calls[1].env["X"] == "1"


def test_trust_may_be_written_with_a_tilde_and_reached_through_a_link(orch, fake, repo):
    (orch.user_home / "link").symlink_to(repo)
    orch.configure({"trusted_projects": ["~/link"]})
    orch.configure({"agents": {"claude": {"env": {"X": "1"}}}}, repo / ".orch" / "config.json")
    fake("claude", claude_ok())
    orch("hi")
    assert fake.call.env["X"] == "1"


def test_the_config_of_a_directory_that_is_no_repository_is_not_read(orch, fake):
    orch.configure({"order": ["codex"]}, orch.work / ".orch" / "config.json")
    fake("claude", claude_ok())
    fake("codex", codex_ok())
    fake.forgive_unused = True
    orch("hi")
    assert fake.names == ["claude"]


def test_an_empty_order_is_no_bug(orch):
    orch.configure({"order": []})
    assert orch("explain").code == 0
    assert "no agent is enabled" in one_line_error(orch("hi"))


def test_a_disabled_agent_is_no_missing_one(orch, fake):
    orch.configure({"order": ["claude"], "agents": {"claude": {"enabled": False}}})
    fake("claude")
    assert "no agent is enabled" in one_line_error(orch("hi"))
    orch.configure({"order": ["claude", "codex"], "agents": {"claude": {"enabled": False}}})
    fake("codex", codex_ok("done"))
    result = orch("-a", "claude", "hi")
    assert result.out == "done\n" and "disabled" in result.err


@pytest.mark.parametrize(("config", "arguments", "words"), [
    ({"order": []}, ["wait"], "no agent is enabled"), ({"order": ["claude"], "agents": {"claude": {"enabled": False}}}, ["wait"], "no agent is enabled"),
    ({"agents": {"claude": {"enabled": False}}}, ["wait", "claude"], "claude is disabled"),
    ({"agents": {"claude": {"enabled": False}}}, ["wait", "codex", "claude"], "claude is disabled"),
    ({"agents": {"claude": {"enabled": False}}}, ["-a", "claude", "--no-failover", "hi"], "no agent is enabled (claude)"),
])
def test_what_is_disabled_is_not_said_to_be_missing(orch, fake, config, arguments, words):
    orch.configure(config)
    fake("claude")
    fake("codex")
    assert words in one_line_error(orch(*arguments))


@pytest.mark.parametrize("arguments", [["wait"], ["hi"], ["-a", "claude", "hi"]])
def test_how_to_install_is_told_of_enabled_agents_alone(orch, fake, arguments):
    orch.configure({"order": ["claude", "codex"], "agents": {"claude": {"enabled": False}}})
    fake("claude")
    result = orch(*arguments)
    assert result.code == (2 if arguments == ["wait"] else 127), result
    assert "npm install -g @openai/codex" in result.err and "claude-code" not in result.err, result


@pytest.mark.parametrize("path", ["", ".", "sub", "*", "/\0", "/\ud800"])
def test_a_path_that_can_trust_no_checkout_is_refused(orch, repo, path):
    orch.configure({"trusted_projects": [path]})
    assert "trusted_projects[0]: expected " in one_line_error(orch("config", "check"))


@pytest.mark.parametrize(("access", "word"), [("full", "--dangerously-skip-permissions"), ("edit", "acceptEdits")])
def test_a_checkout_may_not_widen_what_the_agents_own_config_allows(orch, fake, repo, access, word):
    fake("claude")
    orch.configure({"access": "own"})
    orch.configure({"access": access}, repo / ".orch" / "config.json")
    result = orch("-n", "hi")
    assert word not in result.out and "access" in result.notices[0], result
    orch.configure({"access": "read"}, repo / ".orch" / "config.json")
    assert orch("-n", "hi").err == ""


def test_a_plus_that_extends_nothing_is_no_element(orch, fake):
    orch.configure({"contexts": {"lean": {"claude": ["+", "--lean"]}}, "rules": [{"keywords": ["+", "docs"], "agent": "codex"}]})
    fake("claude")
    fake("codex")
    plan = orch("-n", "--json", "-c", "lean", "one + one").json
    assert plan["agent"] == "claude"
    assert "--lean" in plan["candidates"][0]["argv"] and "+" not in plan["candidates"][0]["argv"]


def test_an_agent_named_twice_in_the_order_is_tried_once(orch, fake):
    orch.configure({"order": ["codex", "claude", "claude"]})
    fake("codex", codex_auth())
    fake("claude", claude_auth())
    assert orch("hi").code == 77
    assert fake.names == ["codex", "claude"]


def test_an_error_names_the_file_that_made_it(orch, repo):
    own, project = orch.configure({"agents": {"new": {}}}), repo / ".orch" / "config.json"
    assert f"{own}: agents.new: " in one_line_error(orch("config", "check"))
    orch.configure({})
    orch.configure({"order": ["+", "nobody"]}, project)
    assert f"orch: {project}: order[1]: " in one_line_error(orch("config", "check"))


GOOD, BAD = {"keywords": ["x"], "agent": "codex"}, {"keywords": ["y"], "agent": "claud"}


@pytest.mark.parametrize(("own", "project", "which", "path"), [
    ({"rules": [GOOD, BAD]}, {"rules": ["+", GOOD]}, "own", "rules[1].agent"),
    ({"rules": [GOOD, BAD]}, {"rules": [GOOD]}, "own", "rules[1].agent"),
    ({"order": ["claud"]}, {"order": ["+", "codex"]}, "own", "order[0]"),
    ({"rules": [GOOD, GOOD]}, {"rules": ["+", BAD]}, "project", "rules[1].agent"),
    ({}, {"rules": [{"match": "x", "agent": "codex"}, BAD]}, "project", "rules[1].agent"),
    ({}, {"rules": [{"match": "x", "agent": "codex"}, {"agent": "codex"}]}, "project", "rules[1]"),
    ({"roles": {"a": {}}, "teams": {"t": ["a"]}, "trusted_projects": True}, {"teams": {"t": ["+", "A"]}, "roles": {"A": {}}}, "project", "teams.t"),
])
def test_an_error_names_the_file_and_the_place_in_it(orch, repo, own, project, which, path):
    own = {**own, "trusted_projects": [str(repo)]} if own.get("trusted_projects") else own
    files = {"own": orch.configure(own), "project": orch.configure(project, repo / ".orch" / "config.json")}
    assert f"orch: {files[which]}: {path}: " in one_line_error(orch("config", "check"))


@pytest.mark.parametrize(("field", "pattern", "word"), [
    ("verdict_lines", "(?i)fail: ", "(?i:...)"), ("note_lines", "(?P<a>x)", "named group"), ("error_lines", "a(?m)b", "(?i:...)"),
    ("transcript", "[", "regular expression"), ("limit_patterns", ["[[a] b"], "nested set"), ("auth_patterns", ["("], "regular expression"),
])
def test_a_pattern_that_could_break_later_is_refused_before_anything_starts(orch, fake, field, pattern, word):
    orch.configure({"agents": {"mine": {"command": ["mine"], field: pattern}}})
    fake("mine")
    line = one_line_error(orch("-a", "mine", "hi"))
    assert f"agents.mine.{field}" in line and word in line, line
    assert fake.calls == []


def test_a_pattern_for_lines_may_say_its_own_flags(orch, fake):
    orch.configure({"agents": {"mine": {"command": ["mine"], "verdict_lines": "(?i:fail: )", "limit_patterns": [r"[\[a] b out of credits"]}}})
    fake("mine", step(stderr="working\nFAIL: [ b out of credits\n", exit=1))
    assert orch("--json", "--no-failover", "-a", "mine", "hi").json["attempts"][0]["outcome"] == "limited"


NESTED_DEEPLY = "[" * 980 + "]" * 980


@pytest.mark.parametrize("config", [
    {"rules": [{"match": "(?a)(?u)x", "agent": "claude"}]}, '{"access": ' + NESTED_DEEPLY + "}", '{"timeout": ' + NESTED_DEEPLY + "}",
    {"agents": {"claude": {"env": {"A=B": "x"}}}}, {"agents": {"claude": {"env": {"": "x"}}}}, {"agents": {"claude": {"env": {"A\0": "x"}}}},
    {"agents": {"claude": {"env": {"A": "x\0"}}}}, {"agents": {"claude": {"args": ["\0"]}}}, {"agents": {"claude": {"args": ["\ud800"]}}},
    {"contexts": {"lean": {"claude": ["\0"]}}}, {"contexts": {"\ud800": {}}}, {"model_map": {"simple": {"claude": "\0"}}},
    {"rules": [{}]}, {"rules": [{"agent": "claude"}]}, {"rules": [{"match": "", "agent": "claude"}]}, {"rules": [{"keywords": ["+"]}]},
    {"rules": [{"keywords": ["x"], "model": "m"}]}, {"rules": [{"keywords": ["x" * 1001], "agent": "claude"}]}, {"auto": {"rules": [{}]}},
    {"timeout": "1e300"}, {"timeout": "1h 30m"}, {"timeout": "1" * 41},
], ids=lambda config: (config if isinstance(config, str) else json.dumps(config))[:60])
def test_what_could_never_work_is_refused_with_one_line(orch, config):
    orch.configure(config)
    assert "config.json" in one_line_error(orch("config", "check"))


@pytest.mark.parametrize("days", ["1e12", "1e999", "1" + "0" * 400])
def test_a_number_too_large_for_the_clock_is_for_ever(orch, fake, days):
    orch.configure('{"usage": {"keep_days": ' + days + ', "_note": 1}, "pipeline": {"max_parallel": 2.0}}')
    fake("claude", claude_ok("42"))
    (orch.home / "usage.jsonl").write_text('{"at": "2001-01-01T00:00:00Z"}\n')
    assert (orch("hi").err, len((orch.home / "usage.jsonl").read_text().splitlines())) == ("", 2)


# --- what editors are told -----------------------------------------------

IS_A = {"object": lambda x: isinstance(x, dict), "array": lambda x: isinstance(x, list), "string": lambda x: isinstance(x, str),
        "boolean": lambda x: isinstance(x, bool), "null": lambda x: x is None,
        "number": lambda x: isinstance(x, (int, float)) and not isinstance(x, bool),
        "integer": lambda x: isinstance(x, (int, float)) and not isinstance(x, bool) and x == int(x)}
HOLDS = {    # what JSON Schema (draft 2020-12) says of each keyword: takes the value, what stands at the keyword, the schema
    "type": lambda x, kinds, _: any(IS_A[kind](x) for kind in ([kinds] if isinstance(kinds, str) else kinds)),
    "enum": lambda x, words, _: x in words, "const": lambda x, word, _: x == word,
    "anyOf": lambda x, some, _: any(is_valid(x, one) for one in some), "not": lambda x, one, _: not is_valid(x, one),
    "minimum": lambda x, least, _: not IS_A["number"](x) or x >= least, "maximum": lambda x, most, _: not IS_A["number"](x) or x <= most,
    "minLength": lambda x, least, _: not isinstance(x, str) or len(x) >= least,
    "maxLength": lambda x, most, _: not isinstance(x, str) or len(x) <= most,
    "pattern": lambda x, form, _: not isinstance(x, str) or bool(re.search(form, x)),
    "minItems": lambda x, least, _: not isinstance(x, list) or len(x) >= least,
    "prefixItems": lambda x, some, _: not isinstance(x, list) or all(map(is_valid, x, some)),
    "items": lambda x, one, schema: not isinstance(x, list) or all(is_valid(item, one) for item in x[len(schema.get("prefixItems", ())):]),
    "required": lambda x, keys, _: not isinstance(x, dict) or {*keys} <= {*x},
    "dependentRequired": lambda x, needs, _: not isinstance(x, dict) or all({*needed} <= {*x} for key, needed in needs.items() if key in x),
    "propertyNames": lambda x, one, _: not isinstance(x, dict) or all(is_valid(key, one) for key in x),
    "properties": lambda x, some, _: not isinstance(x, dict) or all(is_valid(x[key], one) for key, one in some.items() if key in x),
    "patternProperties": lambda x, some, _: not isinstance(x, dict) or all(
        is_valid(x[key], one) for form, one in some.items() for key in x if re.search(form, key)),
    "additionalProperties": lambda x, one, schema: not isinstance(x, dict) or all(
        is_valid(x[key], one) for key in x if key not in schema.get("properties", {})
        and not any(re.search(form, key) for form in schema.get("patternProperties", {}))),
    "title": lambda *_: True, "description": lambda *_: True, "$schema": lambda *_: True}


def is_valid(given, schema):
    """Whether a value is as a JSON Schema says; a keyword that is not in HOLDS is an error."""
    return schema if isinstance(schema, bool) else all(HOLDS[key](given, said, schema) for key, said in schema.items())


AGREE = {
    True: ['{"$schema": 5, "_n": 1}', '{"agents": {"_n": "x"}}', '{"contexts": {"_n": "x", "a": {"_n": "x"}}}', '{"teams": {"_n": "x"}, "roles": {"_n": "x"}}',
           '{"model_map": {"simple": {"_n": 3}}}', '{"agents": {"claude": {"env": {"_n": 3}}}}', '{"handoff": {"$schema": "x"}}', '{"order": ["+"]}',
           '{"rules": ["+", {"keywords": ["+", "a"]}]}', '{"timeout": 1.5, "idle_timeout": "5", "deadline": "1h30m"}', '{"pipeline": {"max_parallel": 2.0}}',
           '{"agents": {"claude": {"command": ["+", "x"], "stdin_args": null}}}', '{"trusted_projects": ["~/x", "/y"]}'],
    False: ['{"timeout": "foo"}', '{"timeout": ""}', '{"timeout": -5}', '{"timeout": "1h 30m"}', '{"timeout": "1e300"}', '{"timeout": 1e300}',
            '{"default_cooldown": 4000000}', '{"roles": {"a b": {}}}', '{"agents": {"a b": {"command": ["x"]}}}', '{"roles": {"r.Failed": {}}}', '{"rules": [{}]}',
            '{"rules": [{"agent": "claude"}]}', '{"rules": [{"keywords": ["a"], "model": "m"}]}', '{"rules": [{"match": "", "agent": "claude"}]}',
            '{"auto": {"rules": [{}]}}', '{"roles": {"r": {}}, "auto": {"rules": [{"role": "r", "keywords": []}]}}', '{"teams": {"t": ["+"]}}',
            '{"agents": {"claude": {"command": ["+"]}}}', '{"agents": {"claude": {"env": {"A=B": "x"}}}}', '{"trusted_projects": ["x"]}',
            '{"pipeline": {"max_parallel": 2.5}}', '{"usage": {"keep_days": true}}', '{"rules": [{"keywords": [""], "agent": "claude"}]}'],
}


@pytest.mark.parametrize(("right", "text"), [(right, text) for right, texts in AGREE.items() for text in texts])
def test_the_schema_says_what_the_check_says(right, text):
    import orch
    try:
        orch.config_of([orch.Layer("built-in", orch.DEFAULTS), orch.parse_config(text, "config.json")])
        found = True
    except orch.OrchError:
        found = False
    assert found is right
    assert is_valid(json.loads(text), orch.render_schema()) is right
