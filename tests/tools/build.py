#!/usr/bin/env python3
"""Build the one-file program: `build.py OUT [SOURCE]` writes an executable that holds orch.py.

The file is a few lines of shell followed by a zip:

    #!/bin/sh ...              starts `python3 -IS -X utf8`, which reads __main__.py at a known offset
    orch.py                    the source: for tracebacks, and for a Python that was not there at build time
    cpython-39/orch.pyc ...    the code compiled by each supported Python found at build time
    __main__.py                picks the code by the magic number of the running Python

Why not simply `exec python3 -IS "$0"`: running a zip imports runpy, pkgutil and zipimport first,
which costs 4 to 8 ms of about 30. Nothing is compressed: zlib costs more than the bytes.
`-X utf8`: agents, git and orch's own files speak UTF-8, and file names are bytes, whatever the locale says.
It stays a real zip, so `python3 FILE` and `python3 -m zipfile -l FILE` work as well.

The same source and the same Pythons give the same bytes.
"""
from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

OLDEST = (3, 9)
EPOCH = (1980, 1, 1, 0, 0, 0)    # the earliest time that a zip can hold

# Read with `sh`, which finds its way to `exec` before the zip begins. The numbers are as wide
# as their largest value, so that the header has one length whatever they are.
HEADER = """\
#!/bin/sh
command -v python3 >/dev/null || { echo "orch: python3 (3.9 or newer) is not in PATH" >&2; exit 2; }
exec python3 -IS -X utf8 -c 'import sys, _signal as s; s.getsignal(2) is s.default_int_handler and s.signal(2, s.SIG_DFL); del sys.argv[0]; f = open(sys.argv[0], "rb"); f.seek(%10d); code = f.read(%5d); f.close(); exec(code)' "$0" "$@"
"""

# Must parse under any Python, 2 included, to say in one sentence why it cannot run there.
MAIN = '''\
import sys

if sys.version_info < (3, 9):
    sys.stderr.write("orch: Python 3.9 or newer is needed, and %%s is %%d.%%d\\n" %% ((sys.executable,) + sys.version_info[:2]))
    sys.exit(2)

import _signal

# An interrupt while the rest is loaded ends the process, without a traceback.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import gc
import marshal
import posix
from _frozen_importlib_external import MAGIC_NUMBER

ARCHIVE = sys.argv[0]
CODE_AT = {
%(table)s}


class Source:
    """What a traceback asks for the lines of orch.py."""

    @staticmethod
    def get_source(name):
        import zipimport
        return zipimport.zipimporter(ARCHIVE).get_source(name)


def tell_version():
    """Answer `--version` without loading the program; what cannot be written is left to the program to tell."""
    try:
        if sys.argv[1:] in (["--version"], ["-V"]) and posix.write(1, b"orch %(version)s\\n"):
            posix._exit(0)
    except OSError:
        pass


def load():
    offset, size = CODE_AT[MAGIC_NUMBER]
    with open(ARCHIVE, "rb") as archive:
        archive.seek(offset)
        code = marshal.loads(archive.read(size))
    module = type(sys)("orch")
    module.__file__ = ARCHIVE + "/" + code.co_filename
    module.__loader__ = Source
    sys.modules["orch"] = module
    exec(code, module.__dict__)
    return module


tell_version()
gc.disable()  # what is loaded stays
if MAGIC_NUMBER in CODE_AT:
    orch = load()
else:
    sys.path.insert(0, ARCHIVE)
    import orch
gc.enable()
code = orch.main()
# No thread is left; to take the interpreter apart would cost a tenth of a run.
for stream in filter(None, (sys.stdout, sys.stderr)):
    stream.flush()
posix._exit(code)
'''

# Run by each Python: its version, or its compiled code. `dfile` keeps this machine's paths out.
PROBE = "import sys; print(sys.implementation.cache_tag, *sys.version_info[:3])"
COMPILE = """
import py_compile, sys
py_compile.compile(sys.argv[1], sys.argv[2], "orch.py", doraise=True,
                   optimize=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
"""
PYC_HEADER_BYTES = 16


def main(argv: list[str]) -> int:
    """Build `argv[1]` from `argv[2]` (default: the orch.py of this repository)."""
    if not 2 <= len(argv) <= 3:
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(argv[1])
    source = Path(argv[2]) if len(argv) > 2 else Path(__file__).resolve().parents[2] / "orch.py"
    pythons = find_pythons()
    codes = {tag: compile_with(python, source) for tag, python in pythons.items()}
    data = assemble(source.read_bytes(), codes)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_executable(out, data)
    print(f"{out}: {len(data):,} bytes, compiled for {', '.join(codes) or 'no Python'}")
    return 0


def assemble(source: bytes, codes: dict[str, bytes]) -> bytes:
    """The bytes of the program. `codes`: cache tag -> the contents of a .pyc."""
    archive = io.BytesIO()
    archive.write((HEADER % (0, 0)).encode())
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_STORED) as zip_file:
        add(zip_file, "orch.py", source)
        spots = {pyc[:4]: add(zip_file, f"{tag}/orch.pyc", pyc) for tag, pyc in codes.items()}
        table = "".join(f"    {magic!r}: ({offset + PYC_HEADER_BYTES}, {size - PYC_HEADER_BYTES}),\n"
                        for magic, (offset, size) in spots.items())
        main_spot = add(zip_file, "__main__.py", (MAIN % {"table": table, "version": version_of(source)}).encode())
    header = (HEADER % main_spot).encode()
    return header + archive.getvalue()[len(header):]


def version_of(source: bytes) -> str:
    """The version that orch.py states."""
    found = re.search(rb'^__version__ = "([0-9A-Za-z.+-]+)"$', source, re.MULTILINE)
    if found is None:
        raise SystemExit("build.py: the source has no __version__")
    return found[1].decode()


def add(zip_file: zipfile.ZipFile, name: str, data: bytes) -> tuple[int, int]:
    """Store `data` under `name`; return where its bytes begin in the file, and how many there are."""
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.create_system = 3                  # Unix, whatever builds it
    entry.external_attr = 0o644 << 16
    zip_file.writestr(entry, data)
    return zip_file.start_dir - len(data), len(data)


def write_executable(out: Path, data: bytes) -> None:
    """Replace `out` in one step, so that a running build never shows half a program."""
    handle, name = tempfile.mkstemp(dir=out.parent, prefix=out.name)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.chmod(name, 0o755)
    os.replace(name, out)


def find_pythons() -> dict[str, str]:
    """Every supported Python here, the newest of each cache tag: {"cpython-39": path}, sorted."""
    best: dict[str, tuple[tuple[int, ...], str]] = {}
    for path in candidates():
        probed = run_python(path, PROBE)
        if probed is None:
            continue
        tag, *numbers = probed.split()
        version = tuple(map(int, numbers))
        if version >= OLDEST and (tag not in best or version > best[tag][0]):
            best[tag] = version, path
    return {tag: path for tag, (version, path) in sorted(best.items(), key=lambda item: item[1][0])}


def candidates() -> list[str]:
    """Paths of programs that look like a Python 3, each file once; this Python comes first."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    folders += [Path("/usr/bin"), Path("/usr/local/bin"), Path("/opt/homebrew/bin")]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders += sorted(pyenv.glob("versions/*/bin"))
    found = {os.path.realpath(sys.executable): sys.executable}
    for folder in folders:
        if folder.name == "shims":           # pyenv's own: scripts that start one of `versions`
            continue
        for path in sorted(folder.glob("python3*")):
            if re.fullmatch(r"python3(\.\d+)?", path.name) and os.access(path, os.X_OK):
                found.setdefault(os.path.realpath(path), str(path))
    return list(found.values())


def compile_with(python: str, source: Path) -> bytes:
    """The contents of the .pyc that `python` makes of `source`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "orch.pyc")
        if run_python(python, COMPILE, str(source.resolve()), str(out)) is None:
            raise SystemExit(f"build.py: {python} cannot compile {source}")
        return out.read_bytes()


def run_python(python: str, code: str, *args: str) -> str | None:
    """What `code` prints under `python`, or None if it fails."""
    # Not -I: it would ignore PYTHONHASHSEED, and before 3.11 the order of a set of strings in
    # compiled code follows the seed. The environment is made from nothing instead.
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run([python, "-s", "-S", "-c", code, *args], cwd=empty, env={"PYTHONHASHSEED": "0"},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode and args:
        print(done.stderr, file=sys.stderr, end="")
    return None if done.returncode else done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv))
