"""`specgguf bench`: what it reports, not how fast anything is."""

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pexpect
import pytest

from specgguf.measure.comparison import Run, summarize
from tests.cli.program import EXECUTABLE, environment, failure, specgguf

PROMPTS = ("the cat sat on the mat", "a dog and a cat and a dog")


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "prompts.jsonl"
    lines = [json.dumps({"category": f"kind <{n}>", "prompt": text}) for n, text in enumerate(PROMPTS)]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def bench(toy_models, prompts, tmp_path):
    def run(*arguments, draft="draft"):
        models = ["-m", toy_models["endless"], *(["-d", toy_models[draft]] if draft else [])]
        home = tmp_path / "home"
        return specgguf("bench", *models, "--prompts", prompts, "-n", 12, "-t", 1, *arguments, SPECGGUF_HOME=home)

    return run


def test_everything_in_one_object(bench):
    result = json.loads(bench("--json", "--arm", "fixed -k 3", "--arm", "ngram", "--repeat", 2, "-k", 5).stdout)
    rows, runs = result["rows"], result["runs"]
    assert [row["arm"] for row in rows] == ["plain", "auto", "fixed -k 3", "ngram"] * 3
    assert [row["category"] for row in rows[::4]] == ["kind <0>", "kind <1>", "all"]
    assert len(runs) == 2 * 2 * 4
    assert len(result["traces"]) == 2 * 2
    assert {"device", "system", "threads", "llama.cpp", "specgguf"} <= result["machine"].keys()
    for row in rows:
        assert row["speed_worst"] <= row["speed"]
        assert row["speed_low"] <= row["speed"] <= row["speed_high"]
        assert row["of_oracle"] == pytest.approx(row["speed"] / row["oracle_speed"])
        assert row["last_token_s_p50"] <= row["last_token_s_p95"]
    assert len(rows[2]["per_position"]) == 3
    for run in runs:
        assert run["output_tokens"] == 12
        assert sum(run["rounds"]["accepted_at"]) <= sum(run["rounds"]["drafted_at"])
    for trace in result["traces"]:
        assert len(trace["drafted"]) == len(trace["copied"]) == 12
        assert set(trace["width_s"]) == set(map(str, range(1, 7)))


@pytest.mark.parametrize("draft", ["draft", "endless"])
def test_the_trace_is_what_fixed_drafts_find(bench, draft):
    """A round that begins at a position accepts as many tokens as the trace says of it."""
    result = json.loads(bench("--json", "--arm", "fixed -k 4", draft=draft).stdout)
    assert draft != "endless" or all(trace["drafted"][0] for trace in result["traces"])  # it guesses its own words
    for trace in result["traces"]:
        at = [0]
        while at[-1] < 12:
            at.append(at[-1] + 1 + min(trace["drafted"][at[-1]], 4, 12 - at[-1] - 1))
        run = next(run for run in result["runs"] if run["arm"] == "fixed -k 4" and run["prompt"] == trace["prompt"])
        assert run["rounds"]["rounds"] == len(at) - 1


def test_without_a_draft_only_copies_count(bench):
    result = bench("--json", draft=None)
    assert all(trace["step_s"] is None and not any(trace["drafted"]) for trace in json.loads(result.stdout)["traces"])
    assert b"note: " in result.stderr
    refused = bench("--arm", "fixed -k 2", draft=None)
    assert refused.returncode == 2
    assert b"nothing drafts in that way" in refused.stderr


def test_a_plain_table_in_a_pipe(bench):
    lines = bench("--arm", "fixed -k 2").stdout.decode().splitlines()
    assert lines[0].split()[:2] == ["category", "arm"]
    assert len(lines) == 1 + 3 * 3 + 2 + len([line for line in lines if line.startswith(("auto", "fixed"))])
    assert not any("█" in line or "\x1b" in line for line in lines)


class Page(HTMLParser):
    """Notes what a page would load, and its text."""

    def __init__(self):
        super().__init__()
        self.loads, self.text = [], ""

    def handle_starttag(self, tag, attributes):
        self.loads += [(tag, name) for name, value in attributes if name in {"src", "href"}]

    def handle_data(self, data):
        self.text += data


def test_reports_are_whole_and_need_nothing_else(bench, tmp_path):
    html, svg = tmp_path / "report.html", tmp_path / "chart.svg"
    html.write_text("old")
    assert bench("--report", html, "--arm", "ngram").returncode == 0
    page = Page()
    page.feed(html.read_text())
    assert page.loads == []
    assert "kind <0>" in page.text
    assert "prefers-color-scheme: dark" in html.read_text()
    assert bench("--report", svg).returncode == 0
    texts = [element.text for element in ET.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert {"auto", "plain", "kind <0>", "kind <1>", "all"} <= set(texts)
    assert sorted(tmp_path.glob("*.*")) == [svg, html]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--report", "report.pdf"], "neither .html nor .svg"),
        (["--report", "nowhere/report.svg"], "no such folder"),
        (["--arm", "fixed -k 1000"], "no way to decode"),
        (["--arm", "faster"], "no way to decode"),
        (["--arm", "auto"], "measured anyway"),
        (["-n", "1"], "no answer was long enough"),
    ],
)
def test_what_cannot_be(bench, arguments, named):
    message, _ = failure(bench(*arguments), code=2)
    assert named in message


def test_ctrl_c_keeps_what_was_measured(toy_models, tmp_path):
    many, report, out = tmp_path / "many.jsonl", tmp_path / "report.svg", tmp_path / "out.json"
    many.write_text('{"category": "a", "prompt": "the cat"}\n' * 2000)
    options = f"-m {toy_models['endless']} --prompts {many} -n 8 -t 1 --json --report {report}"
    command = f"exec {EXECUTABLE} bench {options} > {out}"
    variables = environment(SPECGGUF_HOME=tmp_path / "home", TERM="xterm")
    process = pexpect.spawn("/bin/sh", ["-c", command], env=variables, timeout=120)
    process.expect(r"measuring.* [1-9]%.*\d:\d\d:\d\d")  # with an estimate of the time left
    process.sendintr()
    process.expect("interrupted: not all prompts are in")
    process.expect(pexpect.EOF)
    assert process.wait() == 130
    result = json.loads(out.read_text())
    assert result["interrupted"] is True
    assert 0 < len(result["traces"]) < 2000
    assert report.exists()


def test_a_row_is_the_geometric_mean_of_paired_ratios():
    def run(arm, prompt, token_s):
        return Run(arm, "a", prompt, 10, 10 * token_s, 0.1, 1.0, 11)

    runs = [run("plain", 0, 0.02), run("auto", 0, 0.01), run("plain", 1, 0.10), run("auto", 1, 0.40)]
    rows = summarize(runs, "plain", {0: 1.6, 1: 1.6})
    (auto,) = (row for row in rows if row["category"] == "all" and row["arm"] == "auto")
    assert auto["speed"] == pytest.approx((2 * 0.25) ** 0.5)
    assert auto["speed_worst"] == pytest.approx(0.25)
    assert auto["oracle_speed"] == pytest.approx(1.6)
    assert auto["of_oracle"] == pytest.approx(auto["speed"] / 1.6)


def test_many_prompts_at_once(bench):
    result = json.loads(bench("--json", "--parallel", 2, "--parallel", "auto", "--repeat", 2).stdout)
    rows, piles = result["rows"], result["runs"]
    arms = [f"{count}, {how}" for count in (1, 2, "auto") for how in ("plain", "drafting")]
    assert [row["arm"] for row in rows] == arms
    assert sorted(pile["arm"] for pile in piles) == sorted(arms * 2)
    assert [row["at_once"] for row in rows][:4] == [1, 1, 2, 2]
    assert rows[0]["speed"] == 1.0
    for row in rows:
        assert row["speed_low"] <= row["speed"] <= row["speed_high"]
        assert row["last_token_s_p50"] <= row["last_token_s_p95"]
        assert 0 < row["outside"] < 1
        assert row["undrafted"] == 1.0 or row["arm"].endswith("drafting")
    for pile in piles:
        assert pile["output_tokens"] == [12, 12]
        assert max(pile["last_token_s"]) <= pile["seconds"]
        assert sum(pile["accepted"].values()) <= sum(pile["drafted"].values())
    table = bench("--parallel", 2).stdout.decode().splitlines()
    assert table[0].split()[:4] == ["category", "arm", "at", "once"]
    assert len(table) == 5


def test_many_at_once_are_an_arm_of_their_own(bench):
    assert failure(bench("--parallel", 2, "--arm", "ngram"), code=2)[0] == "--parallel and --arm exclude each other"
    assert "1 to 64, or auto" in failure(bench("--parallel", 0), code=2)[0]
