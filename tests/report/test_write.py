"""The page: words, tables, folders in every state, and HTML that holds together."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import (
    change_info,
    diverge,
    interrupt,
    lines_of,
    make,
    make_gains,
    read_one,
    write_lines,
)

import fedbr
from fedbr.recipe import load as config
from fedbr.report import words
from fedbr.report.clients import describe_clients
from fedbr.report.write import default_place, write_report
from fedbr.run.csv_files import write_csv
from fedbr.util.errors import InputError


class Checker(HTMLParser):
    """Collects what a validator would refuse, and the text that is seen."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.wrong: list[str] = []
        self.text: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if len(given) < len(attrs):
            self.wrong.append(f"an attribute of {tag} twice")
        self.ids += [given["id"] or ""] if "id" in given else []
        self.wrong += [f"{tag} {key}" for key in given if key.startswith("on") or key == "src"]
        self.scripts += tag == "script"
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def check(page: Path) -> Checker:
    html = page.read_text("utf-8")
    checker = Checker()
    checker.feed(html)
    assert checker.wrong == []
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert checker.scripts == 3
    assert not re.search(r"[\x00-\x08\x0b\x0e-\x1f]", html)
    return checker


def page_of(*folders: Path) -> str:
    return " ".join(check(write_report(folders)).text)


def figures(page: Path) -> list[dict[str, Any]]:
    """Return the views of all figures of a page, as Plotly gets them."""
    (text,) = re.findall(r'id="figures">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    data = json.loads(text)
    shared: list[Any] = []

    def whole(value: Any) -> Any:
        if isinstance(value, list):
            return [whole(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "shared" in value:
            return shared[value["shared"]]
        return {key: whole(item) for key, item in value.items()}

    for part in data["shared"]:
        shared.append(whole(part))
    views: list[dict[str, Any]] = whole(data["figures"])
    return views


def traces(page: Path, view: str = "round accuracy", figure: int = 0) -> list[dict[str, Any]]:
    """Return what a figure draws, but for the bands."""
    data = figures(page)[figure][view]["data"]
    return [trace for trace in data if trace.get("meta") != "band"]


def test_headline_with_uncertainty(tmp_path: Path) -> None:
    make(tmp_path / "o")
    text = page_of(tmp_path / "o")
    assert "FedBR is ahead of FedAvg: +21.5 points in the 5 best rounds (95 % interval" in text
    assert "It reaches 50 % in 4 ± 0 rounds, FedAvg in 8 ± 1 rounds, 1.9× fewer." in text
    for heading in (
        "Paired comparison",
        "Cost",
        "Clients",
        "Variants",
        "What the values mean",
        "Recipe",
        "Environment",
    ):
        assert heading in text
    assert "95 % interval" in text
    assert "accuracy.top5" in text


def test_gains_of_20_5_and_10_points_are_undecided_everywhere(tmp_path: Path) -> None:
    folder = make_gains(tmp_path / "o", [20, 5, 10])
    comparison = read_one(folder.path).comparison
    sentence = (
        "FedBR against FedAvg is undecided: +11.7 points in the 5 best rounds (95 % interval "
        "−7.3 to 30.6; ahead on 3 of 3 seeds)."
    )
    assert words.closing_sentences(comparison) == [sentence]
    assert words.headline(comparison) == [sentence]
    page = write_report([folder.path])
    html = page.read_text("utf-8")
    assert f'<p class="lead">{sentence}</p>' in html
    cells = ["+11.7", "[−7.3, 30.6]", "3 of 3", "undecided"]
    row = "".join(f"<td>{cell}</td>" for cell in cells)
    assert f"FedBR</th>{row}" in html
    assert len(re.findall(r"undecided", html.split("<h2>Cost")[0])) == 2


def test_one_seed_and_one_variant(tmp_path: Path) -> None:
    make(tmp_path / "o", seeds=[0])
    assert "one seed, which gives no interval" in page_of(tmp_path / "o")
    make(tmp_path / "p", labels=["FedAvg"])
    text = page_of(tmp_path / "p")
    assert "There is nothing finished to compare it with." in text
    assert "Paired comparison" not in text


def test_the_best_of_many_is_in_the_headline_and_its_rivals_are_counted(tmp_path: Path) -> None:
    make(tmp_path / "o", labels=["FedAvg", "b", "c"])
    text = page_of(tmp_path / "o")
    assert "c is ahead of FedAvg" in text
    assert "c has the highest mean of 3 variants." in text
    make(tmp_path / "p", labels=["FedAvg", "b"], rounds=1)
    assert "In 1 round neither reaches 50 %." in page_of(tmp_path / "p")


def test_seeds_that_differ_are_said(tmp_path: Path) -> None:
    folder = make(tmp_path / "o")
    run = folder.path / "runs" / "FedBR-2"
    interrupt(run, after=3)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"round": 4, "accu')  # a line that a kill cut short
    text = page_of(tmp_path / "o")
    assert "5 of 6 runs are finished (FedBR, seed 2: 3 rounds)" in text
    assert "FedBR: seed 2 is left out, as it or FedAvg has not finished there or diverged." in text
    assert "2 of 2" in text
    assert "Thin: not all seeds have come so far." in text
    _, whole, thin = traces(tmp_path / "o" / "report.html")
    assert (whole["name"], whole["x"]) == ("FedBR", [1, 2, 3])
    assert (thin["name"], thin["x"]) == ("FedBR", [3, 4, 5, 6, 7, 8, 9, 10])
    assert thin["line"]["width"] < whole["line"]["width"]


def test_nothing_done_yet(tmp_path: Path) -> None:
    folder = make(tmp_path / "o")
    for file in (folder.path / "runs").rglob("*"):
        if file.name in ("metrics.jsonl", "model.safetensors"):
            file.unlink()
    assert "No round is finished yet." in page_of(tmp_path / "o")
    for file in (folder.path / "runs").rglob("run.json"):
        file.unlink()
    assert "No round is finished yet." in page_of(tmp_path / "o")


def test_diverged_runs_are_named_and_marked(tmp_path: Path) -> None:
    folder = make(tmp_path / "o")
    for seed in (0, 1):
        diverge(folder.path / "runs" / f"FedBR-{seed}", after=4 * seed)  # seed 0 has no round
    text = page_of(tmp_path / "o")
    assert (
        "FedBR: seed 0 diverged in round 5 (client 2: the loss is not finite); seed 1 diverged"
        in text
    )
    assert "diverged: 2 of 3 seeds" in text
    assert "Cross: a run diverged." in text
    crosses = [t for t in traces(tmp_path / "o" / "report.html") if t.get("mode") == "markers"]
    assert [(cross["name"], cross["x"]) for cross in crosses] == [("FedBR", [4])]
    assert crosses[0]["text"] == [
        "seed 1 diverged in round 5 (client 2: the loss is not finite)",
    ]


def test_rounds_without_a_test_and_values_that_are_no_numbers(tmp_path: Path) -> None:
    folder = make(tmp_path / "o", every=3)
    run = folder.path / "runs" / "FedAvg-0"
    lines = lines_of(run)
    lines[4]["loss"] = float("nan")
    lines[5] |= {"accuracy_worst": float("nan"), "accuracy_clients": [float("nan")] * 10}
    write_lines(run, lines)
    page = write_report([folder.path])
    check(page)
    assert traces(page)[0]["x"] == [3, 6, 9, 10]
    assert traces(page, "megabytes accuracy")[0]["x"] == [9, 18, 27, 30]
    assert traces(page, "seconds accuracy")[0]["x"][0] == pytest.approx(3 * 0.6)
    assert traces(page)[0]["customdata"][1] == pytest.approx([6, 3.6, 18])


def test_labels_are_shown_not_run(tmp_path: Path) -> None:
    labels = [
        "<script>alert(1)</script>",
        "</script><img src=x onerror=alert(2)>",
        "a & b $x$ \"c\" 'd' %{x}",
    ]
    make(tmp_path / "<b>o", labels=labels)
    text = page_of(tmp_path / "<b>o")
    for label in labels:
        assert label in text
    page = tmp_path / "<b>o" / "report.html"
    html = page.read_text()
    assert "<script>alert" not in html
    assert "<img" not in html
    assert [trace["name"] for trace in traces(page)] == [  # Plotly reads a part of HTML
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "&lt;/script&gt;&lt;img src=x onerror=alert(2)&gt;",
        "a &amp; b $x$ \"c\" 'd' %{x}",
    ]
    assert "&amp;lt;" not in html
    assert "<b>o" in text


def test_labels_of_a_run_are_shown_not_run(tmp_path: Path) -> None:
    label = "<script>alert(1)</script>/..\\&$x"
    values = config.load("digits", ["train.rounds=1", "train.local_steps=1"]).model_dump()
    values["model"] = {"name": "mlp"}
    values["compare"] = [
        {"label": label, "methods": []},
        {"label": label.replace("/", "?"), "methods": ["fedbr"]},
    ]
    fedbr.run_recipe(config.parse(values), tmp_path / "o")
    assert len(list((tmp_path / "o" / "runs").iterdir())) == 2
    html = write_report([tmp_path / "o"]).read_text()
    assert "<script>alert(1)" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_a_variant_that_was_not_tuned_has_a_dagger(tmp_path: Path) -> None:
    folder = make(tmp_path / "o", labels=["FedAvg", "b", "c", "d"], tuned=[None, False, True, None])
    text = page_of(folder.path)
    assert "b †" in text
    assert "c †" not in text
    assert "† not tuned" in text
    make(tmp_path / "p")
    assert "†" not in page_of(tmp_path / "p")


def test_several_folders(tmp_path: Path) -> None:
    make(tmp_path / "o")
    make(tmp_path / "p", rounds=20)
    make(tmp_path / "q" / "o", alpha=0.5)
    text = page_of(tmp_path / "o", tmp_path / "p", tmp_path / "q" / "o")
    assert "3 folders" in text
    assert "o (2)" in text
    assert "data.alpha" in text
    assert "train.rounds" in text
    assert "train.lr" not in text.split("Settings that differ")[1].split("FedBR is ahead")[0]
    assert "stands for the same split" in text
    names = [trace["name"] for trace in traces(tmp_path / "o+p+o.html")]
    assert names[:3] == ["FedAvg · o", "FedBR · o", "FedAvg · p"]


def test_folders_with_other_tests_share_no_figure(tmp_path: Path) -> None:
    make(tmp_path / "o")
    make(tmp_path / "p", holdout=0.2)
    page = write_report([tmp_path / "o", tmp_path / "p"])
    curves = [views for views in figures(page) if "round accuracy" in views]
    assert len(curves) == 2


def test_the_page_of_several_folders_lies_beside_them(tmp_path: Path) -> None:
    folders = [tmp_path / "runs" / name for name in ("a", "b c", "d")]
    assert default_place(folders[:1]) == tmp_path / "runs" / "a" / "report.html"
    assert default_place(folders[:2]) == tmp_path / "runs" / "a+b_c.html"
    many = default_place([tmp_path / f"a folder {i}" for i in range(100)])
    assert many.parent == tmp_path
    assert len(many.name) < 100


def test_clients_few_many_and_too_many(tmp_path: Path) -> None:
    few = describe_clients(read_one(make(tmp_path / "few").path).results)
    assert few is not None
    assert few.seeds[0].accuracy[0][1] is None  # not tested, and shown so
    assert few.seeds[0].counts is not None
    assert few.seeds[0].counts[3] == [0, 0, 0, 20, 0, 0, 0, 0, 0, 0]
    hundred = describe_clients(
        read_one(make(tmp_path / "hundred", clients=100, rounds=1).path).results
    )
    assert hundred is not None
    assert len(hundred.seeds[0].accuracy[0]) == 100
    assert not hundred.sorted
    folder = make(tmp_path / "many", clients=1000, rounds=1, seeds=[0])
    many = describe_clients(read_one(folder.path).results)
    assert many is not None
    assert many.sorted
    row = [value for value in many.seeds[0].accuracy[0] if value is not None]
    assert len(row) == 100
    assert row == sorted(row)
    assert len(many.seeds[0].sizes) == 200


def test_older_runs_do_not_say_who_has_which_classes(tmp_path: Path) -> None:
    folder = make(tmp_path / "o")
    for run in (folder.path / "runs").iterdir():
        change_info(run, classes=None)
    assert "how many classes a client has in effect" in page_of(folder.path)


@pytest.mark.parametrize("state", ["finished", "partial", "filed"])
def test_folders_of_version_0_1(tmp_path: Path, state: str) -> None:
    folder = Path(__file__).parent.parent / "golden" / "v0.1" / state
    page = write_report([folder], tmp_path / "page.html")
    check(page)
    assert traces(page)[0]["x"][0] == 1


def test_fifteen_methods_with_three_seeds_stay_small(tmp_path: Path) -> None:
    make(tmp_path / "o", labels=[f"variant {i}" for i in range(15)], rounds=500, clients=3)
    page = write_report([tmp_path / "o"])
    check(page)
    assert page.stat().st_size < 5_400_000


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    make(tmp_path / "o")
    with pytest.raises(InputError, match="cannot write there"):
        write_report([tmp_path / "o"], tmp_path / "no" / "such" / "page.html")


def test_a_run_says_who_has_which_classes_of_its_first_clients() -> None:
    y = np.arange(600) % 3
    x = y[:, None] * 1.0
    few = fedbr.Federation.from_arrays(x, y, x, y, clients=4, partition="lda")
    counts = few.census.classes
    counted = [sum(int(pair.split(":")[1]) for pair in text.split(" ")) for text in counts.counts]
    assert (counts.number, counted) == (3, list(few.sizes))
    many = fedbr.Federation.from_arrays(x, y, x, y, clients=300, partition="iid")
    assert len(many.census.classes.counts) == 200


def test_a_page_of_a_run_that_has_only_begun(tmp_path: Path) -> None:
    folder = make(tmp_path / "o", seeds=[0, 1])
    for run in (folder.path / "runs").iterdir():
        interrupt(run, after=1)
    text = page_of(tmp_path / "o")
    assert "so far: 1 of 10 rounds" in text
    assert "No run is finished yet." in text


def with_bias(path: Path) -> None:
    """Write a folder of two seeds whose clients' models were looked at every five rounds."""
    folder = make(path, seeds=[0, 1])
    for run in (folder.path / "runs").iterdir():
        seed = int(run.name[-1])
        lines = lines_of(run)
        for line in lines[4::5]:
            unknown = dict.fromkeys(("share_present", "share_present_unseen", "entropy"))
            drift = dict.fromkeys(("length", "distance", "cosine"))
            line["accuracy_local"] = 0.2 + seed / 10 + line["round"] / 100
            aggregated = {"accuracy_aggregated": 0.5 + seed / 10}
            line["bias"] = aggregated | unknown | drift | {"layers": {"w": drift}}
        write_lines(run, lines)


def test_local_models_beside_the_aggregated_one(tmp_path: Path) -> None:
    make(tmp_path / "none")
    assert "Local models" not in page_of(tmp_path / "none")
    with_bias(tmp_path / "o")
    text = page_of(tmp_path / "o")
    assert "Local models FedAvg" not in text
    assert "35.0 ± 7.1" in text  # of the last round that was looked at: 30 % and 40 %
    assert "55.0 ± 7.1" in text
    assert "60.0" not in text
    change_info(
        tmp_path / "o" / "runs" / "FedBR-0", diverged_at={"round": 10, "client": 0, "what": "x"}
    )
    assert "60.0" in page_of(tmp_path / "o")  # the other seed alone


def test_local_models_as_csv(tmp_path: Path) -> None:
    with_bias(tmp_path / "o")
    results = read_one(tmp_path / "o").results
    assert [run.accuracy_local for run in results.runs] == pytest.approx([0.3, 0.4] * 2)
    write_csv(results)
    with (tmp_path / "o" / "rounds.csv").open(newline="") as file:
        rounds = list(csv.DictReader(file))
    columns = ["accuracy_local", "accuracy_aggregated", "bias_cosine"]
    assert [rounds[3][name] for name in columns] == ["", "", ""]
    assert [rounds[4][name] for name in columns] == ["0.25", "0.5", ""]
    assert not any("layers" in name for name in rounds[0])
    with (tmp_path / "o" / "runs.csv").open(newline="") as file:
        local = [float(run["accuracy_local"]) for run in csv.DictReader(file)]
    assert local == pytest.approx([0.3, 0.4] * 2)
