"""Reset times: the corpus of real messages, the same kinds in other words, and round trips."""
from __future__ import annotations

import datetime
import json
import random
import time
import zoneinfo
from pathlib import Path

import pytest

from orch import fold_text, parse_reset, parse_zone

CORPUS = Path(__file__).with_name("data") / "messages.jsonl"
ROWS = [json.loads(line) for line in CORPUS.open(encoding="utf-8")]
LIMITED = [row for row in ROWS if row["expect_class"] == "limited"]


def at(wall: str, zone: str = "UTC", fold: int = 0) -> float:
    """Epoch seconds of "2026-12-05 15:00" in `zone`."""
    there = zoneinfo.ZoneInfo(zone)
    return datetime.datetime.fromisoformat(wall).replace(tzinfo=there, fold=fold).timestamp()


def parse(text: str, now: float, zone: str | None = "UTC"):
    return parse_reset(fold_text(text), now, zone)


@pytest.mark.parametrize("row", LIMITED, ids=[row["id"] for row in LIMITED])
def test_corpus_reset_is_read(row):
    got = parse(row["text"], row["now"], row["zone"])
    right = [value for value in (row["expect_reset"], row["alt_reset"]) if value is not None]
    if not right:
        assert got is None, f"{row['id']}: {got} where the text carries no time"
        return
    assert got is not None, f"{row['id']}: nothing found, wanted {right}"
    near = any(abs(got.at - value) <= row["tolerance_s"] for value in right)
    behind = right[0] <= row["now"] and got.at <= row["now"]
    assert near or behind, f"{row['id']}: {got}, wanted {right} within {row['tolerance_s']} s"


# (text, now, machine zone, expected): `now` and `expected` as wall clock of the machine zone, or of the
# zone after "|"; None: no reset time; "behind": at or before now; "+90": seconds from now.
NOON = "2026-12-01 12:00"
OTHER_WORDS = [
    # bare clock times
    ("You've hit your weekly limit · resets 3pm", NOON, "UTC", "2026-12-01 15:00"),
    ("You've hit your Sonnet limit · resets 4:05am (Europe/Oslo)",
     NOON, "Asia/Tokyo", "2026-12-01 04:05|Europe/Oslo"),
    ("Limit reached. Resets at 12am", NOON, "UTC", "2026-12-02 00:00"),
    ("Limit reached. Resets at 12:30 a.m. tomorrow", NOON, "UTC", "2026-12-02 00:30"),
    ("Limit reached. Resets at 11:59pm Pacific", NOON, "UTC", "2026-12-01 23:59|America/Los_Angeles"),
    ("Limit reached. Resets at midnight Pacific time.", NOON, "UTC", "2026-12-02 00:00|America/Los_Angeles"),
    ("Limit reached. Resets daily at midnight UTC", NOON, "Europe/Berlin", "2026-12-02 00:00|UTC"),
    ("Usage limit. Try again at noon.", "2026-12-01 08:00", "UTC", NOON),
    ("Your access resumes at 23:15", NOON, "Europe/Berlin", "2026-12-01 23:15"),
    ("Rate limited until 5:45 PM.", NOON, "UTC", "2026-12-01 17:45"),
    ("Usage will be available again at 1 PM PST", NOON, "UTC", "2026-12-01 13:00|America/Los_Angeles"),
    ("Access resets at 7:06\u202fAM GMT+5:30.", NOON, "UTC", "2026-12-02 01:36"),
    ("Access resets at 10:57 PM GMT-3.", NOON, "UTC", "2026-12-02 01:57"),
    ("Access resets at 10:57 PM GMT\u22123.", NOON, "UTC", "2026-12-02 01:57"),
    ("Access resets at 10:57 PM UTC+08:00.", NOON, "UTC", "2026-12-01 14:57"),
    ("Your limit will reset at 1pm (Etc/GMT+5).", NOON, "UTC", "2026-12-01 18:00"),
    ("resets 3pm (ET)", NOON, "UTC", "2026-12-01 20:00"),
    ("resets 9pm (Asia/Katmandu)", NOON, "UTC", "2026-12-01 15:15"),
    ("resets 9pm (US/Pacific)", NOON, "UTC", "2026-12-02 05:00"),
    ("resets 9pm (Atlantis/Capital)", NOON, "Europe/Berlin", "2026-12-01 21:00"),
    ("resets 9pm (Europe/\n  Berlin)", NOON, "UTC", "2026-12-01 20:00"),
    ("You\u2019ve hit your usage limit. Try again at 6:21 PM.", NOON, "America/New_York", "2026-12-01 18:21"),
    ("limit · resets\n3pm (UTC)", NOON, "UTC", "2026-12-01 15:00"),
    ("limit · res\nets 3pm (UTC)", NOON, "UTC", "2026-12-01 15:00"),
    ('{"result":"You\'ve hit your session limit \\u00b7 resets 3pm (UTC)"}', NOON, "UTC", "2026-12-01 15:00"),
    ('{"message":"Limit reached.\\nResets at 3pm"}', NOON, "UTC", "2026-12-01 15:00"),
    # the past
    ("You've hit your weekly limit · resets 11:56am", NOON, "UTC", "2026-12-01 11:56"),
    ("You've hit your weekly limit · resets 11:54am", NOON, "UTC", "2026-12-02 11:54"),
    ("You've hit your weekly limit · resets 11:58pm", "2026-12-01 00:01", "UTC", "2026-11-30 23:58"),
    ("You've hit your session limit · resets 11:54am", NOON, "UTC", "2026-12-01 11:54"),
    ("You've hit your session limit · resets 5pm", NOON, "UTC", "2026-12-01 17:00"),
    ("You've hit your session limit · resets 5:01pm", NOON, "UTC", "2026-11-30 17:01"),
    ("Five-hour limit reached - resets 11pm", "2026-12-01 00:30", "UTC", "2026-11-30 23:00"),
    ("session id: 0193\nYou've hit your limit · resets 11pm", NOON, "UTC", "2026-12-01 23:00"),
    # dates
    ("You've hit your weekly limit · resets Dec 5, 9:30am (Asia/Seoul)",
     NOON, "UTC", "2026-12-05 09:30|Asia/Seoul"),
    ("try again at Dec 22nd, 2026 1:07 AM.", NOON, "Europe/Madrid", "2026-12-22 01:07"),
    ("try again at Dec 3rd,\n2026 1:07 PM.", NOON, "Europe/Madrid", "2026-12-03 13:07"),
    ("wait for your limit to reset on December 9, 2026 at 9:00 PM or switch",
     NOON, "UTC", "2026-12-09 21:00"),
    ("Resets at 9:00 PM on December 9, 2026", NOON, "UTC", "2026-12-09 21:00"),
    ("Resets 3pm (Europe/Moscow) on Dec 9", NOON, "UTC", "2026-12-09 15:00|Europe/Moscow"),
    ("Resets on Wed, 9 December 2026 10:30", NOON, "UTC", "2026-12-09 10:30"),
    ("try again after December 6, 2026, 11:15", NOON, "UTC", "2026-12-06 11:15"),
    ("Resets on 10 de dez. de 2026, 11:52", NOON, "America/Sao_Paulo", "2026-12-10 11:52"),
    ("try again at 13 oct. 2026 à 15:02", "2026-10-09 12:00", "Europe/Paris", "2026-10-13 15:02"),
    ("try again at 21. Dez. 2026 um 14:00", NOON, "Europe/Berlin", "2026-12-21 14:00"),
    ("try again at 2026年12月6日 11:15", NOON, "Asia/Tokyo", "2026-12-06 11:15"),
    ("Resets at 12月6日 11:15", NOON, "Asia/Tokyo", "2026-12-06 11:15"),
    ("limit · resets Dec 5 at 19:00 (Europe/Madrid)", NOON, "UTC", "2026-12-05 19:00|Europe/Madrid"),
    ("Resets by 4:00 AM Friday Dec 4", NOON, "America/Denver", "2026-12-04 04:00"),
    ("Your monthly cycle ends on 12/17/2026", NOON, "UTC", "2026-12-17 00:00"),
    ("Your monthly cycle ends on 17/12/2026", NOON, "UTC", "2026-12-17 00:00"),
    ("Credits reset on 2026-12-10.", NOON, "America/New_York", "2026-12-10 00:00"),
    ("Credits reset on 10.12.2026 um", NOON, "UTC", "2026-12-10 00:00"),
    ("Resets at 2026-12-02T09:00:00+09:00", NOON, "UTC", "2026-12-02 00:00"),
    ("Resets at 2026-12-02T09:00:00.123Z", NOON, "Asia/Tokyo", "2026-12-02 09:00|UTC"),
    ("Resets at 2026-12-02T09:00:00-0500", NOON, "Asia/Tokyo", "2026-12-02 14:00|UTC"),
    ("Resets at 2026-12-02 09:00:00 UTC", NOON, "Asia/Tokyo", "2026-12-02 09:00|UTC"),
    ("Resets at 2026-12-02 09:00:00", NOON, "Asia/Tokyo", "2026-12-02 09:00"),
    ("limit · resets Jan 2, 4pm", "2026-12-30 12:00", "UTC", "2027-01-02 16:00"),
    ("limit · resets Dec 31, 8am", "2027-01-01 00:30", "UTC", "2026-12-31 08:00"),
    ("limit · resets Jan 1, 12am", "2026-12-31 23:59", "Pacific/Auckland", "2027-01-01 00:00"),
    ("limit · resets Feb 29, 6am", "2028-02-27 12:00", "UTC", "2028-02-29 06:00"),
    ("limit · resets Feb 29, 6am", "2027-02-27 12:00", "UTC", "2028-02-29 06:00|far"),
    ("limit · resets Feb 29, 6am", "2026-02-27 12:00", "UTC", None),
    # days by name
    ("resets tomorrow at 8pm (America/Chicago)", NOON, "UTC", "2026-12-02 20:00|America/Chicago"),
    ("Try again tomorrow.", NOON, "UTC", "2026-12-02 00:00"),
    ("Resets today at 4 PM", NOON, "UTC", "2026-12-01 16:00"),
    ("Your quota resets for everyone tomorrow at 9am", NOON, "UTC", "2026-12-02 09:00"),
    ("Resets on Friday at 9am", NOON, "UTC", "2026-12-04 09:00"),       # a Tuesday
    ("Weekly limit resets Tue 1pm", NOON, "UTC", "2026-12-01 13:00"),
    ("Weekly limit resets Tue 11am", NOON, "UTC", "2026-12-08 11:00"),
    ("Weekly limit resets Monday", NOON, "UTC", "2026-12-07 00:00"),
    ("Try again next Thursday at 10:00 CET", NOON, "UTC", "2026-12-03 09:00"),
    # durations
    ("try again in 2 hours", NOON, "UTC", "+7200"),
    ("Please try again in 28ms.", NOON, "UTC", "+0.028"),
    ("Your quota will reset after 141h28m14s.", NOON, "UTC", "+509294"),
    ("try again in 5 days 22 hours 11 minutes.", NOON, "UTC", "+511860"),
    ("try again in 5 days, 22 hours, and 11 minutes.", NOON, "UTC", "+511860"),
    ("It will reset in 1 day 3 hours.", NOON, "UTC", "+97200"),
    ("It will reset in less than a minute.", NOON, "UTC", "+60"),
    ("Try again in about an hour", NOON, "UTC", "+3600"),
    ("Try again in two hrs", NOON, "UTC", "+7200"),
    ("Please wait 2 minutes before trying again", NOON, "UTC", "+120"),
    ("Please wait at least 90 seconds", NOON, "UTC", "+90"),
    ("Retrying in 0.2 seconds...", NOON, "UTC", "+0.2"),
    ("Rate limited. Retry after 30s", NOON, "UTC", "+30"),
    ("Resets in 2:05:30", NOON, "UTC", "+7530"),
    ("Refreshes in 1 week", NOON, "UTC", "+604800"),
    ("Please retry your request in 45 sec", NOON, "UTC", "+45"),
    ("Try again later (in 5 min)", NOON, "UTC", "+300"),
    ("5-hour limit reached. Resets in 3h 20m", NOON, "UTC", "+12000"),
    ("请在 5 分钟后重试", NOON, "UTC", "+300"),
    # fields and headers
    ("Claude AI usage limit reached|{now+3600}", NOON, "UTC", "+3600"),
    ("Claude AI usage limit reached|{now+3600}000", NOON, "UTC", "+3600"),
    ('{"error":{"type":"usage_limit_reached","resets_at":{now+60}}}', NOON, "UTC", "+60"),
    ('{"status":"rejected","resetsAt":{now+60},"rateLimitType":"five_hour"}', NOON, "UTC", "+60"),
    ('{"status":"allowed","resetsAt":{now+60},"rateLimitType":"five_hour"}', NOON, "UTC", None),
    ('"primary":{"used_percent":12.0,"resets_at":{now+60}},'
     '"secondary":{"used_percent":100.0,"resets_at":{now+90}}',
     NOON, "UTC", "+90"),
    ('"primary":{"used_percent":100.0,"resets_at":{now+60}},'
     '"secondary":{"used_percent":31.0,"resets_at":{now+90}}',
     NOON, "UTC", "+60"),
    ('{"X-Codex-Primary-Used-Percent":"100","X-Codex-Secondary-Used-Percent":"80",'
     '"X-Codex-Primary-Reset-At":"{now+60}","X-Codex-Secondary-Reset-At":"{now+90}"}', NOON, "UTC", "+60"),
    ('{"X-Codex-Primary-Used-Percent":"12","X-Codex-Secondary-Used-Per\n cent":"100",'
     '"X-Codex-Primary-Reset-At":"{now+60}","X-Codex-Secondary-Reset-At":"{now+90}"}', NOON, "UTC", "+90"),
    ('{"resets_in_seconds": 4242, "message": "try again at 3pm"}', NOON, "UTC", "+4242"),
    ('{\\"retryDelay\\":\\"34.07s\\"}', NOON, "UTC", "+34.07"),
    ("  retryDelayMs: 31447500,", NOON, "UTC", "+31447.5"),
    ('"quotaResetTimeStamp":"2026-12-02T00:57:00Z"', NOON, "UTC", "2026-12-02 00:57"),
    ('"quotaResetDelay":"8h44m7.5s"', NOON, "UTC", "+31447.5"),
    ("retry-after: 120", NOON, "UTC", "+120"),
    ('"retry-after":"7200"', NOON, "UTC", "+7200"),
    ("{'Retry-After': '17'}", NOON, "UTC", "+17"),
    ("retry-after-ms=997000", NOON, "UTC", "+997"),
    ('{"retry_after": 1.5}', NOON, "UTC", "+1.5"),
    ("Retry-After: Wed, 02 Dec 2026 10:30:00 GMT", NOON, "Asia/Tokyo", "2026-12-02 10:30|UTC"),
    ("Resets at {now+60}", NOON, "UTC", "+60"),
    ("anthropic-ratelimit-unified-reset: {now+60}", NOON, "UTC", "+60"),
    # Beijing time
    ("[1308][Usage limit reached for 5 hour. Your limit will reset at 2026-12-02 00:35:41][2026]",
     NOON, "UTC",
     "2026-12-02 00:35:41|Asia/Shanghai"),
    ("Usage limit reached for 5 hour. Your limit will reset at 2026-12-02 00:35:41", NOON, "Europe/Berlin",
     "2026-12-02 00:35:41|Asia/Shanghai"),
    ("您的限额将在 2026-12-03 09:59:59 重置。", NOON, "America/New_York",
     "2026-12-03 09:59:59|Asia/Shanghai"),
    ("重置时间：2026-12-03 09:59:59", NOON, "America/New_York", "2026-12-03 09:59:59|Asia/Shanghai"),
    # odd but written
    ("Resets at 24:00", NOON, "UTC", "2026-12-02 00:00"),
    ("You can continue at 5pm", NOON, "UTC", "2026-12-01 17:00"),
    ("try again in up to 5 minutes", NOON, "UTC", "+300"),
    ("Cooldown ends in 5m", NOON, "UTC", "+300"),
    ("Time remaining: 2h 5m", NOON, "UTC", "+7500"),
    ("Resets in 00:45:00", NOON, "UTC", "+2700"),
    ("Your limit resets in about 2 hours 3 minutes (at 2:03 PM UTC)", NOON, "UTC", "+7380"),
    # several hints
    ("5-hour limit reached ∙ resets 3pm", NOON, "UTC", "2026-12-01 15:00"),
    ("5 hour usage limit reached. It will reset in 2 hours 5 minutes.", NOON, "UTC", "+7500"),
    ("Session limit resets 3pm. Weekly limit resets Dec 5, 9am", NOON, "UTC", "2026-12-05 09:00"),
    ("Weekly limit resets Dec 5, 9am. Session limit resets 3pm", NOON, "UTC", "2026-12-05 09:00"),
    ("resets 3pm\nretry-after: 60", NOON, "UTC", "+60"),
    ('resets 3pm\nretry-after: 60\n"resets_at":{now+90}}', NOON, "UTC", "+90"),
    ("resets Mar 5, 9am, or try again in 5 minutes", NOON, "UTC", "+300"),
    ("Claude AI usage limit reached|9999999999 resets 3pm", NOON, "UTC", "2026-12-01 15:00"),
    # nothing to find
    ("You've hit your usage limit. try again later.", NOON, "UTC", None),
    ("wait for limits to reset (every 5h and every week.)", NOON, "UTC", None),
    ("Your quota will reset when the current 5-hour window ends.", NOON, "UTC", None),
    ("Your quota will be refreshed in the next cycle.", NOON, "UTC", None),
    ("5-hour limit reached", NOON, "UTC", None),
    ("limit of 30,000 input tokens per minute", NOON, "UTC", None),
    ('{"preset": 1234567890000, "reset_after": 1234567890}', NOON, "UTC", None),
    ("preset 3pm", NOON, "UTC", None),
    ("retrying 1/5", NOON, "UTC", None),
    ("try again 3 times", NOON, "UTC", None),
    ("Retrying 5 out of 10", NOON, "UTC", None),
    ("try again in a few minutes", NOON, "UTC", None),
    ("2026-12-01T12:00:05Z ERROR usage limit reached", NOON, "UTC", None),
    ('{"expires":"Thu, 03 Dec 2026 10:00:00 GMT","x-ratelimit-remaining":"0"}', NOON, "UTC", None),
    ("Please wait\n12:30:05 INFO starting", NOON, "UTC", None),
    ("discontinued as of 2026-12-15.", NOON, "UTC", None),
    ("It is 3pm and the limit is reached", NOON, "UTC", None),
    ("resets 99:99", NOON, "UTC", None),
    ("resets 0000-00-00 00:00", NOON, "UTC", None),
    ("resets 9999-12-31 23:59", NOON, "UTC", None),
    ("resets 2026-13-45 10:00", NOON, "UTC", None),
    ("resets Dec 99, 3pm", NOON, "UTC", None),
    ("try again in 999999999 weeks", NOON, "UTC", None),
    ("resets Jan 20, 2027 3pm", NOON, "UTC", None),
    ("", NOON, "UTC", None),
    # clock changes
    ("resets 1:30am (America/New_York)", "2026-10-31 22:00", "America/New_York", "2026-11-01 01:30|fold"),
    ("resets 2:30am (Europe/Berlin)", "2026-10-24 22:00", "Europe/Berlin", "2026-10-25 02:30|fold"),
    ("resets 1:45am (Australia/Lord_Howe)", "2026-04-04 22:00", "Australia/Lord_Howe",
     "2026-04-05 01:45|fold"),
    ("resets 2:30am (America/New_York)", "2026-03-07 22:00", "America/New_York", "2026-03-08 03:30"),
    ("resets 2:30am (Europe/Berlin)", "2026-03-28 22:00", "Europe/Berlin", "2026-03-29 03:30"),
    ("resets 2:15am (Australia/Lord_Howe)", "2026-10-03 22:00", "Australia/Lord_Howe", "2026-10-04 02:45"),
    ("resets Oct 27, 9am (Europe/Berlin)", "2026-10-23 12:00", "Europe/Berlin", "2026-10-27 09:00"),
    ("resets 9am", "2026-10-24 12:00", "Europe/Berlin", "2026-10-25 09:00"),
    ("resets 9am", "2026-03-28 12:00", "Europe/Berlin", "2026-03-29 09:00"),
    ("try again in 24 hours", "2026-10-24 12:00", "Europe/Berlin", "+86400"),
]


def wanted(expected: str | None, now: float, zone: str) -> float | None:
    """The epoch that a cell of OTHER_WORDS stands for."""
    if expected is None or expected.endswith("|far"):
        return None
    if expected.startswith("+"):
        return now + float(expected)
    wall, _, there = expected.partition("|")
    return at(wall, zone if there in ("", "fold") else there, fold=int(there == "fold"))


@pytest.mark.parametrize("case", OTHER_WORDS, ids=[f"{row[0][:48]!a}-{row[1]}" for row in OTHER_WORDS])
def test_other_words_of_the_same_kinds(case):
    text, now_wall, zone, expected = case
    now = at(now_wall, zone)
    for ahead in (60, 90, 3600):
        text = text.replace(f"{{now+{ahead}}}", str(int(now) + ahead))
    got, want = parse(text, now, zone), wanted(expected, now, zone)
    if want is None:
        assert got is None, f"{text!r}: {got} where there is no time to believe"
    else:
        assert got is not None, f"{text!r}: nothing found"
        assert got.at == pytest.approx(want, abs=0.01), f"{text!r}: {got}, {got.at - want:+.0f} s off"


@pytest.mark.parametrize(("text", "coarse", "rule"), [
    ("resets 3pm", True, "clock"),
    ("resets 15:00:20", False, "clock"),
    ("resets Dec 5", True, "date"),
    ("resets Dec 5, 3pm", True, "date clock"),
    ("resets Friday at 3pm", True, "weekday clock"),
    ("resets tomorrow at 3pm", True, "day clock"),
    ("resets at 2026-12-02T09:00:00Z", False, "date clock"),
    ("try again in 3 hours 2 minutes", True, "duration"),
    ("try again in 7m12s", False, "duration"),
    ("usage limit reached|1796130000", False, "field epoch"),
    ("retry-after: 30", False, "header seconds"),
])
def test_precision_and_rule_are_told(text, coarse, rule):
    got = parse("You hit the limit, " + text, at(NOON))
    assert got is not None, f"{text!r}: nothing found"
    assert (got.coarse, got.rule, got.evidence in text) == (coarse, rule, True), f"{text!r}: {got}"


def test_no_zone_means_the_zone_of_the_process(monkeypatch):
    monkeypatch.setenv("TZ", "Australia/Lord_Howe")
    time.tzset()
    try:
        for text, now, want in (
                ("resets 3pm", at("2026-12-01 12:00", "Australia/Lord_Howe"),
                 at("2026-12-01 15:00", "Australia/Lord_Howe")),
                ("resets 1:45am", at("2026-04-04 22:00", "Australia/Lord_Howe"),
                 at("2026-04-05 01:45", "Australia/Lord_Howe", fold=1)),
                ("resets 2:15am", at("2026-10-03 22:00", "Australia/Lord_Howe"),
                 at("2026-10-04 02:45", "Australia/Lord_Howe")),
                ("resets 3pm (Europe/Atlantis)", at("2026-12-01 12:00", "Australia/Lord_Howe"),
                 at("2026-12-01 15:00", "Australia/Lord_Howe"))):
            got = parse(text, now, None)
            assert got is not None and got.at == want, f"{text!r}: {got}, wanted {want}"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("name", "hours"), [
    ("UTC", 0), ("Z", 0), ("GMT-3", -3), ("UTC+5:30", 5.5), ("GMT+0545", 5.75), ("+09:00", 9),
    ("EDT", -4), ("HST", -10), ("Etc/GMT+5", -5), ("Asia/Calcutta", 5.5), ("PT", -8),
    ("Pacific Standard Time", -8),
    ("America/Cordoba", -3),
    ("Asia/Saigon", 7), ("beijing time", 8), ("Nowhere/City", None), ("", None), ("../../etc/passwd", None),
    ("Europe", None), ("\0", None), ("GMT+99", None), ("\udc80", None),
])
def test_zone_names(name, hours):
    tz = parse_zone(name)
    offset = tz and tz.utcoffset(datetime.datetime(2026, 12, 1, tzinfo=tz)).total_seconds() / 3600
    assert offset == hours, f"{name!r}: {offset}, wanted {hours}"


def test_text_is_folded():
    for text, want in (("\x1b[91m\x1b[1mError: \x1b[0mno", "Error: no"),
                       ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
                       ("a\r\nb\rc\td", "a\nb\nc\td"),
                       ("You\u2019ve \u201cit\u201d", "You've \"it\""),
                       ("3\u202fPM\u00a0x\u2009y", "3 PM x y"),
                       ("\u202eabc\u200b\x00\x9b", "abc"),
                       ("\x1b[HSession\x1b[8G\x1b[1mlimit\x1b[39m\x1b[14Greached", "\nSession limit reached"),
                       ("a\x1b[3Cb\x1b[1Gc\x1b[2Kd", "a b\ncd"), ("│ limit  │\n╰────╯", "limit\n"),
                       ("\x1b", ""), ("\x1b[", ""), ("日本 ∙ é", "日本 ∙ é")):
        assert fold_text(text) == want, f"{text!r}: {fold_text(text)!r}"


# --- round trips ---

ZONES = ("UTC", "America/New_York", "America/Los_Angeles", "America/Sao_Paulo", "Europe/Berlin",
         "Europe/London",
         "Asia/Kolkata", "Asia/Kathmandu", "Asia/Shanghai", "Australia/Lord_Howe", "Pacific/Auckland",
         "Pacific/Honolulu", "America/St_Johns", "Africa/Casablanca", "Pacific/Kiritimati")


def clock12(t: datetime.datetime) -> str:
    return f"{t.hour % 12 or 12}{f':{t.minute:02d}' if t.minute else ''}{('am', 'pm')[t.hour >= 12]}"


def long_clock(t: datetime.datetime) -> str:
    return f"{t.hour % 12 or 12}:{t.minute:02d}\u202f{('AM', 'PM')[t.hour >= 12]}"


def ordinal(day: int) -> str:
    return f"{day}{'th' if 10 < day < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"


def gmt(t: datetime.datetime) -> str:
    minutes = int(t.utcoffset().total_seconds()) // 60
    hours, rest = divmod(abs(minutes), 60)
    return "GMT" + ("" if not minutes else f"{'-+'[minutes > 0]}{hours}" + (f":{rest:02d}" if rest else ""))


# name: (render(local time, zone name), furthest ahead in s, printed precision in s, zone is printed)
UTC, BEIJING = datetime.timezone.utc, zoneinfo.ZoneInfo("Asia/Shanghai")
HOUR_S, DAY_S, MONTH_S = 3600, 86400, 34 * 86400
POINTS = {
    "claude clock": (lambda t, z: f"You've hit your limit · resets {clock12(t)} ({z})",
                     22 * HOUR_S, 60, True),
    "claude session": (lambda t, z: f"hit your session limit · resets {clock12(t)} ({z})",
                       5 * HOUR_S, 60, True),
    "claude date": (lambda t, z: f"limit · resets {t:%b} {t.day}, {clock12(t)} ({z})", MONTH_S, 60, True),
    "claude year": (lambda t, z: f"limit · resets {t:%b} {t.day}, {t.year}, {clock12(t)} ({z})",
                    MONTH_S, 60, True),
    "codex clock": (lambda t, z: f"limit. Try again at {long_clock(t)}.", 22 * HOUR_S, 60, False),
    "codex date": (lambda t, z: f"or try again at {t:%b} {ordinal(t.day)}, {t.year} {long_clock(t)}.",
                   MONTH_S, 60, False),
    "copilot date": (lambda t, z: f"your limit to reset on {t:%B} {t.day}, {t.year} at {long_clock(t)} or",
                     MONTH_S, 60, False),
    "gemini clock": (lambda t, z: f"Access resets at {long_clock(t)} {gmt(t)}.", 22 * HOUR_S, 60, True),
    "24 hours": (lambda t, z: f"Try again at {t:%H:%M}.", 22 * HOUR_S, 60, False),
    "weekday": (lambda t, z: f"Your limit resets on {t:%A} at {clock12(t)}", 6 * DAY_S, 60, False),
    "iso": (lambda t, z: f"Limit reached. Resets at {t.isoformat(timespec='seconds')}", MONTH_S, 1, True),
    "iso utc": (lambda t, z: f"resets at {t.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", MONTH_S, 1, True),
    "naive": (lambda t, z: f"will reset at {t:%Y-%m-%d %H:%M:%S}", MONTH_S, 1, False),
    "beijing": (lambda t, z: f"[1310][将在 {t.astimezone(BEIJING):%Y-%m-%d %H:%M:%S} 重置]",
                MONTH_S, 1, True),
    "http date": (lambda t, z: f"Retry-After: {t.astimezone(UTC):%a, %d %b %Y %H:%M:%S} GMT",
                  MONTH_S, 1, True),
    "epoch": (lambda t, z: f"Claude AI usage limit reached|{int(t.timestamp())}", MONTH_S, 1, True),
    "epoch ms": (lambda t, z: f'"resets_at": {int(t.timestamp())}000,', MONTH_S, 1, True),
}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("form", POINTS)
def test_printed_time_is_read_back(form, seed):
    rng = random.Random(f"{form} {seed}")
    render, furthest, precision, zone_is_printed = POINTS[form]
    for zone in ZONES:
        tz = zoneinfo.ZoneInfo(zone)
        now = float(rng.randrange(1735689600, 1861920000))             # 2025 to 2028
        true = now + rng.randrange(60, furthest)
        local = datetime.datetime.fromtimestamp(true, tz)
        text = render(local, zone)
        got = parse(text, now, rng.choice(ZONES) if zone_is_printed else zone)
        assert got is not None, f"seed {seed}, {zone}, now {now}: {text!r}: nothing found"
        ambiguous = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
        off = true - got.at         # the later of two: up to an hour more, which puts a session's behind us
        assert 0 <= off < precision or (ambiguous and (-HOUR_S <= off < 0 or off == off // DAY_S * DAY_S)), \
            f"seed {seed}, {zone}, now {now}: {text!r}: {got}, {off:+.0f} s off"


def parts(seconds: int) -> list[tuple[int, str]]:
    numbers = (seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60, seconds % 60)
    return [(n, unit) for n, unit in zip(numbers, ("day", "hour", "minute", "second")) if n]


DURATIONS = {
    "words": lambda s: "try again in " + " ".join(f"{n} {u}{'s' * (n != 1)}" for n, u in parts(s)) + ".",
    "commas": lambda s: "It will reset in " + ", ".join(f"{n} {u}s" for n, u in parts(s)),
    "and": lambda s: "Refreshes in " + " and ".join(f"{n} {u}s" for n, u in parts(s)),
    "compact": lambda s: f"Your quota will reset after {s // 3600}h{s // 60 % 60}m{s % 60}s.",
    "spaced": lambda s: "Resets in " + " ".join(f"{n}{u[0]}" for n, u in parts(s)),
    "seconds": lambda s: f"Please retry in {s}.000s.",
    "wrapped": lambda s: "or try again in " + "\n".join(f"{n} {u}s" for n, u in parts(s)) + ".",
    "ms": lambda s: f"Retrying after {s * 1000}ms...",
    "header": lambda s: f"retry-after: {s}",
    "header ms": lambda s: f"retry-after-ms={s * 1000}",
    "delay": lambda s: f'"retryDelay": "{s}.0s"',
    "field": lambda s: f'"resets_in_seconds":{s}',
}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("form", DURATIONS)
def test_printed_duration_is_read_back(form, seed):
    rng = random.Random(f"{form} {seed}")
    for limit in (60, 3600, 86400, 900_000):
        seconds = rng.randrange(1, limit)
        text = DURATIONS[form](seconds)
        got = parse(text, 1.8e9, rng.choice(ZONES))
        assert got is not None, f"seed {seed}: {text!r}: nothing found"
        assert got.at - 1.8e9 == pytest.approx(seconds, abs=0.01), f"seed {seed}: {text!r}: {got}"


# --- hostile text ---

WORDS = ["resets", "at", "in", "try again", "retry-after:", "limit reached|", '"resets_at":',
         "9999999999999", "99:99",
         "13/13/2026", "0000-00-00", "9999-12-31T23:59:59Z", "Feb 30", "2026-02-29", "GMT+99",
         "(Etc/GMT+99)", "(../x)",
         "Z", "-", "+25:00", "1e999", "am", "pm", "h", "99999999999999999999", "\n", "\0", "\udcff", "٣pm",
         "tomorrow",
         "Mon", "weeks", "0.0000000001", "{", "}", "(", ")", "\\n", "“", "\x1b[", "3pm", "24:00", "12:60 PM",
         "0pm",
         "in 99999:99", "将在", "重置", "[1308]", "a", "year 1"]


@pytest.mark.parametrize("seed", range(20))
def test_garbage_never_raises(seed):
    rng = random.Random(seed)
    for now in (0.0, 1.8e9, 2.5e11):
        for _ in range(150):
            text = rng.choice(["", " ", " "]).join(rng.choice(WORDS) for _ in range(rng.randrange(1, 14)))
            got = parse(text, now, rng.choice([*ZONES, "No/Such", ""]))
            assert got is None or got.at <= now + 35 * DAY_S, f"seed {seed}: {text!r} at {now}: {got}"
    parse("".join(chr(rng.randrange(rng.choice((127, 0x250, 0x3000)))) for _ in range(5000)), 1.8e9)


@pytest.mark.parametrize("text", [
    "1" * 10**6, " " * 10**6, "a" * 10**6, "\n" * 10**6, "{" * 10**6, "1:" * 500_000, "resets " * 10**5,
    "resets in " * 10**5, "resets" + " " * 10**6, "retry " + "a " * 500_000, "again '" + "'" * 10**6,
    "resets in " + "1h" * 500_000, 'resets_at": ' * 80_000, "resets 3pm (" + "x" * 10**6,
    "\x1b[" * 500_000, "\x1b[" + "0" * 10**6, "\x1b]" + "x" * 10**6,
], ids=lambda text: f"{text[:12]!a}")
def test_a_megabyte_of_anything_takes_linear_time(text):
    started = time.process_time()
    parse(text, 1.8e9)
    assert time.process_time() - started < 15, f"{text[:20]!r}: {time.process_time() - started:.1f} s"


def test_64_kib_of_hints_are_read_quickly():
    text = "You've hit your limit · resets Dec 5, 3pm (Europe/Berlin)\n" * 1100
    started = time.process_time()
    assert parse(text, at(NOON)).at == at("2026-12-05 15:00", "Europe/Berlin"), text[:60]
    assert time.process_time() - started < 2, f"{time.process_time() - started:.1f} s"
