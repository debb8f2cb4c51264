"""The shape of orch.py: its map, its sections, its sizes, and what README and help promise.

A list of exceptions here may shrink but not grow.
"""
from __future__ import annotations

import ast
import functools
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = (ROOT / "orch.py").read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
NODES = list(ast.walk(TREE))
FUNCTIONS = [node for node in NODES if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
CLASSES = [node for node in NODES if isinstance(node, ast.ClassDef)]
BANNER = re.compile(r"^# === ([A-Z][A-Z ]*[A-Z]) (=+)$", re.M)
ROW = re.compile(r"^ *([A-Z]{3,}) {2,}(\S.*?) {2,}(pure|I/O)$", re.M)
TYPES_ONLY = {id(part) for node in NODES          # read by type checkers alone: annotations, and `if TYPE_CHECKING:`
              for note in (getattr(node, "annotation", None), getattr(node, "returns", None),
                           *(node.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) else ()))
              if note is not None for part in ast.walk(note)}
AGENTS = ("claude", "codex", "opencode", "gemini", "copilot")

LONG_FUNCTIONS: set[str] = set()         # over 50 lines
DEEP_FUNCTIONS: set[str] = set()         # four levels of blocks, or more
MANY_PARAMETERS: set[str] = set()        # more than five that are positional
LONG_SECTIONS: set[str] = set()          # over 500 lines


# === THE MAP =============================================================

@functools.cache
def map_rows():
    """The rows of the map in the module's docstring: [(section, description, "pure" or "I/O")]."""
    return ROW.findall(ast.get_docstring(TREE))


@functools.cache
def section_lines():
    """{section: (first line, last line)}, the banner included, in the order of the file."""
    starts = [(match[1], SOURCE.count("\n", 0, match.start()) + 1) for match in BANNER.finditer(SOURCE)]
    ends = [line - 1 for _, line in starts[1:]] + [SOURCE.count("\n") + 1]
    return {name: (first, last) for (name, first), last in zip(starts, ends)}


def section_of(line):
    """The section that holds a line, or None before the first banner."""
    return next((name for name, (first, last) in section_lines().items() if first <= line <= last), None)


@functools.cache
def nodes_of(section):
    """The nodes of the tree that begin inside a section."""
    first, last = section_lines()[section]
    return [node for node in NODES if first <= getattr(node, "lineno", 0) <= last]


PURE = [name for name, _, kind in map_rows() if kind == "pure"]


def test_the_map_names_every_section_in_the_order_of_the_file():
    assert [name for name, _, _ in map_rows()] == list(section_lines())
    assert len(map_rows()) >= 10


def test_a_banner_ends_in_column_76():
    assert {len(match[0]) for match in BANNER.finditer(SOURCE)} == {76}


def test_no_section_is_a_drawer_for_the_rest():
    assert not {"UTILITIES", "UTILS", "HELPERS", "MISC", "COMMON", "OTHER"} & set(section_lines())


@pytest.mark.parametrize("section", section_lines())
def test_a_section_is_not_too_long_to_read(section):
    first, last = section_lines()[section]
    assert last - first <= 500 or section in LONG_SECTIONS


@functools.cache
def definitions():
    """{top-level name: the section that defines it}."""
    found = {}
    for node in TREE.body:
        for name in names_bound(node):
            found[name] = section_of(node.lineno)
    return found


def names_bound(node):
    """Names that a top-level statement defines (imports left out)."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return []


def test_no_section_uses_one_below_it():
    order = {name: number for number, name in enumerate(section_lines())}
    wrong = []
    for section in section_lines():
        for node in nodes_of(section):
            below = definitions().get(node.id) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else None
            if below and order[below] > order[section] and id(node) not in TYPES_ONLY and not is_local(node):
                wrong.append(f"{section} line {node.lineno}: {node.id} of {below}")
    assert wrong == []


def is_local(node):
    """Whether a name is a parameter or variable of a function around it."""
    return any(node.id in bound_in(function) for function in functions_at(node.lineno))


@functools.cache
def functions_at(line):
    """The functions around a line."""
    return [function for function in FUNCTIONS if function.lineno <= line <= function.end_lineno]


@functools.cache
def bound_in(function):
    """The names of a function's parameters and variables."""
    return {node.arg if isinstance(node, ast.arg) else node.id for node in ast.walk(function)
            if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))}


# === PURE CORE, THIN SHELL ===============================================

IMPURE_MODULES = {"os", "subprocess", "select", "fcntl", "socket", "shutil", "tempfile", "pathlib", "glob"}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "breakpoint"}
IMPURE_ATTRIBUTES = {"time": {"time", "monotonic", "perf_counter", "sleep", "localtime"}, "signal": {"signal", "raise_signal"},
                     "sys": {"stdin", "stdout", "stderr", "argv", "exit"}}
CLOCKS = {"now", "utcnow", "today", "getenv", "environ"}
CALLED = {id(node.func) for node in NODES if isinstance(node, ast.Call)}


@pytest.mark.parametrize("section", PURE)
def test_a_pure_section_touches_nothing_outside(section):
    wrong = []
    for node in nodes_of(section):
        if id(node) in TYPES_ONLY:
            continue
        if isinstance(node, ast.Attribute) and node.attr in IMPURE_ATTRIBUTES.get(getattr(node.value, "id", ""), ()):
            wrong.append(f"line {node.lineno}: {node.value.id}.{node.attr}")
        if isinstance(node, ast.Name) and node.id in IMPURE_MODULES | IMPURE_CALLS and not is_local(node):
            wrong.append(f"line {node.lineno}: {node.id}")
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS and not is_field(node):
            wrong.append(f"line {node.lineno}: .{node.attr}")
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
            wrong += [f"line {node.lineno}: import {name}" for name in names if name.partition(".")[0] in IMPURE_MODULES]
    assert wrong == []


def is_field(node):
    """Whether `.now` and the like is read as a value's field rather than called."""
    return node.attr in ("now", "today") and id(node) not in CALLED


def attributes(module, names):
    """Functions that name `module.attr` for an attr of `names`; "" for the top level."""
    return {owner_of(node) for node in NODES
            if isinstance(node, ast.Attribute) and node.attr in names and id(node) not in TYPES_ONLY
            and isinstance(node.value, ast.Name) and node.value.id == module}


def owner_of(node):
    """The innermost function around a node, or ""."""
    around = functions_at(node.lineno)
    return max(around, key=lambda function: function.lineno).name if around else ""


def test_one_function_starts_processes():
    starters = (attributes("subprocess", {"Popen", "run", "call", "check_call", "check_output", "getoutput"})
                | attributes("os", {"posix_spawn", "posix_spawnp", "fork", "forkpty", "system", "popen", "execv", "execve", "execvp"}))
    assert len(starters) == 1, starters


def test_no_shell_anywhere():
    assert not [node for node in NODES if isinstance(node, ast.keyword) and node.arg == "shell"]
    assert "os.system" not in SOURCE and "os.popen" not in SOURCE


def test_one_function_takes_locks_and_one_replaces_files():
    assert len(attributes("fcntl", {"flock", "lockf"})) == 1
    assert len(attributes("os", {"replace"})) == 1


def test_only_main_catches_everything_and_only_the_last_line_exits():
    broad = [owner_of(node) for node in NODES if isinstance(node, ast.ExceptHandler)
             and (node.type is None or {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)}
                  & {"Exception", "BaseException"})]
    assert set(broad) <= {"main"}
    exits = [node.lineno for node in NODES if isinstance(node, ast.Attribute) and node.attr == "exit"
             and isinstance(node.value, ast.Name) and node.value.id == "sys"]
    assert exits == [SOURCE.rstrip("\n").count("\n") + 1]
    assert not [node.lineno for node in NODES if isinstance(node, ast.Raise) and "SystemExit" in ast.unparse(node)]


def test_no_globals_and_no_inheritance_but_of_exceptions_and_enums():
    assert not [node for node in NODES if isinstance(node, ast.Global)]
    bases = {ast.unparse(base) for node in CLASSES for base in node.bases}
    assert not [base for base in bases if not re.search(r"Exception|Error|Enum|ArgumentParser|NamedTuple|str|int", base)], bases


def test_an_agents_name_stands_in_the_tables_only():
    wrong = []
    docstrings = {id(node.body[0].value) for node in NODES
                  if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None}
    for node in NODES:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
            continue
        if section_of(node.lineno) != "TABLES" and re.search(rf"\b({'|'.join(AGENTS)})\b", node.value, re.I):
            wrong.append(f"line {node.lineno}: {node.value[:60]!r}")
    names = [f"line {node.lineno}: {node.id}" for node in NODES if isinstance(node, ast.Name)
             and node.id.lower() in AGENTS and section_of(node.lineno) != "TABLES"]
    assert wrong + names == []


def test_no_model_and_no_price_stands_in_the_code():
    code = "\n".join(line.partition("  #")[0] for line in SOURCE.splitlines() if not line.lstrip().startswith("#"))
    strings = [node.value for node in NODES if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert not re.search(r"per[_ ]million|price", code, re.I)
    assert not [text for text in strings if re.fullmatch(r"(gpt|claude|gemini)-[\w.-]*\d[\w.-]*", text)]


def test_importing_does_nothing():
    spy = ("import sys; sys.path.insert(0, sys.argv[1]); seen = []\n"
           "sys.addaudithook(lambda name, args: seen.append((name, str(args)[:80]))"
           " if name.startswith(('subprocess', 'os.', 'socket', 'signal')) and 'listdir' not in name and 'scandir' not in name else None)\n"
           "import signal; before = [signal.getsignal(number) for number in range(1, 20)]\n"
           "import orch\n"
           "assert before == [signal.getsignal(number) for number in range(1, 20)]\n"
           "print(seen)\n")
    done = subprocess.run([sys.executable, "-B", "-IS", "-c", spy, str(ROOT)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")


def test_only_the_standard_library_is_imported():
    names = set()
    for node in NODES:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.partition(".")[0])
    known = getattr(sys, "stdlib_module_names", None)
    assert known is None or names <= set(known) | {"typing_extensions"}, names


# === SIZES ===============================================================

def length(node):
    return node.end_lineno - node.lineno + 1


def test_functions_are_short():
    lengths = sorted(length(function) for function in FUNCTIONS)
    assert statistics.median(lengths) < 12
    assert lengths[int(len(lengths) * 0.9)] < 30
    assert {function.name for function in FUNCTIONS if length(function) > 50} == LONG_FUNCTIONS


BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith)


def depth(node, inside=0):
    """How deep the blocks of a function nest; `elif` and nested functions start no deeper."""
    deepest = inside
    for field in ("body", "orelse", "finalbody", "handlers"):
        for child in getattr(node, field, []):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                continue
            chained = field == "orelse" and isinstance(child, ast.If) and isinstance(node, ast.If)
            deeper = isinstance(child, BLOCKS) and not chained
            deepest = max(deepest, depth(child, inside + deeper))
    return deepest


def test_functions_are_flat():
    assert {function.name for function in FUNCTIONS if depth(function) >= 4} == DEEP_FUNCTIONS


def test_functions_take_few_parameters():
    many = {function.name for function in FUNCTIONS
            if len([arg for arg in function.args.posonlyargs + function.args.args if arg.arg not in ("self", "cls")]) > 5}
    assert many == MANY_PARAMETERS


def test_classes_are_small():
    assert [node.name for node in CLASSES if length(node) > 150] == []


def test_every_public_name_has_a_docstring():
    members = [node for owner in [TREE, *CLASSES] for node in owner.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    assert [node.name for node in members if not node.name.startswith("_") and not ast.get_docstring(node)] == []


def test_no_line_is_too_long_and_nothing_is_left_to_do():
    assert [number for number, line in enumerate(SOURCE.splitlines(), 1) if len(line) > 120] == []
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", SOURCE)


# === WHAT README AND HELP PROMISE ========================================

@functools.cache
def readme():
    return (ROOT / "README.md").read_text(encoding="utf-8")


def commands():
    """The names in the command table."""
    import orch
    return [command.name for command in orch.COMMANDS]


def test_every_command_of_the_contract_exists():
    assert set(commands()) >= {"run", "status", "jobs", "usage", "cooldown", "agents", "explain", "wait", "init",
                               "config", "demo"}


def test_readme_names_every_command_and_option(built):
    helps = [subprocess.run([sys.executable, str(built), "--help"], capture_output=True, text=True, check=True).stdout]
    for command in commands():
        assert re.search(rf"^\s*(orch )?{command}\b", helps[0], re.M), command
        assert re.search(rf"\borch {command}\b|`{command}`", readme()), command
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", helps[0])):
        assert option in readme(), option


def test_readme_help_and_the_enum_list_the_same_exit_statuses(built):
    import orch
    codes = {int(code) for code in orch.Exit}
    section = re.split(r"^## Exit status.*$", readme(), maxsplit=1, flags=re.M | re.I)[1]
    table = {int(number) for row in re.findall(r"^\| *([\d, ]+) *\|", section.partition("\n## ")[0], re.M)
             for number in re.findall(r"\d+", row)}
    assert table == codes
    text = subprocess.run([sys.executable, str(built), "--help"], capture_output=True, text=True, check=True).stdout
    assert [code for code in codes if not re.search(rf"\b{code}\b", text)] == []


def test_changelog_names_the_version():
    import orch
    assert orch.__version__ in (ROOT / "CHANGELOG.md").read_text()
    assert f"## {orch.__version__}" in (ROOT / "CHANGELOG.md").read_text() or f"[{orch.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_nothing_but_the_agreed_stands_at_the_top_of_the_repository():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode or not tracked.stdout:
        pytest.skip("not a git checkout")
    top = {name.partition("/")[0] for name in tracked.stdout.splitlines()}
    visible = {name for name in top if not name.startswith(".")}
    assert visible <= {"pyproject.toml", "orch.py", "tests", "README.md", "Makefile", "LICENSE", "CHANGELOG.md"}
