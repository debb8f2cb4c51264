"""How each real agent is pointed at the pretend models, and what it says it used.

A login is an agent with one way to be known to its vendor: `claude-plan` is Claude Code with a
subscription's token, `claude` the same with an API key. Keys and tokens are dummies.
"""
from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, NamedTuple

# Environment for every agent: nothing asks for anything but its model
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "GEMINI_TELEMETRY_ENABLED": "false", "COPILOT_OFFLINE": "true",
}


class Login(NamedTuple):
    """One way to run an agent."""
    agent: str
    set_up: Callable[[Path, str, bool], Mapping[str, str]]    # see `log_in`


def log_in(login: str, home: Path, url: str, patient: bool = False) -> Mapping[str, str]:
    """Write an agent's settings into its user's HOME, for a model at `url`; return its environment.

    `patient`: it retries as often as it does for users; else as seldom as its settings allow.
    """
    return LOGINS[login].set_up(home, url, patient)


def _claude(home: Path, url: str, patient: bool) -> Mapping[str, str]:
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-test-000", **({} if patient else {"CLAUDE_CODE_MAX_RETRIES": "0"})}


def _claude_plan(home: Path, url: str, patient: bool) -> Mapping[str, str]:
    key = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-test-000", "ANTHROPIC_API_KEY": ""}
    return {**_claude(home, url, patient), **key}


CODEX_QUIET = """
model = "gpt-5.1-codex"
check_for_update_on_startup = false
analytics = { enabled = false }
feedback = { enabled = false }
"""
CODEX_PROVIDER = """
model_provider = "pretend"
[model_providers.pretend]
name = "pretend"
base_url = "%s/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
supports_websockets = false
"""
CODEX_ONE_TRY = """
request_max_retries = 0
stream_max_retries = 0
"""
CODEX_PLAN = """
openai_base_url = "%s/v1"
chatgpt_base_url = "%s/backend-api"
"""


def _codex(home: Path, url: str, patient: bool) -> Mapping[str, str]:
    _write(home / ".codex" / "config.toml", CODEX_QUIET + CODEX_PROVIDER % url + ("" if patient else CODEX_ONE_TRY))
    return {"OPENAI_API_KEY": "sk-test-000"}


def _codex_plan(home: Path, url: str, patient: bool) -> Mapping[str, str]:
    """A ChatGPT login: unsigned tokens that are good for ten years."""
    claims = {"exp": 2_100_000_000, "email": "a@example.org",
              "https://api.openai.com/auth": {"chatgpt_plan_type": "plus", "chatgpt_account_id": "account-000", "chatgpt_user_id": "user-000"}}
    token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "none"}, claims, "x"))
    _write(home / ".codex" / "config.toml", CODEX_QUIET + CODEX_PLAN % (url, url))
    _write(home / ".codex" / "auth.json", {
        "OPENAI_API_KEY": None, "last_refresh": "2099-01-01T00:00:00Z",
        "tokens": {"id_token": token, "access_token": token, "refresh_token": "rt-test-000", "account_id": "account-000"}})
    return {"CODEX_REFRESH_TOKEN_URL_OVERRIDE": f"{url}/oauth/token"}


def _opencode(home: Path, url: str, patient: bool) -> Mapping[str, str]:
    model = {"name": "one", "limit": {"context": 200_000, "output": 8_000},
             "cost": {"input": 1, "output": 10, "cache_read": 0.1}}      # dollars for a million tokens
    _write(home / ".config" / "opencode" / "opencode.json", {
        "autoupdate": False, "share": "disabled", "model": "pretend/one", "small_model": "pretend/one",
        "provider": {"pretend": {"npm": "@ai-sdk/openai-compatible", "name": "Pretend", "models": {"one": model},
                                 "options": {"baseURL": f"{url}/v1", "apiKey": "sk-test-000"}}}})
    return {}


def _gemini(home: Path, url: str, patient: bool) -> Mapping[str, str]:
    _write(home / ".gemini" / "settings.json", {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False,
                    **({} if patient else {"maxAttempts": 1})},
        "model": {"name": "gemini-2.5-flash"},                           # else it asks another model which to take
        "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}})
    return {"GEMINI_API_KEY": "sk-test-000", "GOOGLE_GEMINI_BASE_URL": url}


def _copilot(home: Path, url: str, patient: bool) -> Mapping[str, str]:
    return {"COPILOT_PROVIDER_BASE_URL": f"{url}/v1", "COPILOT_PROVIDER_API_KEY": "sk-test-000", "COPILOT_MODEL": "gpt-5.1"}


LOGINS: Mapping[str, Login] = {
    "claude": Login("claude", _claude),
    "claude-plan": Login("claude", _claude_plan),
    "codex": Login("codex", _codex),
    "codex-plan": Login("codex", _codex_plan),
    "opencode": Login("opencode", _opencode),
    "gemini": Login("gemini", _gemini),
    "copilot": Login("copilot", _copilot),
}


def change_settings(path: Path, changes: Mapping[str, Any]) -> None:
    """Merge `changes` into a JSON settings file, section by section."""
    settings = json.loads(path.read_text()) if path.exists() else {}
    for name, value in changes.items():
        settings[name] = {**settings[name], **value} if isinstance(settings.get(name), dict) else value
    _write(path, settings)


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    os.chmod(path, 0o600)
