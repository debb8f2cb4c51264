"""The README's recipes for CI, as they stand there: parsed, and run in what GitHub, GitLab, parallel and Slurm give them."""
from __future__ import annotations

import json
import os
import re
import shutil
import time

import pytest
from conftest import claude_error, claude_limit, claude_ok, codex_limit, codex_ok, git, needs_git, recipe
from test_github import Runner
from test_readme import SBATCH, executable

pytestmark = needs_git


def parsed(words):
    """The YAML recipe that holds these words, as a value; `on` is true to YAML 1.1."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (pip install pyyaml)")
    return yaml.safe_load(recipe("yaml", words))


def seconds(script, option):
    """The value of a duration option in a script."""
    number, unit = re.search(rf"{option} (\d+)([mh])", script).groups()
    return int(number) * {"m": 60, "h": 3600}[unit]


def limits(fake, *, hours=2):
    """Both agents at their limit."""
    fake("claude", claude_limit(time.time() + hours * 3600))
    fake("codex", codex_limit(time.time() + (hours + 1) * 3600))


@pytest.fixture
def merge_request(repo, shell):
    """A checkout as CI makes it of a pull request: HEAD merges its commit into main. orch is tools/orch."""
    shell("git checkout -qb topic && echo proposed > a.txt && git commit -qam topic && git checkout -q main"
          " && echo elsewhere > b.txt && git commit -qam main && git merge -q --no-ff -m merged topic && git checkout -q --detach")
    (repo / "tools").mkdir()
    shutil.copy(shell.orch.program, repo / "tools" / "orch")
    shell.orch.agents.joinpath("orch").unlink()
    executable(shell.orch.agents / "npm", "#!/bin/sh\necho \"npm $*\"\n")
    return repo


# === GITHUB ACTIONS ======================================================

class Job:
    """Runs a job's `run:` steps as the runner does; `outputs` by step id, `failed`, `summary`."""

    def __init__(self, shell, folder, options):
        self.shell, self.folder, self.options = shell, folder, options
        self.outputs, self.failed, self.summary, self.ran = {}, False, "", []

    def run(self, steps):
        for number, one in enumerate(steps):
            if "run" not in one or not self.wanted(one.get("if", "success()")):
                continue
            folder = self.folder / str(number)
            folder.mkdir(parents=True)
            runner = Runner(folder)
            env = {name: self.expanded(text) for name, text in one.get("env", {}).items()}
            assert "${{" not in one["run"], "an expression in a script is an injection"
            done = self.shell(one["run"], ok=False, options=self.options, RUNNER_TEMP=str(folder.parent), ORCH_HOME=None, **runner.env, **env)
            self.outputs[one.get("id")] = runner.outputs
            self.summary += runner.summary
            self.failed = self.failed or done.code != 0
            self.ran.append(one["run"])
        return self

    def wanted(self, condition):
        found = re.fullmatch(r"steps\.(\w+)\.outputs\.(\w+) == '(\w+)'", condition)
        if found:
            return not self.failed and self.outputs[found[1]].get(found[2]) == found[3]
        return {"always()": True, "success()": not self.failed}[condition]

    def expanded(self, text):
        return re.sub(r"\$\{\{ (?:secrets\.(\w+)|steps\.(\w+)\.outputs\.(\w+)) \}\}",
                      lambda found: "sk-test-" + "0" * 30 if found[1] else self.outputs[found[2]][found[3]], text)


@pytest.fixture(params=["-e", "--noprofile --norc -eo pipefail"])
def job(request, shell, merge_request, tmp_path):
    """The README's GitHub job, for both of the shells that GitHub uses; nobody waits."""
    def run():
        text = json.dumps(parsed("pull_request")).replace("--wait 10m", "--wait 0")
        steps = json.loads(text)["jobs"]["review"]["steps"]
        return Job(shell, tmp_path / f"job{len(list(tmp_path.glob('job*')))}", request.param).run(steps)
    return run


def test_the_workflow_asks_for_no_more_than_it_needs():
    flow = parsed("pull_request")
    review = flow["jobs"]["review"]
    assert flow["permissions"] == {"contents": "read"}
    assert flow.get("on", flow.get(True)) == "pull_request"
    assert review["if"] == "github.event.pull_request.head.repo.full_name == github.repository"
    checkout, = (one for one in review["steps"] if one.get("uses", "").startswith("actions/checkout@"))
    assert checkout["with"] == {"fetch-depth": 2, "persist-credentials": False}
    with_secrets = [one for one in review["steps"] if "secrets." in json.dumps(one)]
    assert [one.get("id") for one in with_secrets] == ["review"]
    script = with_secrets[0]["run"]
    assert seconds(script, "--wait") < seconds(script, "--deadline") < review["timeout-minutes"] * 60
    restored, saved = (one["with"] for one in review["steps"] if one.get("uses", "").startswith("actions/cache/"))
    assert restored["path"] == saved["path"] == "~/.orch/state.json"
    assert restored["key"] == saved["key"]
    assert saved["key"].startswith(restored["restore-keys"])


def test_the_workflow_reviews_what_the_pull_request_changes(job, fake, merge_request):
    fake("claude", claude_ok("a.txt:1: looks odd"))
    done = job()
    assert not done.failed
    prompt = fake.call.prompt.decode()
    assert "+proposed" in prompt
    assert "elsewhere" not in prompt
    assert "> a.txt:1: looks odd" in done.summary
    assert done.outputs["review"]["answer"] == "a.txt:1: looks odd"
    assert (done.folder / "review.md").read_text() == "a.txt:1: looks odd\n"
    assert fake.call.env["ANTHROPIC_API_KEY"]
    assert git("status", "--porcelain", cwd=merge_request) == "?? tools/\n"


def test_with_all_agents_at_their_limit_the_job_passes_and_says_until_when(job, fake, orch):
    limits(fake)
    done = job()
    assert not done.failed
    assert re.search(r"Not reviewed; an agent is free again at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\.", done.summary)
    assert (orch.user_home / ".orch" / "state.json").exists()
    assert not job().failed                                # what was saved lets the next job start nobody
    assert fake.names == ["claude", "codex"]


def test_a_failure_fails_the_job(job, fake):
    fake("claude", claude_error())
    done = job()
    assert done.failed
    assert done.outputs["review"]["exit_code"] == "1"


# === GITLAB ==============================================================

def gitlab(shell, repo):
    """Run the GitLab job's scripts as its runner does; the Result."""
    review = parsed("merge_request_event")["review"]
    env = {"CI_PROJECT_DIR": str(repo), "CI_MERGE_REQUEST_DIFF_BASE_SHA": git("rev-parse", "HEAD^1", cwd=repo).strip()}
    env.update({name: text.replace("$CI_PROJECT_DIR", str(repo)) for name, text in review["variables"].items()})
    script = "\n".join([*review["before_script"], *review["script"]]).replace("--wait 8m", "--wait 0")
    return shell(script, ok=False, options="-eo pipefail", **env)


def test_the_gitlab_job_tells_limits_from_failures():
    review = parsed("merge_request_event")["review"]
    assert review["retry"] == {"max": 2, "exit_codes": [75]}
    assert review["allow_failure"] == {"exit_codes": [75]}
    script = " ".join(review["script"])
    assert (review["retry"]["max"] + 1) * seconds(script, "--wait") < int(review["timeout"].split()[0]) * 60
    assert seconds(script, "--deadline") < int(review["timeout"].split()[0]) * 60


def test_the_gitlab_job_reviews_and_shares_its_cooldowns(shell, fake, merge_request):
    fake("claude", claude_limit(time.time() + 7200))
    fake("codex", codex_ok("a.txt:1: looks odd"), codex_ok("again"))
    assert gitlab(shell, merge_request).code == 0
    assert (merge_request / "review.md").read_text() == "a.txt:1: looks odd\n"
    assert "+proposed" in fake.calls[0].prompt.decode()
    cached, = parsed("merge_request_event")["review"]["cache"]["paths"]
    kept = (merge_request / cached).read_bytes()
    shutil.rmtree(merge_request / ".orch-home")
    (merge_request / ".orch-home").mkdir()
    (merge_request / cached).write_bytes(kept)
    assert gitlab(shell, merge_request).code == 0
    assert fake.names == ["claude", "codex", "codex"]


def test_the_gitlab_job_ends_with_75_or_1(shell, fake, merge_request):
    limits(fake)
    assert gitlab(shell, merge_request).code == 75
    shutil.rmtree(merge_request / ".orch-home")
    fake("claude", claude_error())
    (fake.agents / "codex").unlink()
    assert gitlab(shell, merge_request).code == 1


# === A PLAIN SHELL, GNU PARALLEL, SLURM ==================================

@pytest.mark.parametrize(("agent", "code"), [("ok", 0), ("limit", 0), ("error", 1)])
def test_the_plain_recipe_takes_a_limit_for_no_failure(shell, fake, repo, agent, code):
    fake("claude", {"ok": claude_ok("much"), "limit": claude_limit(time.time() + 7200), "error": claude_error()}[agent])
    script = recipe("sh", "> report.md ||").replace("--wait 30m", "--wait 0")
    assert shell(script, ok=False).code == code
    assert (repo / "report.md").read_text() == ("much\n" if agent == "ok" else "")


@pytest.fixture
def crowd(repo, shell):
    """A repository with 24 text files."""
    if not shutil.which("parallel"):
        pytest.skip("GNU parallel is not installed (apt-get install parallel)")
    for number in range(24):
        (repo / f"{number:02}.txt").write_text(f"file {number}\n")
    shell("git rm -q a.txt b.txt && git add . && git commit -qm many")
    return repo


def test_parallel_runs_share_one_home_and_lose_nothing(crowd, shell, orch, fake):
    fake("claude", *[claude_limit(time.time() + 7200)] * 4)
    fake("codex", *[codex_ok("It is text.")] * 24)
    fake.forgive_unused = True                             # how many meet the limit before it is known is their race
    shell(recipe("sh", "parallel -j"))
    assert {path.read_text() for path in crowd.glob("*.md")} == {"It is text.\n"}
    assert len(list(crowd.glob("*.md"))) == 24
    prompts = [call.prompt.decode() for call in fake.calls if call.agent == "codex"]
    assert sorted(number for prompt in prompts for number in re.findall(r"^file (\d+)$", prompt, re.M)) == sorted(map(str, range(24)))
    limited = fake.names.count("claude")
    assert 1 <= limited <= 4                               # -j 4: those that had begun when the first one met it
    outcomes = [line["outcome"] for line in orch.ledger()]
    assert sorted(outcomes) == ["limited"] * limited + ["ok"] * 24
    assert len(orch.state()["jobs"]) == 24
    assert not list(orch.home.glob("*.corrupt*"))
    assert not list((orch.home / "cache" / "running").iterdir())


def test_parallel_tries_again_what_was_at_its_limit(crowd, shell, orch, fake):
    orch("cooldown", "set", "claude", "2h")
    fake("claude", *[claude_ok("It is text.")] * 24)
    script = recipe("sh", "parallel -j").replace("--wait 1h", "--wait 0")
    first, again = script.strip().rsplit("\n", 1)
    assert again.startswith("parallel --retry-failed")
    assert shell(first, ok=False).code == 24
    assert {line.split("\t")[6] for line in (crowd / "jobs.log").read_text().splitlines()[1:]} == {"75"}
    assert fake.calls == []
    orch("cooldown", "clear", "--all")
    shell(again)
    assert {path.read_text() for path in crowd.glob("*.md")} == {"It is text.\n"}


def test_a_slurm_array_shares_one_home_and_requeues_what_was_at_its_limit(crowd, shell, orch, fake, tmp_path):
    executable(orch.agents / "sbatch", SBATCH)
    executable(orch.agents / "scontrol", f"#!/bin/sh\necho \"$*\" >> {tmp_path}/requeued\n")
    fake("claude", *[claude_ok("It is text.")] * 3)
    shell(recipe("sh", "sbatch"))
    assert len(list(crowd.glob("*.md"))) == 3
    assert not (tmp_path / "requeued").exists()
    orch("cooldown", "set", "claude", "2h")
    shell(recipe("sh", "sbatch").replace("--wait 1h", "--wait 0"))
    assert sorted((tmp_path / "requeued").read_text().splitlines()) == ["requeue 1", "requeue 2", "requeue 3"]
    assert [line["outcome"] for line in orch.ledger()] == ["ok"] * 3
    assert os.path.exists(orch.home / "state.json")
