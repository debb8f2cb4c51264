#!/usr/bin/env python3
"""Prove that the fault tests can fail: `mutants.py [--only TEXT] [--jobs N] [--unproven]`.

Each row of MUTANTS is a deliberately broken build: a small, plausible bug, and the tests that must fail because of it.
A copy of the tree gets the bug, is built, must still answer a plain prompt (whatever breaks everything proves
nothing), and then every test of the row has to fail. Without any bug the same tests must pass.
Exit status 1 when a mutant survives one of its tests, or when a fault test was seen failing under none.

`before` stands exactly once in its file, which test_mutants.py checks.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FAULT_FILES = ("faults", "crash", "concurrency", "floods", "hostile", "started", "fuzz")
SMOKE = ("output::a_run_that_needs_nothing_said_says_nothing",)
TEST_S = 90                                                # a test that takes longer hangs, and has failed
TRIES = 3                                                  # a race does not show every time
MEMORY_BYTES = 4 << 30                                     # of one process: a bug must not take the machine with it


class Mutant(NamedTuple):
    """One broken build. `tests`: "file::name", less the `test_` of both, with `[case]` where one case is enough."""
    name: str
    bug: str                                               # what is broken, and how one would come to write it
    before: str
    after: str
    tests: Sequence[str]
    more: Sequence[tuple[str, str]] = ()                   # further edits of the same bug: (before, after)
    file: str = "orch.py"


# === LOCKS AND FILES =====================================================

FILES = (
    Mutant("no lock", "locks are not taken at all",
           "        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
           "        pass\n",
           ["concurrency::sixty_four_processes_of_every_kind_lose_and_double_nothing",
            "concurrency::no_writer_starves_and_no_reader_sees_half_a_file",
            "concurrency::a_lock_that_somebody_keeps_costs_a_warning_and_not_the_answer",
            "crash::two_runs_at_once_clear_up_one_dead_run_once"]),
    Mutant("lock by existence", "a lock is a file that exists, which a kill leaves behind",
           "        while not try_lock(self.fd):\n",
           '        while os.path.exists(self.path + ".held") or os.mkdir(self.path + ".held"):\n',
           ["crash::the_locks_of_a_process_that_ends_are_free"],
           [("    def __exit__(self, *_exc: object) -> None:\n",
             '    def __exit__(self, *_exc: object) -> None:\n        os.rmdir(self.path + ".held")\n')]),
    Mutant("lock waited for without end", "whoever keeps a lock hangs everybody",
           "            if waited_s > LOCK_WAIT_S:\n",
           "            if False:\n",
           ["concurrency::a_lock_that_somebody_keeps_costs_a_warning_and_not_the_answer"]),
    Mutant("patience is punished", "whoever waits for a lock asks less and less often, and newcomers are quicker",
           "            pause_s = min(pause_s * 2, 0.05 / (1 + 2 * waited_s)) ",
           "            pause_s = min(pause_s * 2, 0.05) ",
           ["concurrency::whoever_has_waited_longer_for_a_lock_asks_more_often"]),
    Mutant("plain write of the state", "the new file is written over the old one, not renamed",
           "            os.replace(temporary, path)\n",
           '            with open(path, "wb") as file:\n                file.write(read_file(temporary))\n',
           ["concurrency::no_writer_starves_and_no_reader_sees_half_a_file",
            "faults::a_file_is_on_the_disk_before_it_takes_the_place_of_the_old_one"]),
    Mutant("no fsync", "a file is renamed before it is on the disk",
           "            os.fsync(fd)\n",
           "",
           ["faults::a_file_is_on_the_disk_before_it_takes_the_place_of_the_old_one"]),
    Mutant("half a new file stays", "where writing fails, what was written is not removed",
           "    finally:\n        remove_file(temporary)\n",
           "    finally:\n        pass\n",
           ["faults::a_disk_that_fills_up_never_leaves_half_a_file"]),
    Mutant("links followed by the ledger", "O_NOFOLLOW dropped where a line is appended",
           "open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)",
           "open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)",
           ["faults::whatever_stands_in_place_of_a_file_of_orch[a link to a file]"]),
    Mutant("links followed by locks", "O_NOFOLLOW dropped where a lock file is made",
           "os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)\n        begun",
           "os.O_RDWR | os.O_CREAT)\n        begun",
           ["faults::whatever_stands_in_place_of_a_file_of_orch[a link to nothing]"]),
    Mutant("links followed by the stamp", "O_NOFOLLOW dropped where the time of trimming is kept",
           "open_file(stamp, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW)",
           "open_file(stamp, os.O_WRONLY | os.O_CREAT)",
           ["faults::whatever_stands_in_place_of_a_file_of_orch[a link to nothing]"]),
    Mutant("pipes opened and waited for", "O_NONBLOCK dropped where files are opened",
           "os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)",
           "os.open(path, flags | os.O_CLOEXEC, 0o600)",
           ["faults::whatever_stands_in_place_of_a_file_of_orch[a pipe]",
            "hostile::whatever_stands_as_a_checkouts_config_is_refused_at_once[pipe]",
            "hostile::a_pipe_anywhere_in_a_repository_hangs_nothing[index]"]),
    Mutant("the umask has the last word", "what orch makes it may not read itself where the umask says so",
           "            os.fchmod(fd, stat.S_IMODE(mode) | 0o600)\n",
           "            pass\n",
           ["faults::a_umask_that_takes_ones_own_rights_locks_nobody_out"]),
    Mutant("no limit of a file's size", "whatever size a config has, it is read",
           "        if os.fstat(file.fileno()).st_size > limit_bytes:\n",
           "        if False:\n",
           ["hostile::whatever_stands_as_a_checkouts_config_is_refused_at_once[huge]"]),
    Mutant("depth forgotten", "JSON nested too deeply is a traceback",
           "        return json.loads(read_file(path))\n    except RecursionError as err:\n",
           "        return json.loads(read_file(path))\n    except UnicodeError as err:\n",
           ["faults::whatever_stands_in_place_of_a_file_of_orch[brackets]",
            "fuzz::a_command_takes_any_damaged_home"]),
    Mutant("an unreadable state", "a state file that may not be read is a traceback",
           "    except (OSError, OrchError) as err:\n        return empty_state(), f\"{path}: not used",
           "    except OrchError as err:\n        return empty_state(), f\"{path}: not used",
           ["faults::missing_permissions_cost_one_warning[0-state.json]",
            "faults::whatever_stands_in_place_of_a_file_of_orch[a folder]"]),
    Mutant("a newer version's state is changed", "the check of the version dropped",
           '    if state["version"] > STATE_VERSION:\n',
           "    if False:\n",
           ["state::a_newer_state_is_neither_used_nor_written"]),
    Mutant("a corrupt state is overwritten", "it is not set aside first",
           "        os.rename(path, aside)\n",
           "",
           ["state::a_corrupt_state_is_set_aside_with_one_warning"]),
    Mutant("trouble with the home ends the run", "only orch's own error is turned into a warning",
           "        except OSError as err:\n            self.warn_home(",
           "        except ZeroDivisionError as err:\n            self.warn_home(",
           ["faults::an_error_from_any_system_call_on_a_file_of_orch_costs_one_warning[ENOSPC]",
            "faults::an_error_during_a_failover_costs_one_warning",
            "faults::errors_that_last_from_any_call_on_cost_one_warning_and_no_byte[EIO]",
            "faults::an_agent_that_wrecks_the_home_costs_no_answer",
            "faults::missing_permissions_cost_one_warning",
            "faults::the_home_of_somebody_else_costs_one_warning"]),
    Mutant("no folder, no team", "a project that may not be written ends a run with roles",
           "        self.folder = None\n        where = getattr(err",
           "        raise err\n        where = getattr(err",
           ["faults::a_project_that_may_not_be_written_costs_a_team_one_warning"]),
    Mutant("every trouble is told", "ten warnings for one full disk",
           "        if not lead.home_trouble:\n",
           "        if True:\n",
           ["faults::errors_that_last_from_any_call_on_cost_one_warning_and_no_byte[ENOSPC]",
            "faults::the_home_of_somebody_else_costs_one_warning"]),
)

# === LEDGER ==============================================================

LEDGER = (
    Mutant("torn line not completed", "a line is appended to the half one that a kill left",
           '        data = b"\\n" * torn + content(size + torn)\n',
           "        data = content(size)\n",
           ["crash::a_kill_half_way_through_any_write_loses_nothing_but_that_write",
            "state::a_torn_ledger_line_is_completed_and_counted"]),
    Mutant("half a line taken for a whole", "how much was written is not looked at",
           "        if os.write(fd, data) != len(data):\n",
           "        if os.write(fd, data) < 0:\n",
           ["faults::a_write_that_takes_half_leaves_no_half_line_and_costs_one_warning"]),
    Mutant("half a line left", "it is told, but not taken back",
           "            os.ftruncate(fd, size)\n",
           "",
           ["faults::a_write_that_takes_half_leaves_no_half_line_and_costs_one_warning"]),
    Mutant("half a note taken for a whole", "how much of it was written is not looked at",
           "        if os.write(fd, text) != len(text):\n",
           "        if os.write(fd, text) < 0:\n",
           ["faults::a_write_that_takes_half_leaves_no_half_line_and_costs_one_warning"]),
    Mutant("lines written over the first", "O_APPEND dropped",
           "open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)",
           "open_file(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)",
           ["faults::errors_that_last_from_any_call_on_cost_one_warning_and_no_byte[EIO]",
            "concurrency::sixty_four_processes_of_every_kind_lose_and_double_nothing"]),
    Mutant("trimming without the lock", "lines that others append meanwhile are dropped",
           '    with locked(home_path(world, "usage.lock")):\n        if keep_days and',
           "    if True:\n        if keep_days and",
           ["concurrency::no_writer_starves_and_no_reader_sees_half_a_file"]),
    Mutant("half a line is read", "a reader takes what is still being written for damage",
           '        if not line.endswith(b"\\n") and len(line) < MAX_RECORD_BYTES and',
           "        if False and",
           ["concurrency::a_line_that_is_still_being_written_is_not_seen"]),
    Mutant("the whole ledger for today's sum", "reading starts at the beginning",
           "    start, step, oldest = file.seek(0, os.SEEK_END), 64 << 10, since\n",
           "    start, step, oldest = 0, 64 << 10, since\n",
           ["faults::a_large_ledger_costs_a_run_and_status_nothing"]),
    Mutant("lines of any length", "a line is read to its end, wherever that is",
           '    for line in iter(lambda: file.readline(MAX_RECORD_BYTES), b""):\n',
           '    for line in iter(lambda: file.readline(), b""):\n',
           ["faults::a_line_without_an_end_is_never_read_whole[command0]"]),
    Mutant("limits without end", "a cooldown of sixty years, which a jumping clock left, is kept",
           '        if until is not None and until > now and (until - now <= BELIEVED_S or entry.get("source") == "user"):\n',
           "        if until is not None and until > now:\n",
           ["faults::a_clock_that_jumps_loses_nothing_and_locks_nobody_out"]),
)

# === CRASHES =============================================================

CRASHES = (
    Mutant("nobody clears up", "what a killed orch left is never looked for",
           "        adopt_orphans(one)\n        return",
           "        return",
           ["crash::a_kill_at_any_moment_loses_nothing_and_the_next_run_clears_up",
            "crash::a_killed_run_is_one_job_with_all_its_attempts_and_what_they_cost",
            "crash::a_run_of_a_host_that_never_came_back_is_recorded_after_a_week",
            "crash::the_temporary_folders_of_a_killed_run_are_removed",
            "crash::what_a_killed_orch_left_is_stopped_told_of_and_recorded_once"]),
    Mutant("note not removed", "what has ended is noted as running for ever",
           "        remove_file(path)\n    finally:",
           "        pass\n    finally:",
           ["crash::a_run_that_was_killed_when_all_was_recorded_is_not_recorded_again",
            "crash::a_note_that_was_torn_off_is_cleared"]),
    Mutant("note removed too early", "the note goes before the job is written",
           "    one.in_home(update_state, lambda state: with_job(with_success(state, keys), job, one.world.now()))\n"
           "    one.forget_notes()\n",
           "    one.forget_notes()\n"
           "    one.in_home(update_state, lambda state: with_job(with_success(state, keys), job, one.world.now()))\n",
           ["crash::a_kill_at_any_system_call_on_a_file_of_orch_loses_nothing"]),
    Mutant("nothing noted between attempts", "the first note goes before the second one is there",
           "        noted = self.in_home(note_running, attempt_id, record)\n        self.forget_notes()\n",
           "        self.forget_notes()\n        noted = self.in_home(note_running, attempt_id, record)\n",
           ["crash::a_kill_between_two_attempts_loses_nothing"]),
    Mutant("an error forgets what was begun", "notes are removed when a run ends by an exception",
           "        return conclude(one, attempt_until_waited(one))\n    finally:\n        one.close()\n",
           "        return conclude(one, attempt_until_waited(one))\n    finally:\n        one.forget_notes()\n        one.close()\n",
           ["faults::a_run_that_ends_by_an_error_of_its_caller_is_settled_by_the_next"]),
    Mutant("the dead run's agent works on", "it is told of and recorded, but not stopped",
           '    stopped = stop_family(record["marker"]) if',
           "    stopped = 0 if",
           ["crash::what_a_killed_orch_left_is_stopped_told_of_and_recorded_once",
            "crash::a_kill_at_any_moment_loses_nothing_and_the_next_run_clears_up"]),
    Mutant("marker not searched", "only the process group and children are known",
           "            or known.get(pid) == p.start or needle in _environ(pid)}\n",
           "            or known.get(pid) == p.start}\n",
           ["crash::what_a_killed_orch_left_is_stopped_told_of_and_recorded_once",
            "floods::children_that_keep_forking_while_they_are_stopped_do_not_get_away",
            "processes::a_timeout_reaches_an_orphan_in_a_session_of_its_own"]),
    # Not "any marker": that would stop the agents of every orch on the machine, and they are not ours.
    Mutant("the home for the marker", "all processes of a home are stopped, not only the dead run's",
           '    needle = b"\\0ORCH_ATTEMPT_ID=" + os.fsencode(marker) + b"\\0"\n',
           '    needle = b"\\0ORCH_HOME=" + os.fsencode(os.environ.get("ORCH_HOME", marker)) + b"\\0"\n',
           ["crash::a_dev_server_that_an_agent_left_survives_the_kill_of_a_later_orch",
            "processes::stopping_one_run_leaves_its_sibling_alone"]),
    Mutant("start time not compared", "a reused process id passes for the orch that had it",
           '    if known and isinstance(pid, int) and start_of(pid) == record["start"]:\n',
           "    if known and isinstance(pid, int) and start_of(pid) is not None:\n",
           ["crash::a_reused_process_id_is_nobody_of_ours"]),
    Mutant("a child's lock is taken for life", "an orch that was killed between fork and exec is not found",
           "    fd = claim_running(path, FORK_S if known else 0)\n",
           "    fd = claim_running(path)\n",
           ["crash::a_lock_that_a_child_still_holds_is_waited_for"]),
    Mutant("host not compared", "a run of another machine on a shared home is taken for dead",
           '    if is_recent and record.get("host") != os.uname().nodename:\n        return None\n',
           "",
           ["crash::a_run_of_another_host_on_a_shared_home_is_left_alone"]),
    Mutant("boot not compared", "after a reboot processes are stopped that only look alike",
           '    stopped = stop_family(record["marker"]) if record.get("boot") == boot_id() and not in_ledger else 0\n',
           '    stopped = stop_family(record["marker"]) if not in_ledger else 0\n',
           ["crash::after_a_reboot_the_run_is_recorded_and_nothing_is_signalled"]),
    Mutant("a claim for everybody", "two runs at once both take over the dead one",
           "        if try_lock(fd) and os.path.samestat(os.fstat(fd), os.stat(path)):\n            return fd\n",
           "        if os.path.samestat(os.fstat(fd), os.stat(path)):\n            return fd\n",
           ["crash::two_runs_at_once_clear_up_one_dead_run_once"]),
    Mutant("torn notes stay", "a note that a kill cut off is passed over for ever",
           "    one.in_home(clear_torn_notes)\n",
           "",
           ["crash::a_note_that_was_torn_off_is_cleared"]),
    Mutant("recorded twice", "a run that was killed when all was done is told of as killed",
           "    if in_ledger and known:                                # it was killed when all was done\n        return\n",
           "",
           ["crash::a_run_that_was_killed_when_all_was_recorded_is_not_recorded_again"]),
    Mutant("a line twice", "whether the dead run's line is in the ledger is not looked at",
           "    if not in_ledger:\n        lines.append",
           "    if True:\n        lines.append",
           ["crash::a_kill_at_any_system_call_on_a_file_of_orch_loses_nothing"]),
    Mutant("a claim that cannot be given back", "a disk that turned read-only is a traceback",
           '                one.in_home(forget_note, record["path"], claim)\n',
           '                forget_note(one.world, record["path"], claim)\n',
           ["faults::a_disk_that_turns_read_only_beside_a_dead_run_costs_one_warning"]),
)

# === PROCESSES ===========================================================
# Left out, since no test can tell them from the real thing: dropping O_CLOEXEC (Python sets it by itself), and
# reading what is left in the pipes without end (a reader is always quicker than writers, so it ends all the same).

PROCESSES = (
    Mutant("no KILL for sessions of their own", "KILL goes to the agent's group only",
           '            signal_all(alive, "SIGKILL")\n            self.kill_at',
           "            self.kill_at",
           ["floods::a_time_limit_reaches_children_that_ignore_term_in_sessions_of_their_own"]),
    Mutant("no KILL after TERM", "whoever ignores TERM stays until orch gives up",
           '            signal_group(self.root, "SIGKILL")\n            signal_all(alive, "SIGKILL")\n',
           "",
           ["processes::an_agent_that_ignores_term_is_killed_after_two_seconds",
            "processes::a_second_interrupt_kills_at_once"]),
    Mutant("no CONT after TERM", "an agent that is stopped never sees the TERM",
           '        signal_all(self.known, "SIGCONT")                  # one that is stopped would never see the TERM\n',
           "",
           ["floods::an_agent_that_stops_itself_is_ended_at_the_time_limit"]),
    Mutant("time limits forgotten in the wait", "they are kept only when something is printed",
           "            ends += [self.began_at + limits.timeout_s, self.last_output_at + limits.idle_s]\n",
           "            ends += [self.last_output_at + limits.idle_s]\n",
           ["floods::an_agent_that_closes_everything_and_stays_is_stopped_in_time",
            "floods::an_agent_that_stops_itself_is_ended_at_the_time_limit"]),
    Mutant("pipes waited for without end", "a grandchild that holds them hangs the run",
           "        return not pipes_open or self.stop.clock() >= self.exit_seen_at + DRAIN_S\n",
           "        return not pipes_open\n",
           ["floods::a_grandchild_that_writes_for_ever_does_not_hang_the_run",
            "processes::a_grandchild_that_holds_the_pipes_does_not_hang_the_run"]),
    Mutant("a closed pipe is taken for the exit", "whoever closes its output is done",
           "            pipe.close()\n            return False\n        self.kept",
           "            pipe.close()\n            self.exit_seen_at = self.exit_seen_at or self.stop.clock() - DRAIN_S\n"
           "            return False\n        self.kept",
           ["floods::an_agent_that_closes_its_pipe_and_works_on_is_waited_for"]),
    Mutant("exit by a signal lost", "it is taken for an exit status",
           "signal=-code if code is not None and code < 0 else None, stopped=self.stopped,\n",
           "stopped=self.stopped,\n",
           ["floods::an_agent_that_ends_by_a_signal_fails_over"]),
    Mutant("a program that cannot be started", "a missing interpreter is a traceback",
           "        except (OSError, ValueError) as err:\n            astray = ",
           "        except ValueError as err:\n            astray = ",
           ["floods::an_agent_whose_program_is_gone_or_broken_fails_over",
            "started::few_descriptors_are_an_error_and_not_a_traceback"]),
    Mutant("nothing said is fine", "exit status 0 without an answer passes for one",
           "    if report.complete and not report.raw:\n        return Verdict(OK",
           "    if not report.raw:\n        return Verdict(OK",
           ["floods::an_agent_that_writes_nothing_has_failed"]),
    Mutant("errors quoted in an answer count", "whatever looks like an error in a text is the agent's own",
           "    error = _only_errors(agent, _without_prompt(fold_text(_tail(shown)), prompt))\n",
           "    error = _without_prompt(fold_text(_tail(shown)), prompt)\n",
           ["floods::an_answer_that_ends_in_what_looks_like_errors_is_an_answer"]),
    Mutant("descriptors leak", "a run of a program that imports orch keeps its pipe open",
           "    finally:\n        stop.close()\n",
           "    finally:\n        pass\n",
           ["concurrency::threads_of_one_program_run_at_once"]),
)

# === FLOODS ==============================================================

FLOODS = (
    Mutant("the tail is unbounded", "all that is printed is kept",
           "        while self.tail_bytes - len(self.tail[0]) >= self.most_bytes:\n",
           "        while False:\n",
           ["floods::memory_stays_under_64_megabytes_whatever_an_agent_writes[text]"]),
    Mutant("a patch is unbounded", "all that has changed is read",
           "        kept = smallest(sizes, 4 * limit) ",
           "        kept = frozenset(sizes) ",
           ["floods::memory_stays_under_64_megabytes_whatever_an_agent_changes[long lines]"]),
    Mutant("an artifact is written in one piece", "what a role says is held three times at once",
           "    replace_file(path, itertools.chain(pieces, [b\"\\n\"]))\n",
           "    replace_file(path, [(text + \"\\n\").encode(\"utf-8\", \"replace\")])\n",
           ["floods::a_role_takes_no_more_memory_than_a_plain_run[bytes that are no text]"]),
    Mutant("a line is unbounded", "a line is kept until its end comes",
           "        if self.size > self.most_bytes:\n",
           "        if False:\n",
           ["floods::memory_stays_under_64_megabytes_whatever_an_agent_writes[one long line]"]),
    Mutant("an answer is unbounded", "all pieces of a message are kept",
           "        if self.part_chars > 2 * ANSWER_CHARS or len(self.parts) > 10_000:\n",
           "        if False:\n",
           ["floods::memory_stays_under_64_megabytes_whatever_an_agent_writes[long messages of gemini]"]),
    Mutant("values are unbounded", "a line of a million small lists is parsed",
           "        if isinstance(line, bytes) and has_many_values(line, MAX_VALUES):\n            self.run_.warn(",
           "        if False:\n            self.run_.warn(",
           ["floods::memory_stays_under_64_megabytes_whatever_an_agent_writes[a line of lists]"]),
    Mutant("only the head is kept", "the verdict at the end of a flood is lost",
           "        if not data:\n            return\n        if not self.tail",
           "        if room <= 0:\n            self.cut = True\n            return\n        if not self.tail",
           ["floods::a_flood_does_not_hide_the_verdict"]),
    Mutant("a closed pipe is asked again and again", "an end of file is not taken from what is waited for",
           "            self.selector.unregister(pipe)\n            pipe.close()\n            return False\n        self.kept",
           "            return False\n        self.kept",
           ["floods::watching_an_agent_costs_little_processor_time_whatever_it_does"]),
    Mutant("each piece is judged", "whether the agent sits at its limit is asked after every byte",
           "        self.judge_at = self.judge_at or self.last_output_at + LOOK_S\n",
           "        self.judge_at = self.last_output_at\n",
           ["floods::watching_an_agent_costs_little_processor_time_whatever_it_does"]),
    Mutant("each line is tried", "lines that cannot be events are all handed on",
           'map(self.feed, lines if b"{" in data else lines[:1])))\n',
           "map(self.feed, lines)))\n",
           ["floods::one_gigabyte_of_short_lines_is_read_faster_than_an_agent_writes"]),
    Mutant("any number of tokens", "what no machine holds is believed",
           "    return item if type(item) is int and 0 <= item < 1 << 53 else 0\n",
           "    return item if isinstance(item, (int, float)) else 0\n",
           ["floods::numbers_that_no_machine_holds_reach_no_file"]),
    Mutant("any reset time", "a limit that ends in a thousand years is believed",
           "BELIEVED_S = 35 * 86400 ",
           'BELIEVED_S = float("inf") ',
           ["floods::a_reset_time_that_no_clock_reaches_locks_nobody_out"],
           [('        if until is not None and until > now and (until - now <= BELIEVED_S or entry.get("source") == "user"):\n',
             "        if until is not None and until > now:\n")]),
)

# === HOSTILE =============================================================

HOSTILE = (
    Mutant("a checkout sets what it likes", "the list of what it may set is not looked at",
           "key in schema[\"properties\"] and key not in allowed]\n",
           "key not in schema[\"properties\"]]\n",
           ['hostile::a_checkouts_config_runs_adds_and_widens_nothing[{"agents": {"claude": {"env": {"LD_PRELOAD": "./evil.so"}}}}]']),
    Mutant("a checkout widens access", "whether it narrows or widens is not looked at",
           "        elif _widens(key, given, below):\n",
           "        elif key not in UNTRUSTED_KEYS:\n",
           ['hostile::a_checkouts_config_runs_adds_and_widens_nothing[{"access": "full"}]']),
    Mutant("programs of the checkout run", "relative folders of PATH are searched",
           '        if folder.startswith("/") and os.path.isfile(path)',
           "        if os.path.isfile(path)",
           ['hostile::a_checkouts_config_runs_adds_and_widens_nothing[{"access": "full"}]']),
    Mutant(".orch may be a link", "a checkout's link makes another file its config",
           "    if os.path.islink(project) or os.path.islink(os.path.dirname(project)): ",
           "    if os.path.islink(project): ",
           ["hostile::a_link_as_dot_orch_leads_nowhere"]),
    Mutant("shown as it came", "escapes and line ends of others are printed",
           '    if len(text) > limit or not text.isprintable() or "  " in text:    # nearly never\n',
           "    if len(text) > limit:\n",
           ["hostile::what_a_checkouts_config_says_is_shown_without_control_characters"]),
    Mutant("an agent's words as they came", "control characters stay in what is judged, and in what is shown of it",
           '    text = re.sub(CONTROLS, "", text.replace("\\r\\n", "\\n").replace("\\r", "\\n"))\n',
           '    text = text.replace("\\r\\n", "\\n").replace("\\r", "\\n")\n',
           ["hostile::what_an_agent_says_of_itself_is_one_clean_line"],
           [('    if len(text) > limit or not text.isprintable() or "  " in text:    # nearly never\n',
             "    if len(text) > limit:\n"),
            ('    line = "".join(c for c in " ".join(text[:chars * 20].split()) if c.isprintable())\n',
             '    line = " ".join(text[:chars * 20].split())\n')]),
    Mutant("globs as regular expressions", "twenty stars on a long name never end",
           '    return _run_matches(_signs(glob), name, "*", _sign_matches)\n',
           '    forms = {"*": ".*", "?": "."}\n'
           '    return re.fullmatch("".join(forms.get(sign, re.escape(sign)) for sign in _signs(glob)), name, re.S) is not None\n',
           ["hostile::globs_of_a_checkout_take_no_time",
            "fuzz::a_config_with_a_costly_pattern_is_refused_or_matched_in_time"]),
    Mutant("a role may be a path", "names of roles are not checked",
           '"propertyNames": {"x-kind": "file name"}, ',
           "",
           ["hostile::a_role_that_is_no_file_name_is_refused"]),
    Mutant("the repository's own config", "filters and fsmonitor are not left out of the private one",
           '    _write(git_dir, "config", _private_config(repo.settings, env))\n',
           '    _write(git_dir, "config", _read(os.path.join(repo.git_dir, "config")))\n',
           ["hostile::nothing_that_a_repository_configures_runs_by_orchs_doing"]),
    Mutant("no snapshot, no run", "where git finds no repository, the run ends",
           "        except GitError as err:\n            self.before, self.trouble = None, str(err)\n",
           "        except OSError as err:\n            self.before, self.trouble = None, str(err)\n",
           ["hostile::a_git_file_that_leads_astray_costs_no_answer"]),
    Mutant("names as they are", "a file's name may break a line of the handoff",
           """ + '"' if odd else path\n""",
           """ + '"' if odd and not path else path\n""",
           ["hostile::file_names_break_no_line_and_no_frame"]),
    Mutant("secrets handed on", "the diff is not masked",
           '    state, in_state = mask_secrets(_state_part(facts) + "\\n\\n" + _changes_part(facts))\n',
           '    state, in_state = _state_part(facts) + "\\n\\n" + _changes_part(facts), mask_secrets("")[1]\n',
           ["hostile::secrets_in_diffs_names_and_answers_reach_no_other_vendor"]),
    Mutant("half a secret handed on", "an error is cut within a secret, which is not known as one then",
           "    verdict = replaced(verdict, error=verdict.error and without_cut_word(verdict.error))\n",
           "    verdict = replaced(verdict, error=verdict.error)\n",
           ["hostile::an_error_that_is_cut_shows_no_half_of_a_secret"]),
    Mutant("a frame that can be closed", "fences are three backticks, whatever they hold",
           '    fence = "`" * (longest + 1)\n',
           '    fence = "```" if longest else ""\n',
           ["hostile::a_handoff_stays_in_its_frame"]),
    Mutant("any session id", "what an agent printed becomes an argument",
           "    if not asks or not is_session_id(task.session) or not",
           "    if not asks or not task.session or not",
           ["hostile::a_session_id_that_an_agent_makes_up_costs_nothing"]),
    Mutant("a kept attempt by its path", "a task id may lead out of the folder",
           "    names = [name for name in kept_attempts(world) if name.startswith(task)]\n",
           '    names = [task + (".json" if "/" in task else ".1.json")]\n',
           ["hostile::a_kept_attempt_is_named_by_its_id_and_not_by_a_path"],
           [('    if not names or "/" in task:\n', "    if not names:\n")]),
    Mutant("a reader waited for", "a reader that never reads keeps an agent going",
           "        return min(self.groups.values(), default=-math.inf)\n",
           "        return math.inf\n",
           ["processes::a_reader_that_never_reads_keeps_no_agent_going_beyond_its_time"]),
    Mutant("a reader's silence", "the time that a reader takes counts as silence of the agent",
           "        self.listener.on_output(name, data)\n        self.last_output_at = self.stop.clock() ",
           "        self.last_output_at = self.stop.clock()\n        self.listener.on_output(name, data) ",
           ["processes::the_time_a_reader_takes_is_no_silence_of_the_agent"]),
)

# === STARTED =============================================================

STARTED = (
    Mutant("closed descriptors stay closed", "the next file that is opened takes their place",
           "    open_descriptors()\n    stop = Stop()\n",
           "    stop = Stop()\n",
           ["started::a_closed_descriptor_costs_nothing",
            "started::a_closed_standard_input_is_empty_and_not_some_other_file",
            "started::a_closed_standard_output_is_no_success"]),
    Mutant("an answer into nothing", "a closed standard output becomes /dev/null",
           "            os.open(os.devnull, os.O_RDWR if fd == 2 else os.O_RDONLY)\n",
           "            os.open(os.devnull, os.O_RDWR)\n",
           ["started::a_closed_standard_output_is_no_success"]),
    Mutant("a lost answer is a success", "an error of writing it is passed over",
           '            raise OrchError(f"standard output: {reason_of(err)}; the answer is lost", Exit.FAILED) from err\n',
           "            break\n",
           ["started::a_full_disk_under_standard_output_is_no_success",
            "started::a_closed_standard_output_is_no_success"]),
    Mutant("ignored signals are handled", "nohup is overruled",
           "        if signal.getsignal(number) != signal.SIG_IGN:\n            signal.signal(number, ask",
           "        if True:\n            signal.signal(number, ask",
           ["started::nohup_in_the_background_outlives_its_terminal",
            "processes::a_signal_that_was_ignored_at_the_start_stays_ignored"]),
    Mutant("child signals stay ignored", "the kernel throws exit statuses away",
           "    signal.signal(signal.SIGCHLD, signal.SIG_DFL)          # where it is ignored, exit statuses are lost\n",
           "",
           ["started::ignored_child_signals_lose_no_exit_status"]),
    Mutant("an early interrupt is a traceback", "Python's own handler is left in place while orch loads",
           "s.getsignal(2) is s.default_int_handler and s.signal(2, s.SIG_DFL); ",
           "",
           ["started::an_interrupt_at_any_moment_of_the_start_is_no_traceback"],
           [("if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:\n", "if False:\n")],
           "tests/tools/build.py"),
    Mutant("notices are waited for", "standard error that nobody reads hangs the run",
           '            write_err(f"orch: {mask_secrets(text)[0]}\\n", STUCK_S)',
           '            write_err(f"orch: {mask_secrets(text)[0]}\\n")',
           ["started::notices_that_nobody_reads_hang_nothing"]),
    Mutant("the agent gets the terminal", "standard input is handed on where there is no prompt for it",
           "stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,\n",
           "stdin=subprocess.PIPE if stdin else None,\n",
           ["started::a_run_in_the_background_of_an_interactive_shell_ends_without_the_terminal"]),
    Mutant("a removed directory", "it is a traceback, not a sentence",
           "    except FileNotFoundError:                              # a command that needs no directory",
           "    except NotADirectoryError:                             # a command that needs no directory",
           ["started::a_removed_working_directory_is_refused", "started::a_run_in_a_removed_directory_has_a_result",
            "started::what_needs_no_directory_works_in_a_removed_one"]),
    Mutant("PATH is taken for granted", "an empty environment is a traceback",
           '    for folder in env.get("PATH", os.defpath).split(os.pathsep):\n',
           '    for folder in env["PATH"].split(os.pathsep):\n',
           ["started::an_empty_environment_is_enough"]),
    Mutant("a temporary folder is taken for granted", "without one there is no run",
           "        except OSError as err:\n            self.trouble = ",
           "        except EOFError as err:\n            self.trouble = ",
           ["faults::without_a_temporary_folder_a_run_answers_and_the_demo_says_why_not"]),
    Mutant("a temporary folder must stay", "what an agent has removed cannot be removed again",
           "            os.unlink(path)\n    except OSError:\n        pass\n\n\ndef try_lock",
           "            os.unlink(path)\n    except PermissionError:\n        pass\n\n\ndef try_lock",
           ["faults::an_agent_that_clears_the_temporary_folder_costs_no_answer"]),
)

# === PARSERS =============================================================

PARSERS = (
    Mutant("arguments: a value is taken for granted", "an option at the end of a line is a traceback",
           "    if not rest:\n        raise OrchError(f\"option {name} needs",
           "    if rest is None:\n        raise OrchError(f\"option {name} needs",
           ["fuzz::a_parser_takes_anything[arguments]"]),
    Mutant("config: depth forgotten", "JSON nested too deeply is a traceback",
           "    except (ValueError, RecursionError) as err:\n        raise OrchError(f\"{source}: not valid JSON",
           "    except ValueError as err:\n        raise OrchError(f\"{source}: not valid JSON",
           ["fuzz::a_parser_takes_anything[config]",
            "hostile::whatever_stands_as_a_checkouts_config_is_refused_at_once[brackets]"]),
    Mutant("durations: without end", "a million years overflow the clock",
           "    if seconds > most_s:\n",
           "    if seconds < 0:\n",
           ["fuzz::a_parser_takes_anything[durations]"]),
    Mutant("git's output: lines for records", "a path may hold a line end",
           '    fields = iter(output.split(b"\\0"))\n',
           '    fields = iter(output.replace(b"\\n", b"\\0").split(b"\\0"))\n',
           ["fuzz::a_parser_takes_anything[git's output]"]),
    Mutant("handoffs: the request is cut", "its end is not what was asked",
           '_fenced(facts.request)\n',
           '_fenced(facts.request[:2000])\n',
           ["fuzz::a_parser_takes_anything[handoffs]"]),
    Mutant("ledger: fields taken for granted", "JSON that is no record is a traceback",
           "        except (ValueError, RecursionError, TypeError, KeyError):\n            whole = False\n",
           "        except (ValueError, RecursionError):\n            whole = False\n",
           ["fuzz::a_parser_takes_anything[ledger]"]),
    Mutant("messages: zones taken for granted", "one that does not exist is a traceback",
           "    except (KeyError, ValueError, OSError):                 # unknown, not a name at all, a directory\n",
           "    except (ValueError, OSError):\n",
           ["fuzz::a_parser_takes_anything[messages]"]),
    Mutant("agents' output: events taken for granted", "JSON that is no event is a traceback",
           '    if type(event) is not dict or type(event.get("type")) is not str:\n',
           '    if "type" not in event:\n',
           ["fuzz::a_parser_takes_anything[agents' output]"]),
    Mutant("state: shape taken for granted", "a state of other types is believed",
           "    if not sound:\n",
           "    if False:\n",
           ["fuzz::a_parser_takes_anything[state]"]),
    Mutant("state: nothing is believed", "every state is called corrupt",
           "    if not sound:\n",
           "    if True:\n",
           ["fuzz::most_kinds_of_damage_get_through_to_what_they_are_meant_for"]),
    Mutant("readiness: shape taken for granted", "a damaged cache is a traceback",
           "    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError):\n",
           "    except (OSError, ValueError):\n",
           ["fuzz::a_command_takes_any_damaged_home"]),
)

MUTANTS = (*FILES, *LEDGER, *CRASHES, *PROCESSES, *FLOODS, *HOSTILE, *STARTED, *PARSERS)


# === ONE BUILD ===========================================================

def node_of(test: str) -> str:
    """The name by which pytest knows a test: "crash::x" -> "tests/test_crash.py::test_x"."""
    file, _, name = test.partition("::")
    return f"tests/test_{file}.py::test_{name}"


def function_of(node: str) -> str:
    """A test function in our words, its case left off: "tests/test_crash.py::test_x[y]" -> "crash::x"."""
    return re.sub(r"^tests/test_(\w+)\.py::test_(\w+).*", r"\1::\2", node, flags=re.S)


def fault_tests() -> list[str]:
    """Every test function of the fault files."""
    return [f"{file}::{name}" for file in FAULT_FILES
            for name in re.findall(r"^def test_(\w+)", (ROOT / "tests" / f"test_{file}.py").read_text("utf-8"), re.M)]


def edits_of(mutant: Mutant) -> list[tuple[str, str]]:
    """What is to be replaced in the mutant's file, and by what."""
    return [(mutant.before, mutant.after), *mutant.more]


def mutated(source: str, mutant: Mutant) -> str:
    """The source with the mutant's bug."""
    for before, after in edits_of(mutant):
        assert source.count(before) == 1, f"{mutant.name}: stands there {source.count(before)} times: {before!r}"
        source = source.replace(before, after)
    return source


@contextlib.contextmanager
def broken_tree(mutant: Mutant | None) -> Iterator[Path]:
    """A copy of the tree with a mutant's bug (None: without any), built; what still runs there is killed at the end."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder, "orch")
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "dist", "__pycache__", "*.egg-info", "real"))
        if mutant:
            path = tree / mutant.file
            path.write_text(mutated(path.read_text("utf-8"), mutant), "utf-8")
        few = {**os.environ, "PATH": "/usr/bin:/bin", "PYENV_ROOT": "/nonexistent"}    # code for this Python will do
        subprocess.run([sys.executable, "tests/tools/build.py", "dist/orch"], cwd=tree, env=few, check=True, stdout=subprocess.DEVNULL)
        try:
            yield tree
        finally:
            stop_all_below(folder)


def stop_all_below(folder: str) -> None:
    """Kill what works in a folder: a broken orch may leave its agents running."""
    for entry in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        with contextlib.suppress(OSError):
            if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd").startswith(folder):
                os.kill(int(entry), signal.SIGKILL)


def run_tests(tree: Path, tests: Sequence[str]) -> dict[str, bool]:
    """Run tests in a tree: {node id: whether it failed}."""
    told = tree / "told.jsonl"
    told.unlink(missing_ok=True)
    env = {**os.environ, "PYTHONPATH": str(tree / "tests" / "tools"), "MUTANTS_TOLD": str(told), "PYTEST_ADDOPTS": ""}
    with open(tree / "pytest.txt", "w") as output:
        subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "mutants", "-p", "no:cacheprovider", f"--basetemp={tree}/tmp",
                        *map(node_of, tests)], cwd=tree, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                       preexec_fn=limit_memory, check=False)
    failed: dict[str, bool] = {}
    for line in told.read_text().splitlines() if told.exists() else ():
        one = json.loads(line)
        failed[one["node"]] = failed.get(one["node"], False) or one["failed"]
    assert failed, (tree / "pytest.txt").read_text()
    return failed


def limit_memory() -> None:
    """Keep a bug that takes all memory from the rest of the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


# --- inside that pytest, of which this file is a plugin ---

def pytest_runtest_logreport(report: Any) -> None:
    """Tell how each phase of each test ended."""
    with open(os.environ["MUTANTS_TOLD"], "a") as file:
        file.write(json.dumps({"node": report.nodeid, "failed": report.failed}) + "\n")


def pytest_runtest_setup(item: Any) -> None:
    """End a test that hangs."""
    def hangs(*_: object) -> None:
        raise AssertionError(f"took longer than {TEST_S} s")
    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(TEST_S)


def pytest_runtest_teardown(item: Any) -> None:
    """What clears up may take its time."""
    signal.alarm(0)


# === ALL OF THEM =========================================================

class Verdict(NamedTuple):
    """What came of a mutant: how each of its tests fared, why it proves nothing if so, and how long it took."""
    mutant: Mutant
    failed: Mapping[str, bool]                             # test of the row -> whether one of its cases failed
    flaw: str
    seconds: float

    @property
    def killed(self) -> bool:
        """Whether every test of the row has failed."""
        return not self.flaw and all(self.failed.values())


def try_mutant(mutant: Mutant) -> Verdict:
    """Build it, see that it still answers, and run its tests."""
    begun, flaw, failed = time.monotonic(), "", dict.fromkeys(mutant.tests, False)
    try:
        with broken_tree(mutant) as tree:
            if any(run_tests(tree, SMOKE).values()):
                flaw = "answers nothing at all"
            for _ in range(TRIES):
                left = [test for test, bad in failed.items() if not bad]
                found = run_tests(tree, left) if left else {}
                for test in left:
                    failed[test] = any(bad for node, bad in found.items() if node == node_of(test) or function_of(node) == test)
    except (AssertionError, subprocess.CalledProcessError) as err:
        flaw = f"{err}"[-400:]
    return Verdict(mutant, failed, flaw, time.monotonic() - begun)


def show(verdict: Verdict, width: int) -> None:
    """One line, and one more for each test that did not fail."""
    count = sum(verdict.failed.values())
    word = "killed" if verdict.killed else "BROKEN" if verdict.flaw else "SURVIVED"
    print(f"{verdict.mutant.name:{width}}  {word:8}  {count} of {len(verdict.failed)} tests  {verdict.seconds:5.0f} s", flush=True)
    for test, failed in verdict.failed.items():
        if not failed:
            print(f"{'':{width}}    not by {test}")
    if verdict.flaw:
        print(f"{'':{width}}    {verdict.flaw}")


def failing_unbroken(tests: Sequence[str]) -> tuple[int, list[str]]:
    """How many tests there are, and those of them that fail where nothing is broken."""
    with broken_tree(None) as tree:
        failed = run_tests(tree, tests)
    return len(failed), [node for node, one in failed.items() if one]


def main(argv: Sequence[str] | None = None) -> int:
    """Try all mutants, or some, and print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--only", default="", help="mutants whose name, or one of whose tests, holds this text")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 4), help="so many at once (default: one for each processor, at most 4)")
    parser.add_argument("--unproven", action="store_true", help="only list the fault tests that no mutant claims to break; run nothing")
    given = parser.parse_args(argv)
    chosen = [mutant for mutant in MUTANTS if given.only in mutant.name or any(given.only in test for test in mutant.tests)]
    claimed = {function_of(node_of(test)) for mutant in chosen for test in mutant.tests}
    if given.unproven:
        print("\n".join(test for test in fault_tests() if test not in claimed) or "none")
        return 0
    begun, proven = time.monotonic(), Counter[str]()
    width, good = max(len(mutant.name) for mutant in chosen), True
    with ThreadPoolExecutor(given.jobs) as pool:
        unbroken = pool.submit(failing_unbroken, sorted({*SMOKE, *(test for mutant in chosen for test in mutant.tests)}))
        for verdict in pool.map(try_mutant, chosen):
            show(verdict, width)
            good = good and verdict.killed
            proven.update(function_of(node_of(test)) for test, failed in verdict.failed.items() if failed and not verdict.flaw)
        count, bad = unbroken.result()
    print(f"\nnothing broken: {count - len(bad)} of {count} tests pass{''.join(f'{chr(10)}    FAILS: {node}' for node in bad)}")
    good = good and not bad
    wanted = fault_tests() if not given.only else sorted(claimed)
    unproven = [test for test in wanted if not proven[test]]
    print(f"{len(chosen)} broken builds, {len(wanted) - len(unproven)} of {len(wanted)} tests seen failing, "
          f"{time.monotonic() - begun:.0f} s")
    print("\n".join(f"never seen failing: {test}" for test in unproven))
    return 0 if good and not unproven else 1


if __name__ == "__main__":
    sys.exit(main())
