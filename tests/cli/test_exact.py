"""`--exact` and what it remembers, with models small enough to be measured in a moment."""

import hashlib
import json
import re

import pytest

from tests.cli.program import specgguf


@pytest.fixture
def home(tmp_path):
    return {"SPECGGUF_HOME": tmp_path / "store"}


def tokens(toy_models, home, *options):
    models = ["-m", toy_models["endless"], "-d", toy_models["draft"]]
    result = specgguf("run", *models, "-n", 40, "--json", *options, "the cat sat on the mat", **home)
    assert (result.returncode, result.stderr) == (0, b""), result.stderr
    return json.loads(result.stdout)


def answer(toy_models, home, *options):
    """Of the target alone, whatever is said beside it."""
    result = specgguf("run", "-m", toy_models["endless"], "-n", 40, *options, "the cat sat on the mat", **home)
    assert result.returncode == 0, result.stderr
    return result


def profiles(home):
    """Records of which widths agree: one for each of the settings tried, up to the first where all do."""
    records = sorted((home["SPECGGUF_HOME"] / "profiles").glob("*.json"))
    return [path for path in records if '"classes"' in path.read_text()]


@pytest.mark.parametrize("sampling", [[], ["--temp", "1.5", "--seed", "3"]])
def test_drafts_of_any_kind_change_no_token(toy_models, home, sampling):
    plain = tokens(toy_models, home, "--exact", "--speculate", "off", *sampling)
    assert plain["exact"] is True
    assert plain["speculation"]["drafted"] == 0
    drafted = 0
    for options in (["auto"], ["ngram"], ["model"], ["fixed", "-k", "1"], ["fixed", "-k", "7"], ["fixed", "-k", "16"]):
        found = tokens(toy_models, home, "--exact", "--speculate", *options, *sampling)
        assert found["tokens"] == plain["tokens"]
        drafted += found["speculation"]["drafted"]
    assert drafted > 0


def test_what_was_measured_is_remembered_and_a_damaged_record_is_not_believed(toy_models, home):
    tokens(toy_models, home, "--exact")
    remembered = {path: path.read_text() for path in profiles(home)}
    assert 1 <= len(remembered) <= 3
    before = timings(home)
    tokens(toy_models, home, "--exact")
    for path, timing in timings(home).items():  # of models so small times may be doubted with good reason
        assert timing["at"] == before[path]["at"] or before[path]["doubted"]
    damaged = profiles(home)[0]
    record = json.loads(remembered[damaged])
    record["measurement"]["classes"] = [[5]]
    for content in (json.dumps(record), remembered[damaged][:100], "", "[]"):
        damaged.write_text(content)
        assert tokens(toy_models, home, "--exact")["exact"] is True
        assert json.loads(damaged.read_text())["measurement"]["classes"] != [[5]]


def test_another_machine_or_setting_is_measured_anew(toy_models, home):
    known = 0
    for options in (["-t", "1"], ["-t", "2"], ["-t", "2", "--cache-type-k", "f32"]):
        tokens(toy_models, home, "--exact", *options)
        assert len(profiles(home)) > known
        known = len(profiles(home))


def test_doctor_tells_what_is_known(toy_models, home):
    before = json.loads(specgguf("doctor", "-m", toy_models["endless"], "--json", **home).stdout)
    assert before["exact"].startswith("not measured yet")
    assert before["threads"] > 0
    chosen = tokens(toy_models, home, "--exact")
    after = json.loads(specgguf("doctor", "-m", toy_models["endless"], "--json", **home).stdout)
    assert after["exact"].startswith("batches of ")
    assert len(after["profiles"]) == len(profiles(home)) > 0
    assert chosen["exact"] is True
    shown = specgguf("doctor", "-m", toy_models["endless"], **home).stdout.decode()
    assert "widths with equal bits" in shown
    assert "relative" in shown


def test_the_usual_mode_is_exact_where_all_widths_agree(toy_models, home):
    assert tokens(toy_models, home)["exact"] is False  # nothing is known yet
    tokens(toy_models, home, "--exact")
    usual = next(
        entry
        for entry in json.loads(specgguf("doctor", "-m", toy_models["endless"], "--json", **home).stdout)["profiles"]
        if entry["settings"].startswith("weight repacking on, f16")
    )
    expected = any(set(range(1, 18)) <= set(group) for group in usual["classes"])
    assert tokens(toy_models, home)["exact"] is expected
    one_class = next(group for group in usual["classes"] if 1 in group)
    cap = max(width for width in one_class if set(range(1, width + 1)) <= set(one_class)) - 1
    if cap:
        assert tokens(toy_models, home, "-k", cap)["exact"] is True


def slowed(path, factor, widths=range(1, 18), classes=None, **changes):
    """As if these widths had taken so many times as long when they were measured."""
    record = json.loads(path.read_text())
    record["measurement"]["classes"] = classes or record["measurement"]["classes"]
    timing = record["measurement"]["timing"]
    timing["seconds"] |= {str(width): factor * timing["seconds"][str(width)] for width in widths}
    timing |= changes
    body = json.dumps(record["measurement"], sort_keys=True)
    path.write_text(json.dumps({**record, "sha256": hashlib.sha256(body.encode()).hexdigest()}))


def timings(home):
    return {path: json.loads(path.read_text())["measurement"]["timing"] for path in profiles(home)}


def test_what_was_measured_while_the_machine_was_busy_is_measured_anew_when_rounds_disagree(toy_models, home):
    tokens(toy_models, home, "--exact")
    first = timings(home)
    for path in first:
        slowed(path, 50)
    answer(toy_models, home, "--exact", "-n", 60)
    assert any(timing["doubted"] for timing in timings(home).values())
    shown = specgguf("doctor", "-m", toy_models["endless"], **home).stdout.decode()
    assert "batches were faster since" in shown
    answer(toy_models, home, "--exact", "--speculate", "off", "-n", 1)
    again = timings(home)
    assert not any(timing["doubted"] for timing in again.values())
    assert any(again[path]["rounds"] > first[path]["rounds"] for path in first)


def test_what_a_busy_machine_has_spoilt_is_measured_again_an_hour_later(toy_models, home):
    tokens(toy_models, home, "--exact")
    first = timings(home)
    for path, timing in first.items():
        slowed(path, 50, steady=False, at=timing["at"] - 4000)
    answer(toy_models, home, "--exact", "--speculate", "off", "-n", 1)
    for path, timing in timings(home).items():
        assert timing["rounds"] > first[path]["rounds"]
        assert timing["seconds"]["1"] < 50 * first[path]["seconds"]["1"]


def test_widths_that_are_chosen_otherwise_than_before_are_said(toy_models, home):
    classes = [[1, 2], list(range(3, 18))]
    answer(toy_models, home, "--exact", "-n", 1)
    for factor, fast in ((1, []), (1e-2, classes[0]), (1e-6, classes[1])):
        for path in profiles(home):  # after the first time there is one for each of the settings
            slowed(path, factor, fast, classes, steady=True, doubted=False)
        result = answer(toy_models, home, "--exact", "-n", 1)
    assert b"note: --exact: measured anew; from now on batches of 3, 4, 5, " in result.stderr
    assert b"measured anew" not in answer(toy_models, home, "--exact", "-n", 1).stderr


def test_doctor_tells_when_it_was_measured_and_how_noisy_it_was(toy_models, home):
    tokens(toy_models, home, "--exact")
    (one, *_) = timings(home).values()
    report = json.loads(specgguf("doctor", "-m", toy_models["endless"], "--json", **home).stdout)
    assert {"at", "noise", "rounds", "steady", "doubted"} < set(report["profiles"][0])
    shown = specgguf("doctor", "-m", toy_models["endless"], **home).stdout.decode()
    assert re.search(r"measured with .* cells, \d{4}-\d\d-\d\d \d\d:\d\d, \d+ rounds, noise \d+%", shown)
    assert re.search(r"\nwidth +ms +relative\n +1 +[\d.]+ +1\.00\n +2 ", shown)
    assert len(re.findall(r"^ +17 ", shown, re.M)) == len(report["profiles"])
    assert one["rounds"] >= 3


def test_costs_learned_in_one_slow_minute_stand_beside_those_of_other_sittings(toy_models, home):
    def costs():
        found = {path: json.loads(path.read_text()) for path in (home["SPECGGUF_HOME"] / "profiles").glob("*.json")}
        usual = {"repack": True, "cache_type_k": "f16", "cache_type_v": "f16"}.items()
        (path,) = [p for p, r in found.items() if usual <= r["fingerprint"].items() and "sittings" in r["measurement"]]
        return path, found[path]["measurement"]["sittings"]

    answer(toy_models, home, "--exact")  # from here on the file's hash is known
    answer(toy_models, home)
    path, (first,) = costs()
    answer(toy_models, home)
    assert len(costs()[1]) == 1  # of the same hour
    earlier = {**first, "at": first["at"] - 4000}
    (table,) = earlier["tables"].values()
    table["times"] = {width: 50 * seconds for width, seconds in table["times"].items()}
    body = json.loads(path.read_text()) | {"measurement": {"tuned": None, "sittings": [earlier]}}
    body["sha256"] = hashlib.sha256(json.dumps(body["measurement"], sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(body))
    answer(toy_models, home)
    slow, now = costs()[1]
    assert slow == earlier
    (known,) = now["tables"].values()
    assert known["times"]["1"] < table["times"]["1"]
