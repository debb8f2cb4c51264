"""What `--access` allows: asked for by the model, tried by the real agent, looked for in the file system.

Each run is one conversation in which the model tries several ways to change a file.
"""
from __future__ import annotations

import pytest

from .agents import change_settings
from .models import say, shell, write

AGENTS = ["claude", "codex", "opencode", "gemini", "copilot"]
agents = pytest.mark.parametrize("agent", AGENTS)

# Where an agent cannot promise to stay inside the directory under `edit`
NOT_CONFINED = {"opencode": "its shell also writes outside"}
NO_SHELL = {"gemini", "copilot"}                   # what orch gives them under `edit` leaves the shell out


@pytest.fixture
def outside(real):
    """A folder that is neither the working directory nor one for temporary files."""
    (real.base / "outside").mkdir()
    return real.base / "outside"


def everywhere(real, outside):
    """Steps that try to change files inside and outside, by the agent's own tool and by its shell."""
    return [step for folder in (real.work, outside) for step in (
        shell(f"echo x > {folder}/by-shell"), shell(f"sh -c 'echo x > {folder}/by-inner-shell'"),
        write(str(folder / "by-tool"), "x"))]


def made(folder):
    """The names of what was written there."""
    return {path.name for path in folder.iterdir()}


@pytest.mark.proves("`read` changes nothing")
@pytest.mark.parametrize("settings", ["plain", "all allowed"])
@agents
def test_read_lets_no_real_agent_change_a_file(real, outside, agent, settings):
    play = real.log_in(agent, *everywhere(real, outside), say())
    if settings == "all allowed":
        allow_everything(real.user_home)
    done = real.ask(agent, "--access", "read")
    assert (made(real.work), made(outside)) == (set(), set()), done
    assert len(play.conversation) == 7 and done.code == 0, f"it was not asked for everything\n{done}"


@pytest.mark.proves("`edit` stays inside")
@agents
def test_edit_lets_a_real_agent_write_inside_and_not_outside(real, outside, agent, record_property):
    play = real.log_in(agent, *everywhere(real, outside), say())
    done = real.ask(agent, "--access", "edit")
    by_shell = {"by-shell", "by-inner-shell"}
    assert made(real.work) - {"by-inner-shell"} == ({"by-tool"} if agent in NO_SHELL else {"by-tool", "by-shell"}), done
    assert made(outside) == (by_shell if agent in NOT_CONFINED else set()), done
    assert len(play.conversation) == (6 if agent == "opencode" else 7), done      # opencode ends at what is refused
    for note in [NOT_CONFINED.get(agent), "no shell" if agent in NO_SHELL else None]:
        record_property("note", note)


def allow_everything(home):
    """Make the user's own settings of every agent allow as much as they can."""
    change_settings(home / ".claude" / "settings.json", {
        "permissions": {"allow": ["Bash", "Bash(*)", "Write", "Edit", "Write(*)", "Edit(*)"], "defaultMode": "bypassPermissions"}})
    codex = home / ".codex" / "config.toml"
    if codex.exists():
        codex.write_text('sandbox_mode = "danger-full-access"\napproval_policy = "never"\n' + codex.read_text())
    everything = {"*": "allow", "edit": "allow", "bash": "allow", "external_directory": "allow"}
    change_settings(home / ".config" / "opencode" / "opencode.json", {
        "permission": everything, "agent": {name: {"permission": everything} for name in ("plan", "build", "general")}})
    change_settings(home / ".gemini" / "settings.json", {
        "tools": {"allowed": ["run_shell_command", "write_file", "replace"], "approvalMode": "yolo"},
        "general": {"defaultApprovalMode": "auto_edit"}, "security": {"autoAddToPolicyByDefault": True}})
    change_settings(home / ".copilot" / "config.json", {"trusted_folders": ["/"], "allow_all_tools": True, "allow_all_paths": True})
    change_settings(home / ".copilot" / "settings.json", {"trustedFolders": ["/"], "allowAllTools": True, "allowAllPaths": True})
