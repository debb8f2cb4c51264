"""The shipped file: how it starts, what it holds, and the ways to install it."""
from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STUB = '''
import sys
__version__ = "0"
def main(argv=None):
    """Say how it was started, or fail."""
    if sys.argv[1:] == ["boom"]:
        raise ValueError("here is the line")
    print(sys.argv[1:], STATE)
    return 7
STATE = "FROM SOURCE"
'''


def build_module():
    spec = importlib.util.spec_from_file_location("build", ROOT / "tests" / "tools" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = build_module()


@pytest.fixture(scope="session")
def stub(built, tmp_path_factory):
    """A built file around a small program in place of orch.py; compiled by this Python alone."""
    folder = tmp_path_factory.mktemp("stub")
    (folder / "orch.py").write_text(STUB)
    code = build.compile_with(sys.executable, folder / "orch.py")
    build.write_executable(folder / "orch", build.assemble(STUB.encode(), {sys.implementation.cache_tag: code}))
    return folder / "orch"


def start(*command, path, cwd="/", **env):
    return subprocess.run([os.fspath(word) for word in command], env={"PATH": path, **env}, cwd=cwd, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=30, check=False)


@pytest.fixture
def path(python_dir):
    return f"{python_dir}:/usr/bin:/bin"


# --- how it starts -------------------------------------------------------

def test_it_starts_in_every_way(stub, path, tmp_path):
    spaced = tmp_path / "with space's"
    spaced.mkdir()
    shutil.copy(stub, spaced / "orch")
    (tmp_path / "link").symlink_to(stub)
    (tmp_path / "links").symlink_to("link")
    wanted = "['a b', '--', '-x', ''] FROM SOURCE\n"
    for program, place, search in [
        ([stub], "/", path), ([spaced / "orch"], "/", path), ([tmp_path / "links"], "/", path), (["./orch"], spaced, path),
        (["sh", "orch"], stub.parent, path), ([sys.executable, stub], "/", path), ([sys.executable, "orch"], spaced, path),
        ([sys.executable, "-IS", tmp_path / "link"], "/", path),
    ]:
        done = start(*program, "a b", "--", "-x", "", path=search, cwd=place)
        assert (done.returncode, done.stdout, done.stderr) == (7, wanted, ""), program
    done = subprocess.run(["env", "orch", "a b", "--", "-x", ""], env={"PATH": f"{spaced}:{path}"}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, wanted), done


def test_the_users_python_settings_and_folders_do_not_reach_it(stub, path, tmp_path):
    (tmp_path / "marshal.py").write_text("raise SystemExit('hijacked')")
    (tmp_path / "orch.py").write_text("raise SystemExit('hijacked')")
    done = start(stub, path=path, cwd=tmp_path, PYTHONPATH=str(tmp_path), PYTHONSTARTUP="/nonexistent", PYTHONHOME="/nonexistent")
    assert (done.returncode, done.stderr) == (7, "")


def test_a_missing_python_is_one_clear_sentence(stub, tmp_path):
    done = start("/bin/sh", stub, path=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("orch: ") and "python3" in done.stderr and done.stderr.count("\n") == 1


def old_pythons():
    return sorted(Path.home().glob(".pyenv/versions/[23].[0-8].*/bin/python"))


@pytest.mark.parametrize("python", old_pythons() or [None], ids=lambda path: path.parts[-3] if path else "none")
def test_an_old_python_is_one_clear_sentence(stub, path, tmp_path, python):
    if python is None:
        pytest.skip("no Python older than 3.9 here")
    commands = [[python, stub]]
    if "/2." not in str(python):
        (tmp_path / "python3").symlink_to(python)
        commands.append([stub])
    for command in commands:
        done = start(*command, path=f"{tmp_path}:/usr/bin:/bin")
        assert (done.returncode, done.stdout) == (2, ""), done
        assert done.stderr.startswith("orch: ") and "3.9" in done.stderr and done.stderr.count("\n") == 1


# --- what it holds -------------------------------------------------------

def test_it_is_a_zip_with_the_source_and_compiled_code(built):
    with zipfile.ZipFile(built) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert archive.read("orch.py") == (ROOT / "orch.py").read_bytes()
    assert f"{sys.implementation.cache_tag}/orch.pyc" in names
    assert names[0] == "orch.py" and names[-1] == "__main__.py"
    assert built.read_bytes().startswith(b"#!/bin/sh\n")


def test_the_compiled_code_is_what_is_loaded(stub, path, tmp_path):
    # Where the source says otherwise, the difference shows which of them was read.
    altered = tmp_path / "orch"
    altered.write_bytes(stub.read_bytes().replace(b'"FROM SOURCE"', b'"BAD  SOURCE"'))
    altered.chmod(0o755)
    for command in ([altered], [sys.executable, altered]):
        assert "FROM SOURCE" in start(*command, path=path).stdout


def test_a_python_without_compiled_code_reads_the_source(path, tmp_path):
    build.write_executable(tmp_path / "orch", build.assemble(STUB.encode(), {}))
    for command in ([tmp_path / "orch"], [sys.executable, tmp_path / "orch"]):
        done = start(*command, "x", path=path)
        assert (done.returncode, done.stdout) == (7, "['x'] FROM SOURCE\n"), done


def test_a_traceback_shows_the_source(stub, path):
    done = start(stub, "boom", path=path)
    assert done.returncode == 1
    assert "ValueError: here is the line" in done.stderr


def test_the_version_is_told_without_loading_the_program(stub, path):
    for flag in ("--version", "-V"):
        assert start(stub, flag, path=path).stdout == "orch 0\n"
    assert "FROM SOURCE" in start(stub, "--version", "x", path=path).stdout


def test_a_version_that_cannot_be_written_is_told(built, path):
    for where in ("/dev/full", "&-"):
        done = start("sh", "-c", f"'{built}' --version >{where}", path=path)
        assert done.returncode == 1
        assert "standard output" in done.stderr


def test_a_bug_inside_the_program_shows_its_lines(path, tmp_path):
    source = "import traceback\n__version__ = \"0\"\ndef main():\n    try:\n        1 / 0  # the line\n    except ZeroDivisionError:\n        traceback.print_exc()\n    return 70\n"
    (tmp_path / "orch.py").write_text(source)
    code = build.compile_with(sys.executable, tmp_path / "orch.py")
    build.write_executable(tmp_path / "orch", build.assemble(source.encode(), {sys.implementation.cache_tag: code}))
    done = start(tmp_path / "orch", path=path)
    assert done.returncode == 70
    assert "# the line" in done.stderr


def test_the_same_input_gives_the_same_bytes(built, tmp_path):
    for name, seed in (("one", "1"), ("two", "2")):
        subprocess.run([sys.executable, str(ROOT / "tests" / "tools" / "build.py"), str(tmp_path / name)], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONHASHSEED": seed})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_no_path_of_this_machine_is_inside(built):
    data = built.read_bytes()
    assert str(ROOT).encode() not in data
    assert os.path.expanduser("~").encode() + b"/" not in data


def test_the_builder_finds_the_python_that_runs_the_tests():
    pythons = build.find_pythons()
    assert sys.implementation.cache_tag in pythons
    assert all(tag.startswith(("cpython-3", "pypy3", "graalpy")) for tag in pythons)


# --- installing ----------------------------------------------------------

INSTALLED = {"man/man1/orch.1": ".Dd ", "bash-completion/completions/orch": "# bash completion for orch",
             "zsh/site-functions/_orch": "#compdef orch\n", "fish/vendor_completions.d/orch.fish": "# fish completion for orch"}


def test_make_installs_below_a_prefix(built, tmp_path):
    done = subprocess.run(["make", "--no-print-directory", "install", f"PYTHON={sys.executable}", f"DESTDIR={tmp_path}/root dir",
                           "PREFIX=/opt/x"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    installed = tmp_path / "root dir" / "opt" / "x" / "bin" / "orch"
    assert installed.stat().st_mode & 0o777 == 0o755
    assert installed.read_bytes() == built.read_bytes()
    share = tmp_path / "root dir" / "opt" / "x" / "share"
    for place, begins in INSTALLED.items():
        assert (share / place).read_text().startswith(begins) and (share / place).stat().st_mode & 0o777 == 0o644, place
    done = subprocess.run(["make", "--no-print-directory", "uninstall", f"DESTDIR={tmp_path}/root dir", "PREFIX=/opt/x"],
                          cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [path for path in (tmp_path / "root dir").rglob("*") if path.is_file()] == []


def test_make_alone_explains_its_targets(built):
    done = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    for target in ("build", "test", "fast", "lint", "bench", "install", "clean", "distclean"):
        assert f"make {target} " in done.stdout


def test_it_runs_from_a_clone(built, path):
    import orch
    done = start(sys.executable, ROOT / "orch.py", "--version", path=path)
    assert (done.returncode, done.stderr) == (0, "")
    assert orch.__version__ in done.stdout
    assert done.stdout == start(built, "--version", path=path).stdout


def has_setuptools():
    try:
        import setuptools
    except ImportError:
        return False
    return int(setuptools.__version__.partition(".")[0]) >= 77


def test_pip_installs_a_working_command(built, path, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for name in ("orch.py", "pyproject.toml", "README.md", "LICENSE"):
        if not (ROOT / name).exists():
            pytest.skip(f"{name} is not there yet")
        shutil.copy(ROOT / name, source)
    offline = ["--no-build-isolation", "--no-index"] if has_setuptools() else []
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", *offline,
                           "--target", str(target), str(source)], capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "5"})
    if done.returncode and not offline:
        pytest.skip(f"needs setuptools 77 or a network: {done.stderr.strip().splitlines()[-1:]}")
    assert done.returncode == 0, done.stderr
    script = target / "bin" / "orch"
    good = start(script, "--version", path=path, PYTHONPATH=str(target))
    bad = start(script, "--frobnicate", "x", path=path, PYTHONPATH=str(target))
    assert (good.returncode, good.stdout) == (0, start(built, "--version", path=path).stdout)
    assert (bad.returncode, bad.stdout) == (2, "")
