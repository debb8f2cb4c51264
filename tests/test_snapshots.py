"""Snapshots of real repositories: what they record, what they leave alone, and what never runs."""
from __future__ import annotations

import hashlib
import os
import shutil
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest

import orch as g


@pytest.fixture
def env(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "TZ": "UTC"}


class Box:
    """A repository and its two snapshots."""

    def __init__(self, top, env, store, *init):
        self.top, self.env, self.store = str(top), env, str(store)
        os.makedirs(self.top, exist_ok=True)
        os.makedirs(self.store, mode=0o700, exist_ok=True)
        if init != ("none",):
            self.git("init", "-q", "-b", "main", *init)
            self.git("config", "user.name", "n")
            self.git("config", "user.email", "n@example.org")
        self.before = None

    def git(self, *args, cwd=None, ok=True):
        done = subprocess.run(["git", *args], cwd=cwd or self.top, env=self.env, capture_output=True, timeout=60, check=False)
        assert not ok or done.returncode == 0, done.stderr
        return done.stdout.decode("utf-8", "surrogateescape")

    def write(self, name, text="text\n"):
        path = os.path.join(os.fsencode(self.top), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def commit(self, *names):
        self.git("add", "-A", "--", *(names or ["."]))
        self.git("commit", "-qm", "commit", "--allow-empty")

    def rm(self, name):
        os.remove(os.path.join(self.top, name))

    def deadline(self, seconds=20):
        return time.monotonic() + seconds

    def snap(self, cwd=None):
        repo = g.find_repo(cwd or self.top, env=self.env, deadline_at=self.deadline())
        shot, why = g.take_snapshot(repo, self.store, env=self.env, deadline_at=self.deadline(), before=self.before)
        assert shot, why
        self.before, last = self.before or shot, shot
        return last

    def changes(self, chars=12_000, after=None):
        after = after or self.snap()
        changes, why = g.diff_snapshots(self.before, after, env=self.env, deadline_at=self.deadline(), diff_chars=chars)
        assert changes, why
        return changes

    def words(self):
        return [f"{c.status} {c.path}" for c in self.changes().files]

    def earlier(self):
        return g.earlier_changes(self.before, env=self.env, deadline_at=self.deadline())


@pytest.fixture
def box(tmp_path, env):
    return Box(tmp_path / "work", env, tmp_path / "store")


def fingerprint(*folders):
    found = {}
    for folder in folders:
        for base, _, names in os.walk(folder):
            found[base] = os.lstat(base).st_mtime_ns
            for name in names:
                path = os.path.join(base, name)
                status = os.lstat(path)
                data = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
                if stat.S_ISREG(status.st_mode):
                    with open(path, "rb") as file:
                        data = hashlib.sha1(file.read()).hexdigest()
                found[path] = (status.st_mtime_ns, status.st_ctime_ns, status.st_mode, data)
    return found


# --- what is recorded ----------------------------------------------------------------------------

def test_the_diff_holds_what_changed_in_between_and_not_the_users_own_changes(box):
    box.write("kept", "1\n")
    box.write("mine", "1\n")
    box.write("gone", "1\n")
    box.commit()
    box.write("mine", "2 user\n")
    box.write("new-mine", "user\n")
    box.snap()
    box.write("mine", "2 user\n3 agent\n")
    box.write("new", "agent\n")
    box.rm("gone")
    assert box.words() == ["D gone", "M mine", "A new"]
    diff = box.changes().diff
    assert "+3 agent" in diff and "+2 user" not in diff
    assert box.earlier() == ("mine", "new-mine")


def test_new_commits_are_included_and_listed(box):
    box.write("a", "1\n")
    box.commit()
    box.snap()
    box.write("a", "2\n")
    box.git("commit", "-qam", "agent's commit")
    after = box.snap()
    assert [c.path for c in box.changes(after=after).files] == ["a"]
    got = g.commits_between(box.before, after, env=box.env, deadline_at=box.deadline())
    assert len(got) == 1 and got[0].endswith("agent's commit")


def test_only_commits_made_since_are_listed_whatever_is_checked_out(box):
    box.write("a", "1\n")
    box.commit()
    box.git("checkout", "-qb", "feat")
    box.env["GIT_COMMITTER_DATE"] = "@1700000000 +0000"
    box.write("b", "1\n")
    box.commit()
    box.git("checkout", "-q", "main")
    del box.env["GIT_COMMITTER_DATE"]
    box.snap()
    box.git("checkout", "-q", "feat")
    after = box.snap()
    assert g.commits_between(box.before, after, env=box.env, deadline_at=box.deadline()) == ()
    for subject in ("one\f two\u2028 three", "last"):
        box.git("commit", "-qm", subject, "--allow-empty")
    after = box.snap()
    got = g.commits_between(box.before, after, env=box.env, deadline_at=box.deadline())
    assert [line.partition(" ")[2] for line in got] == ["last", "one\f two\u2028 three"]


@pytest.mark.parametrize("init", [(), ("--object-format=sha256",)])
def test_a_repository_without_a_commit_works(tmp_path, env, init):
    box = Box(tmp_path / "w", env, tmp_path / "s", *init)
    box.write("staged")
    box.git("add", "staged")
    box.write("loose")
    shot = box.snap()
    assert (shot.repo.head, shot.repo.branch) == (None, "main")
    box.write("more")
    assert box.words() == ["A more"]
    assert box.earlier() == ("loose", "staged")
    box.commit()
    after = box.snap()
    assert after.repo.head
    assert len(g.commits_between(box.before, after, env=env, deadline_at=box.deadline())) == 1


def test_an_empty_repository_without_an_index_works(box):
    box.snap()
    assert box.words() == []
    box.write("a")
    assert box.words() == ["A a"]


def test_sha256_repositories_work(tmp_path, env):
    box = Box(tmp_path / "w", env, tmp_path / "s", "--object-format=sha256")
    box.write("a")
    box.commit()
    box.snap()
    box.write("a", "b\n")
    assert box.words() == ["M a"] and "+b" in box.changes().diff
    assert box.earlier() == ()


def test_a_detached_head_has_no_branch(box):
    box.write("a")
    box.commit()
    box.git("checkout", "-q", "--detach")
    shot = box.snap()
    assert shot.repo.branch is None and shot.repo.head


def test_a_subdirectory_sees_the_whole_tree(box):
    box.write("sub/a")
    box.write("top")
    box.commit()
    box.snap(cwd=os.path.join(box.top, "sub"))
    box.write("top", "2\n")
    assert box.words() == ["M top"]


def test_a_linked_worktree_works_and_nothing_in_the_common_directory_changes(box, tmp_path):
    box.write("a")
    box.commit()
    box.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    side = Box(tmp_path / "side", box.env, box.store, "none")
    side.write("dirty")
    was = fingerprint(os.path.join(box.top, ".git"), side.top)
    shot = side.snap()
    side.words()
    assert fingerprint(os.path.join(box.top, ".git"), side.top) == was
    assert shot.repo.branch == "side"
    side.write("a", "2\n")
    assert side.words() == ["M a"]


NAMES = ["line\nbreak", 'quo"te', "-dash", ":(glob)*", "*", "tab\there", b"caf\xe9", "back\\slash", " lead", "trail ",
         "é", "a\rb", "#x", "!x", "sp ace/in dir"]


@pytest.mark.parametrize("name", NAMES)
def test_any_file_name_works(box, name):
    try:
        box.write(name, "1\n")
    except OSError:
        pytest.skip("the file system refuses the name")
    box.write("other")
    box.commit()
    box.snap()
    box.write(name, "2\n")
    box.write(os.fsencode(name) + b".new", "2\n")
    files = box.changes().files
    assert [(c.status, c.path) for c in files] == [
        ("M", os.fsdecode(name)), ("A", os.fsdecode(name) + ".new")]
    assert box.changes().diff.count("diff --git ") == 2


def test_links_types_and_modes(box):
    box.write("file")
    box.write("script")
    box.write("dir/x")
    box.write("todir")
    box.write("tolink")
    os.symlink("file", os.path.join(box.top, "link"))
    box.commit()
    os.symlink("nowhere", os.path.join(box.top, "dangling"))
    os.symlink("dir", os.path.join(box.top, "linkdir"))
    box.snap()
    os.chmod(os.path.join(box.top, "script"), 0o755)
    box.rm("link")
    os.symlink("script", os.path.join(box.top, "link"))
    os.remove(os.path.join(box.top, "dir/x"))
    os.rmdir(os.path.join(box.top, "dir"))
    box.write("dir")
    box.rm("todir")
    box.write("todir/y")
    box.rm("tolink")
    os.symlink("file", os.path.join(box.top, "tolink"))
    box.rm("dangling")
    box.write("empty", "")
    words = box.words()
    assert [w for w in words if w[2:] not in ("dir", "dir/x", "todir", "todir/y")] == [
        "D dangling", "A empty", "M link", "M script", "T tolink"]
    got = {(c.status, c.path, c.old_path) for c in box.changes().files}
    plain = {("A", "dir", None), ("D", "dir/x", None), ("D", "todir", None), ("A", "todir/y", None)}
    assert {p for _, p, o in got} | {o for _, p, o in got if o} >= {p for _, p, _ in plain}
    diff = box.changes().diff
    assert "old mode 100644\nnew mode 100755" in diff and "new file mode 120000" in diff


def test_a_directory_replaced_by_a_link_to_one(box):
    box.write("real/x", "1\n")
    box.write("d/x", "2\n")
    box.commit()
    box.snap()
    os.remove(os.path.join(box.top, "d/x"))
    os.rmdir(os.path.join(box.top, "d"))
    os.symlink("real", os.path.join(box.top, "d"))
    assert box.words() == ["A d", "D d/x"]


def test_an_untracked_directory_replaced_by_a_link_and_by_a_file(box):
    box.write("real/x", "1\n")
    box.write("real/big", b"1" * (2 << 20))
    box.write("u/x", "2\n")
    box.write("u/big", b"2" * (2 << 20))
    box.write("v", "2\n")
    box.snap()
    os.remove(os.path.join(box.top, "u/x"))
    os.remove(os.path.join(box.top, "u/big"))
    os.rmdir(os.path.join(box.top, "u"))
    os.symlink("real", os.path.join(box.top, "u"))
    box.rm("v")
    box.write("v/deep", "3\n")
    assert sorted(box.words()) == sorted(["A u", "D u/big", "D u/x", "D v", "A v/deep"])


def test_unmerged_entries_do_not_stop_it(box):
    for name in ("f", "g", "h"):
        box.write(name, "base\n")
    box.commit()
    box.git("checkout", "-qb", "x")
    box.write("f", "x\n")
    box.write("g", "x\n")
    box.write("both", "x\n")
    box.rm("h")
    box.commit()
    box.git("checkout", "-q", "main")
    box.write("f", "main\n")
    box.write("both", "main\n")
    box.write("h", "main\n")
    box.rm("g")
    box.commit()
    box.git("merge", "x", ok=False)
    assert "UU f" in box.git("status", "--porcelain")
    box.rm("both")
    box.snap()
    box.write("f", "solved\n")
    assert box.words() == ["M f"]
    assert "-<<<<<<<" in box.changes().diff


def test_intent_to_add_entries_count_with_their_content(box):
    box.write("a")
    box.commit()
    box.write("ita", "one\n")
    box.git("add", "-N", "ita")
    box.snap()
    assert box.words() == []
    box.write("ita", "two\n")
    assert "-one\n+two" in box.changes().diff


def test_ignored_files_stay_out_and_what_becomes_ignored_stays_in(box):
    box.write(".gitignore", "*.log\n")
    box.write("tracked.log")
    box.git("add", "-f", "tracked.log")
    box.commit(".gitignore")
    box.write("x.log")
    box.write("build/out", "1\n")
    box.write("build/big", b"x" * (2 << 20))
    with open(os.path.join(box.top, ".git/info/exclude"), "a") as file:
        file.write("private\n")
    box.write("private")
    os.makedirs(os.path.join(box.env["HOME"], ".config/git"))
    with open(os.path.join(box.env["HOME"], ".config/git/ignore"), "w") as file:
        file.write("globally\n")
    box.write("globally")
    box.snap()
    assert set(box.before.untracked) == {"build/out"}
    box.write(".gitignore", "*.log\nbuild\n")
    box.write("tracked.log", "2\n")
    box.write("y.log")
    assert box.words() == ["M .gitignore", "M tracked.log"]
    box.write("build/out", "2\n")
    assert box.words() == ["M .gitignore", "M build/out", "M tracked.log"]


def test_core_excludes_file_in_the_home_is_obeyed(box):
    with open(os.path.join(box.env["HOME"], "my ignore"), "w") as file:
        file.write("secret\n")
    box.git("config", "--global", "core.excludesFile", "~/my ignore")
    box.write("secret")
    box.snap()
    assert box.before.untracked == ()


def test_the_default_ignore_file_of_another_config_home_is_obeyed(box, tmp_path):
    box.env["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    os.makedirs(tmp_path / "xdg/git")
    (tmp_path / "xdg/git/ignore").write_text("secret\n")
    box.write("secret")
    box.snap()
    assert box.before.untracked == ()


def test_large_untracked_files_are_noted_by_size_and_time(box):
    box.write("a")
    box.commit()
    box.write("big", b"x" * (1 << 20) + b"y")
    box.write("fits", b"x" * (1 << 20))
    box.write("goes", b"x" * (2 << 20))
    box.write("shrinks", b"x" * (2 << 20))
    box.snap()
    assert sorted(box.before.noted) == ["big", "goes", "shrinks"]
    assert box.words() == []
    time.sleep(0.01)
    box.write("big", b"z" * (1 << 20) + b"y")
    box.rm("goes")
    box.write("shrinks", "small\n")
    box.write("fits", b"x" * (3 << 20))
    box.write("more", b"x" * (3 << 20))
    assert box.words() == ["M big", "M fits", "D goes", "A more", "M shrinks"]
    assert "big" in box.earlier()


def test_untracked_files_together_stay_within_the_budget(box):
    for number in range(25):
        box.write(f"f{number:02}", os.urandom(1 << 20))
    box.snap()
    assert len(box.before.untracked) == 20 and len(box.before.noted) == 5
    # A newcomer that sorts first does not push out what was recorded.
    box.write("a-new", os.urandom(1 << 20))
    assert box.words() == ["A a-new"]
    time.sleep(0.01)
    box.write("f24", os.urandom(1 << 20))
    box.write("f00", os.urandom(1 << 20))
    assert box.words() == ["A a-new", "M f00", "M f24"]


def test_a_large_tracked_file_that_changed_is_noted(box):
    box.write("t", "small\n")
    box.commit()
    box.snap()
    box.write("t", b"x" * (17 << 20))
    change = box.changes().files[0]
    assert (change.status, change.path, change.size_bytes) == ("M", "t", 17 << 20)


def test_sockets_fifos_and_embedded_repositories_are_left_out(box):
    box.write("a")
    box.write("was-file")
    box.commit()
    os.mkfifo(os.path.join(box.top, "fifo"))
    sock = socket.socket(socket.AF_UNIX)
    old = os.getcwd()
    os.chdir(box.top)
    try:
        sock.bind("sock")
    finally:
        os.chdir(old)
    Box(os.path.join(box.top, "inner"), box.env, box.store).write("x")
    filled = Box(os.path.join(box.top, "inner2"), box.env, box.store)
    filled.write("x")
    filled.commit()
    box.snap()
    assert sorted(box.before.noted) == ["inner/", "inner2/"]
    box.write("b")
    box.rm("was-file")
    os.mkfifo(os.path.join(box.top, "was-file"))
    assert [w for w in box.words() if "inner" not in w and "was-file" not in w] == ["A b"]


def test_submodules_count_by_their_commit(box, tmp_path):
    lib = Box(tmp_path / "lib", box.env, box.store)
    lib.write("x")
    lib.commit()
    box.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", lib.top, "sub")
    box.git("config", "submodule.sub.ignore", "all")
    box.commit()
    box.git("clone", "-q", box.top, str(tmp_path / "unpopulated"))
    bare = Box(tmp_path / "unpopulated", box.env, tmp_path / "s2", "none")
    bare.snap()
    assert bare.words() == []
    sub = Box(os.path.join(box.top, "sub"), box.env, box.store, "none")
    sub.write("x", "dirty\n")
    box.snap()
    Box(os.path.join(box.top, "inner"), box.env, box.store)
    changes = box.changes()
    assert ([c.path for c in changes.files], changes.closed) == (["inner/"], ("inner/", "sub"))
    shutil.rmtree(os.path.join(box.top, "inner"))
    assert box.words() == [] and box.changes().closed == ("sub",)
    sub.git("-c", "user.name=n", "-c", "user.email=e", "commit", "-qam", "inside")
    assert box.words() == ["M sub"]
    assert "+Subproject commit" in box.changes().diff


@pytest.mark.parametrize("sparse_index", [False, True])
def test_sparse_entries_are_not_deletions(box, sparse_index):
    for folder in ("in", "out"):
        for number in range(5):
            box.write(f"{folder}/{number}", f"{number}\n")
    box.commit()
    box.git("sparse-checkout", "init", "--cone", *(["--sparse-index"] if sparse_index else []))
    box.git("sparse-checkout", "set", "in")
    assert not os.path.exists(os.path.join(box.top, "out"))
    box.snap()
    assert box.words() == [] and box.earlier() == ()
    box.write("in/1", "new\n")
    box.write("out/fresh", "new\n")
    assert box.words() == ["M in/1", "A out/fresh"]
    box.git("sparse-checkout", "disable")
    assert box.words() == ["M in/1", "A out/fresh"]


@pytest.mark.parametrize(("packed", "folders"), [(False, ["a"]), (True, ["a"]), (False, ["a", "c", "d"])])
def test_a_sparse_index_is_spelled_out_without_a_trace(box, packed, folders):
    for name in ("f", "a/b/1", "c/2", "d/e/f/3", "d/4"):
        box.write(name, f"{name}\n")
    box.commit()
    box.git("sparse-checkout", "init", "--cone", "--sparse-index")
    box.git("sparse-checkout", "set", *folders)
    if packed:
        box.git("gc", "-q")
    time.sleep(0.02)
    was = fingerprint(os.path.join(box.top, ".git"))
    box.snap()
    box.write("a/b/1", "changed\n")
    box.write("d/e/new", "d/4\n")
    assert box.words() == ["M a/b/1", "A d/e/new"] and box.earlier() == ()
    assert fingerprint(os.path.join(box.top, ".git")) == was


def test_narrowing_a_sparse_checkout_is_no_deletion(box):
    box.write("in/1")
    box.write("out/1")
    box.commit()
    box.snap()
    box.git("sparse-checkout", "set", "in")
    assert not os.path.exists(os.path.join(box.top, "out/1"))
    assert box.words() == []


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_every_index_version_works(box, version):
    box.write("aa/bb")
    box.write("aa/cc")
    box.git("config", "index.version", version)
    box.commit()
    box.git("update-index", "--index-version", version)
    box.snap()
    box.write("aa/bb", "2\n")
    assert box.words() == ["M aa/bb"]


def test_a_split_index_works_and_stays_untouched(box):
    for number in range(50):
        box.write(f"f{number}")
    box.commit()
    box.git("config", "core.splitIndex", "true")
    box.git("update-index", "--split-index")
    box.write("f1", "2\n")
    box.git("add", "f1")
    assert any(name.startswith("sharedindex.") for name in os.listdir(os.path.join(box.top, ".git")))
    box.write("f2", "mine\n")
    was = fingerprint(os.path.join(box.top, ".git"))
    box.snap()
    assert fingerprint(os.path.join(box.top, ".git")) == was
    box.write("f3", "2\n")
    assert box.words() == ["M f3"]
    assert box.earlier() == ("f1", "f2")


def test_a_file_as_young_as_the_index_is_compared_by_content(box):
    """Same size and same time stamp: only the copied index's time stamp tells git to look closer."""
    path = box.write("racy", "one\n")
    past = 1_700_000_000 * 10**9
    os.utime(path, ns=(past, past))
    box.git("config", "core.trustctime", "false")
    box.commit()
    box.write("racy", "two\n")
    os.utime(path, ns=(past, past))
    os.utime(os.path.join(box.top, ".git/index"), ns=(past, past))
    box.snap()
    assert box.earlier() == ("racy",)


def test_safecrlf_does_not_stop_it_and_line_ends_do_not_count(box):
    box.git("config", "core.autocrlf", "input")
    box.git("config", "core.safecrlf", "true")
    box.write("a", "1\r\n2\r\n")
    box.git("-c", "core.safecrlf=false", "add", "a")
    box.git("commit", "-qm", "a")
    box.write("b", "x\r\n")
    box.snap()
    box.write("a", "1\r\n2\r\n3\r\n")
    assert box.words() == ["M a"]
    assert "\r" not in box.changes().diff


def test_line_ends_that_are_recorded_as_they_are_stay_so(box):
    box.write("dos", "1\r\n2\r\n")
    box.git("-c", "core.autocrlf=false", "add", "dos")
    box.git("commit", "-qm", "dos")
    box.git("config", "core.autocrlf", "input")
    box.snap()
    box.write("dos", "1\r\n2\r\n3\r\n")
    box.write("new", "1\r\n")
    was = fingerprint(os.path.join(box.top, ".git"))
    change = box.changes().files[0]
    assert (change.path, change.added, change.deleted) == ("dos", 1, 0)
    assert "+1\n" in box.changes().diff
    assert fingerprint(os.path.join(box.top, ".git")) == was


def test_contents_that_the_repository_has_already_get_no_new_time_stamp(box):
    box.write("a", "one\n")
    box.write("b", "two\n")
    box.commit()
    box.write("c", "one\n")
    box.write("d/e", "staged\n")
    box.git("add", "d/e")
    time.sleep(0.02)
    was = fingerprint(os.path.join(box.top, ".git"))
    box.snap()
    box.write("a", "two\n")
    box.write("d/e", "one\n")
    box.write("d/f", "staged\n")
    box.words()
    assert fingerprint(os.path.join(box.top, ".git")) == was
    box.git("repack", "-adq")
    was = fingerprint(os.path.join(box.top, ".git"))
    box.write("b", "one\n")
    box.words()
    assert fingerprint(os.path.join(box.top, ".git")) == was


@pytest.mark.parametrize("agent", [["status"], ["add", "."], ["commit", "-qam", "all", "--allow-empty"]])
def test_a_filter_that_the_agents_git_runs_changes_no_file(box, agent):
    box.write(".gitattributes", "*.bin filter=x -text\n")
    box.git("config", "filter.x.clean", "sed s/raw/ptr/")
    box.git("config", "filter.x.smudge", "sed s/ptr/raw/")
    for name in ("a.bin", "b.bin", "c.bin", "d.bin"):
        box.write(name, "raw\n")
    box.commit()
    for name in ("a.bin", "b.bin", "c.bin", "d.bin"):
        os.utime(os.path.join(box.top, name), (1, 1))      # what git would have to look at
    box.write("mine.bin", "raw\n")
    box.snap()
    box.git(*agent)
    assert box.words() == []
    box.write("a.bin", "RAW\n")
    os.utime(os.path.join(box.top, "a.bin"), (1, 1))
    os.chmod(os.path.join(box.top, "b.bin"), 0o755)
    box.rm("c.bin")
    os.rename(os.path.join(box.top, "mine.bin"), os.path.join(box.top, "d.bin"))
    assert {"M a.bin", "M b.bin", "D c.bin", "D mine.bin"} <= set(box.words())


def test_a_file_that_git_cannot_convert_is_left_out(box):
    box.write(".gitattributes", "*.u16 working-tree-encoding=UTF-16\n")
    box.commit()
    for number in range(9):
        box.write(f"f{number}")
    box.write("f5.u16", b"\x00not utf-16")
    box.snap()
    assert set(box.before.untracked) == {f"f{n}" for n in range(9)}
    box.write("f1", "2\n")
    assert box.words() == ["M f1"]


def test_a_file_that_vanishes_or_changes_midway_is_left_out(box, monkeypatch):
    box.write("a")
    box.write("b")
    box.write("c")
    real = g._add_paths

    def later(git, paths):
        os.remove(os.path.join(box.top, "b"))
        os.remove(os.path.join(box.top, "c"))
        os.mkfifo(os.path.join(box.top, "c"))
        return real(git, paths)

    monkeypatch.setattr(g, "_add_paths", later)
    box.snap()
    monkeypatch.undo()
    assert box.earlier() == ("a",)
    box.write("d")
    assert "A d" in box.words()


def test_a_store_inside_the_working_tree_is_not_part_of_it(tmp_path, env):
    box = Box(tmp_path / "w", env, tmp_path / "w" / "tmp" / "store")
    box.write("a")
    box.snap()
    box.write("b")
    assert box.words() == ["A b"]


# --- what is left alone --------------------------------------------------------------------------

def everything(box):
    box.snap()
    box.write("after", "1\n")
    after = box.snap()
    box.changes(after=after)
    box.earlier()
    g.commits_between(box.before, after, env=box.env, deadline_at=box.deadline())


def test_the_repository_stays_byte_for_byte_untouched(box):
    for number in range(20):
        box.write(f"d/{number}")
    box.commit()
    box.git("update-index", "--untracked-cache", ok=False)
    os.utime(os.path.join(box.top, "d/3"))
    box.write("d/4", "changed\n")
    box.git("add", "d/4")
    box.write("d/5", "changed\n")
    box.write("new", "n\n")
    was = fingerprint(os.path.join(box.top, ".git"))
    everything(box)
    assert fingerprint(os.path.join(box.top, ".git")) == was


def mark_program(tmp_path, name="ran", last="exec cat"):
    """A program that leaves a mark and passes its input on."""
    mark = tmp_path / name
    program = tmp_path / f"{name}.sh"
    program.write_text(f"#!/bin/sh\necho \"$0 $@\" >> {mark}\n{last}\n")
    program.chmod(0o755)
    return str(program), mark


FILTERS = ["plain", "odd=name", "dots.and.more", "quo'te\"s", "sp ace", "lfs"]


@pytest.mark.parametrize("scope", ["local", "global", "environment", "parameters", "included"])
def test_nothing_that_is_configured_runs(box, tmp_path, scope):  # noqa: C901  (one trap after the other)
    program, mark = mark_program(tmp_path)
    box.write("a", "1\n")
    box.commit()
    settings = {"core.fsmonitor": program, "core.hooksPath": str(tmp_path / "hooks"), "diff.external": program,
                "core.pager": program, "pager.diff-tree": program, "diff.d.textconv": program, "diff.d.command": program,
                "credential.helper": program, "core.editor": program, "core.sshCommand": program,
                "core.alternateRefsCommand": program, "gpg.program": program, "log.showSignature": "true",
                "interactive.diffFilter": program, "merge.d.driver": program, "alias.ls-files": f"!{program}",
                "hook.x.command": program, "hook.x.event": "post-index-change", "core.askPass": program,
                "trace2.eventTarget": str(mark), "trace2.normalTarget": str(mark)}
    for name in FILTERS:
        settings.update({f"filter.{name}.clean": program, f"filter.{name}.smudge": program,
                         f"filter.{name}.process": program, f"filter.{name}.required": "true"})
    os.mkdir(tmp_path / "hooks")
    for name in ("post-index-change", "pre-commit", "reference-transaction", "fsmonitor-watchman", "post-checkout"):
        os.symlink(program, tmp_path / "hooks" / name)
        os.symlink(program, os.path.join(box.top, ".git/hooks", name))
    box.write(".gitattributes", "".join(
        f"*.f{number} filter={name} diff=d\n" for number, name in enumerate(["plain", "odd=name", "dots.and.more", "lfs"]))
        + "* diff=d\n")
    for number in range(4):
        box.write(f"x.f{number}", "content\n")
    if scope in ("local", "included", "global"):
        target = {"local": os.path.join(box.top, ".git/config"), "included": str(tmp_path / "inc"),
                  "global": os.path.join(box.env["HOME"], ".gitconfig")}[scope]
        for key, text in settings.items():
            box.git("config", "-f", target, key, text)
        if scope == "included":
            box.git("config", "include.path", target)
    elif scope == "environment":
        box.env["GIT_CONFIG_COUNT"] = str(len(settings))
        for number, (key, text) in enumerate(settings.items()):
            box.env[f"GIT_CONFIG_KEY_{number}"], box.env[f"GIT_CONFIG_VALUE_{number}"] = key, text
    else:
        box.env["GIT_CONFIG_PARAMETERS"] = " ".join(
            "'{}'='{}'".format(k.replace("'", "'\\''"), v) for k, v in settings.items())
    for name in ("GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_EDITOR", "GIT_SSH_COMMAND", "GIT_ASKPASS"):
        box.env[name] = program
    for name in ("GIT_TRACE", "GIT_TRACE_SETUP", "GIT_TRACE2", "GIT_TRACE2_EVENT", "GIT_TRACE_PACKET"):
        box.env[name] = str(mark)
    mark.unlink(missing_ok=True)
    box.snap()
    box.write("x.f0", "changed\n")
    box.write("a", "2\n")
    after = box.snap()
    changes = box.changes(after=after)
    box.earlier()
    g.commits_between(box.before, after, env=box.env, deadline_at=box.deadline())
    assert not mark.exists(), mark.read_text()
    assert [c.path for c in changes.files] == ["a", "x.f0"]
    assert "+changed" in changes.diff
    subprocess.run(["git", "status"], cwd=box.top, env=box.env, capture_output=True, check=False)
    assert mark.exists(), "the trap itself does not work"


def test_nothing_configured_in_a_submodule_runs(box, tmp_path):
    program, mark = mark_program(tmp_path)
    lib = Box(tmp_path / "lib", box.env, box.store)
    lib.write("x")
    lib.commit()
    box.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", lib.top, "sub")
    box.commit()
    sub = Box(os.path.join(box.top, "sub"), box.env, box.store, "none")
    sub.git("config", "core.fsmonitor", program)
    sub.git("config", "filter.f.clean", program)
    sub.write(".gitattributes", "* filter=f\n")
    box.git("config", "status.submoduleSummary", "true")
    box.git("config", "diff.submodule", "diff")
    box.git("config", "submodule.recurse", "true")
    mark.unlink(missing_ok=True)
    was = fingerprint(os.path.join(box.top, ".git"))
    sub.write("x", "dirty\n")
    everything(box)
    assert not mark.exists()
    assert fingerprint(os.path.join(box.top, ".git")) == was
    sub.git("status")
    assert mark.exists(), "the trap itself does not work"


def test_a_partial_clone_fetches_nothing(box, tmp_path):
    program, mark = mark_program(tmp_path, last="exit 1")     # not a dialogue with itself that never ends
    box.write("a", "1\n")
    box.write("b", "b1\n")
    box.write("crlf", "1\r\n")
    os.symlink("a", os.path.join(box.top, "link"))
    box.commit()
    box.write("a", "2\n")
    box.write("b", "b2\n")
    box.write("crlf", "2\r\n")
    box.commit()
    box.git("config", "uploadpack.allowFilter", "true")
    box.git("config", "uploadpack.allowAnySHA1InWant", "true")
    box.git("clone", "-q", "--filter=blob:none", f"file://{box.top}", str(tmp_path / "part"))
    part = Box(tmp_path / "part", box.env, tmp_path / "s2", "none")
    part.git("config", "user.name", "n")
    part.git("config", "user.email", "e")
    old_tree = part.git("rev-parse", "HEAD~1").strip()
    part.git("reset", "-q", "--soft", old_tree)
    part.git("read-tree", old_tree)                 # index entries whose blobs are not here
    part.git("config", "remote.origin.uploadpack", program)
    part.git("config", "core.autocrlf", "true")
    part.git("update-index", "--skip-worktree", "crlf")
    part.rm("crlf")
    objects = part.git("count-objects", "-v")
    was = fingerprint(os.path.join(part.top, ".git"))
    part.snap()
    part.write("a", "3\n")
    part.rm("link")
    os.symlink("b", os.path.join(part.top, "link"))
    part.rm("b")
    words = part.words()
    assert part.earlier() == ("a", "b")
    assert part.changes().diff.count("diff --git") == 3
    assert fingerprint(os.path.join(part.top, ".git")) == was
    assert part.git("count-objects", "-v") == objects
    assert not mark.exists()
    assert words == ["M a", "D b", "M link"]
    part.git("rm", "-q", "--sparse", "--cached", "crlf")
    assert part.words() == ["M a", "D b", "D crlf", "M link"]
    assert part.changes().diff == ""
    assert not mark.exists()
    part.git("cat-file", "-p", f"{old_tree}:a", ok=False)
    assert mark.exists(), "the trap itself does not work"


def test_variables_of_a_git_hook_lead_nowhere_else(box, tmp_path):
    other = Box(tmp_path / "other", box.env, box.store)
    box.write("a")
    box.commit()
    box.env.update(GIT_DIR=os.path.join(other.top, ".git"), GIT_INDEX_FILE=str(tmp_path / "idx"), GIT_PREFIX="x/",
                   GIT_WORK_TREE=other.top, GIT_OBJECT_DIRECTORY=str(tmp_path / "o"), GIT_LITERAL_PATHSPECS="0",
                   GIT_ATTR_SOURCE="HEAD", GIT_NAMESPACE="n", GIT_QUARANTINE_PATH=str(tmp_path / "q"))
    shot = box.snap()
    assert shot.repo.top == box.top
    box.write("a", "2\n")
    assert box.words() == ["M a"]
    assert not os.path.exists(tmp_path / "idx")


# --- trouble -------------------------------------------------------------------------------------

def why_none(cwd, env, seconds=20):
    with pytest.raises(g.GitError) as caught:
        g.find_repo(str(cwd), env=env, deadline_at=time.monotonic() + seconds)
    return str(caught.value)


def test_no_repository_is_a_reason_and_not_an_error(tmp_path, env):
    env["GIT_CEILING_DIRECTORIES"] = str(tmp_path)
    (tmp_path / "plain").mkdir()
    assert why_none(tmp_path / "plain", env) == "not a git repository"
    bare = Box(tmp_path / "bare", env, tmp_path / "s", "--bare")
    assert why_none(bare.top, env) == "no working tree"
    assert why_none(tmp_path / "missing", env).endswith("is gone")
    assert why_none(tmp_path / "plain", {**env, "PATH": str(tmp_path)}) == "git is not installed"
    with pytest.raises(g.GitError):
        g.find_repo(str(tmp_path / "plain"), env=env, deadline_at=time.monotonic() + 9)


def test_another_owner_is_refused_unless_the_variables_call_it_safe(box):
    box.write("a")
    box.commit()
    if os.geteuid() == 0:
        for base, folders, files in os.walk(box.top):
            for name in (".", *folders, *files):
                os.chown(os.path.join(base, name), 65534, 65534, follow_symlinks=False)
    else:
        pytest.skip("needs root")
    assert "safe.directory" in why_none(box.top, box.env)
    box.env.update(GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="safe.directory", GIT_CONFIG_VALUE_0="*")
    box.snap()
    box.write("a", "2\n")
    assert box.words() == ["M a"]


def test_a_directory_with_a_line_break_in_its_path(tmp_path, env):
    box = Box(tmp_path / "a\nb", env, tmp_path / "s")
    assert why_none(box.top, env)


def test_odd_paths_of_the_repository_and_store(tmp_path, env):
    box = Box(tmp_path / "we ird:;\"'#é", env, tmp_path / "st\nore \"x")
    box.write("a")
    box.commit()
    box.snap()
    box.write("a", "2\n")
    assert "+2" in box.changes().diff


def test_over_the_deadline_nothing_is_left(box, tmp_path):
    fake = tmp_path / "bin"
    fake.mkdir()
    repo = g.find_repo(box.top, env=box.env, deadline_at=box.deadline())
    (fake / "git").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 60 & echo $! > {tmp_path}/pid2\nwait\n")
    (fake / "git").chmod(0o755)
    env = {**box.env, "PATH": f"{fake}:{box.env['PATH']}"}
    began = time.monotonic()
    shot, why = g.take_snapshot(repo, box.store, env=env, deadline_at=time.monotonic() + 0.5)
    assert (shot, why) == (None, "git took too long") and time.monotonic() - began < 3
    time.sleep(0.1)
    for name in ("pid", "pid2"):
        pid = int((tmp_path / name).read_text())
        try:
            state = Path(f"/proc/{pid}/stat").read_text().split()[2]
        except OSError:
            state = "gone"
        assert state in ("gone", "Z")


def test_a_full_or_missing_store_is_a_reason(box):
    repo = g.find_repo(box.top, env=box.env, deadline_at=box.deadline())
    shot, why = g.take_snapshot(repo, "/dev/null/x", env=box.env, deadline_at=box.deadline())
    assert shot is None and why


def test_a_corrupt_index_is_a_reason(box):
    box.write("a")
    box.commit()
    with open(os.path.join(box.top, ".git/index"), "wb") as file:
        file.write(b"DIRC nonsense")
    repo = g.find_repo(box.top, env=box.env, deadline_at=box.deadline())
    shot, why = g.take_snapshot(repo, box.store, env=box.env, deadline_at=box.deadline())
    assert shot is None and why


def test_the_store_is_private_and_goes_away(box):
    path = g.private_folder({"TMPDIR": os.path.dirname(box.store)})
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    box.store = path
    box.write("a")
    box.snap()
    g.remove_folder(path)
    assert not os.path.exists(path)


SCRIPT = """
import os, sys, time
sys.path[:0] = [{here!r}]
import orch as g
env = dict(os.environ)
until = time.monotonic() + 20
repo = g.find_repo({top!r}, env=env, deadline_at=until)
shot, why = g.take_snapshot(repo, {store!r}, env=env, deadline_at=until)
assert shot, why
print(sorted(shot.untracked), sorted(shot.noted))
print(g.earlier_changes(shot, env=env, deadline_at=until))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="runs as another user")
def test_unreadable_files_and_a_read_only_repository_are_no_obstacle(env):
    import tempfile
    base = tempfile.mkdtemp()                       # pytest's own folders are closed to others
    try:
        os.chmod(base, 0o777)
        home = os.path.join(base, "home")
        os.mkdir(home, 0o777)
        code = os.path.join(base, "code")
        os.mkdir(code)
        shutil.copy(g.__file__, os.path.join(code, "orch.py"))
        box = Box(os.path.join(base, "w"), {**env, "HOME": home}, os.path.join(base, "s"))
        box.write("a")
        box.write("locked")
        box.commit()
        box.write("closed")
        box.write("open")
        box.write("dir/x")
        for path, mode in (("locked", 0), ("closed", 0), ("dir", 0)):
            os.chmod(os.path.join(box.top, path), mode)
        for folder, folders, files in os.walk(base):
            for name in (".", *folders, *files):
                os.chown(os.path.join(folder, name), 65534, 65534, follow_symlinks=False)
        for folder, _, _ in os.walk(os.path.join(box.top, ".git")):
            os.chmod(folder, 0o555)
        os.chmod(box.top, 0o555)
        script = SCRIPT.format(here=code, top=box.top, store=box.store)
        if not os.path.exists("/usr/bin/python3"):
            pytest.skip("no Python that another user may start")
        done = subprocess.run(["/usr/bin/python3", "-c", script], env=box.env, cwd="/", capture_output=True, text=True,
                              user=65534, group=65534, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == ["['open'] ['closed', 'locked']", "('closed', 'locked', 'open')"]
    finally:
        shutil.rmtree(base, ignore_errors=True)


# --- the size of the diff ------------------------------------------------------------------------

def test_a_diff_that_does_not_fit_shows_the_smaller_files(box):
    box.write("small", "1\n")
    box.write("large", "1\n")
    box.write("huge", "1\n")
    box.write("bin", b"\0\1")
    box.commit()
    box.snap()
    box.write("small", "2\n")
    box.write("large", "line of text\n" * 1500)
    box.write("huge", "line\n" * 9000)
    box.write("bin", b"\0\2")
    changes = box.changes()
    assert changes.shown == ("small",) and "+2" in changes.diff
    assert {c.path: (c.added, c.deleted) for c in changes.files} == {
        "small": (1, 1), "large": (1500, 1), "huge": (9000, 1), "bin": (None, None)}
    assert box.changes(chars=0).diff == ""


def test_names_with_pathspec_magic_are_meant_literally_beside_a_huge_file(box):
    for name in NAMES:
        box.write(name, "1\n")
    box.commit()
    box.snap()
    for name in NAMES:
        box.write(name, "2\n")
    box.write("huge", "line\n" * 9000)
    changes = box.changes()
    assert changes.diff.count("diff --git ") == len(NAMES) == len(changes.shown)
    assert "+++ b/é" in changes.diff and "+++ \"b/line\\nbreak\"" in changes.diff


def test_renames_are_short(box):
    box.write("old", "".join(f"line {n}\n" for n in range(100)))
    box.commit()
    box.snap()
    os.rename(os.path.join(box.top, "old"), os.path.join(box.top, "new"))
    change = box.changes().files[0]
    assert (change.status, change.path, change.old_path, change.added) == ("R", "new", "old", 0)
    assert "rename from old" in box.changes().diff


def test_an_ordinary_first_snapshot_takes_few_processes(box, monkeypatch):
    box.write("a")
    box.commit()
    calls = []
    real = g.start_helper
    monkeypatch.setattr(g, "start_helper", lambda argv, **how: calls.append(argv[2]) or real(argv, **how))
    box.snap()
    assert calls == ["config", "rev-parse", "ls-files"]
    box.before, calls[:] = None, []
    box.store += "2"
    os.mkdir(box.store)
    box.write("b")
    box.snap()
    assert calls == ["config", "rev-parse", "ls-files", "update-index"]
