"""The page: words, tables, folders in every state, and HTML that holds together."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from folders import make

import fedbr
from fedbr.report import costs, settings, verdicts
from fedbr.report.clients import clients
from fedbr.report.comparison import Comparison, read
from fedbr.report.files import write_csv
from fedbr.report.write import write_report
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
        self.wrong += [f"{tag} {key}" for key in given if key.startswith("on") or (key == "src")]
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


def figures(page: Path) -> dict[str, list[dict[str, object]]]:
    (found,) = re.findall(r'id="figures">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    data: dict[str, list[dict[str, object]]] = json.loads(found)
    return data


def only(path: Path) -> Comparison:
    (found,) = read([path])
    return found


def test_headline_with_uncertainty(tmp_path: Path) -> None:
    make(tmp_path / "o")
    text = page_of(tmp_path / "o")
    assert "FedBR reaches 50 % in 4 ± 0 rounds, FedAvg in 8 ± 1, 1.9× fewer." in text
    assert re.search(
        r"In its 5 best rounds FedBR is \d+\.\d points above FedAvg \(95 % interval", text
    )
    for heading in (
        "Paired comparison",
        "Cost",
        "Clients",
        "Variants",
        "What the figures mean",
        "Recipe",
        "Environment",
    ):
        assert heading in text
    assert "95 % interval" in text
    assert "accuracy.top5" in text


def test_one_seed_and_one_stack(tmp_path: Path) -> None:
    make(tmp_path / "o", seeds=[0])
    assert "on one seed: that gives no interval" in page_of(tmp_path / "o")
    make(tmp_path / "p", labels=["FedAvg"])
    text = page_of(tmp_path / "p")
    assert "There is nothing finished to compare it with." in text
    assert "Paired comparison" not in text


def test_the_best_of_many_is_in_the_headline_and_its_rivals_are_counted(tmp_path: Path) -> None:
    make(tmp_path / "o", labels=["FedAvg", "b", "c"])
    head = verdicts.headline(only(tmp_path / "o").results)
    assert head[0].startswith("c reaches")
    assert head[2] == "c has the highest mean of 3 variants."
    slow = verdicts.headline(
        only(make(tmp_path / "p", labels=["FedAvg", "b"], rounds=1).path).results
    )
    assert slow[0] == "Neither b nor FedAvg reaches 50 % in 1 round."


def test_seeds_that_differ_are_said(tmp_path: Path) -> None:
    folder = make(tmp_path / "o")
    run = folder.run(folder.recipe.compare[1], 2)
    (run.path / "model.safetensors").unlink()
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    (run.path / "metrics.jsonl").write_text(
        "\n".join(lines[:3]) + "\n" + lines[3][:40]
    )  # a cut line
    text = page_of(tmp_path / "o")
    assert "5 of 6 runs are finished (FedBR, seed 2: 3 rounds)" in text
    assert "FedBR: seed 2 is left out, as it or FedAvg has not finished there or diverged." in text
    assert "2 of 2" in text
    assert "Thin: not all seeds have come so far." in text
    variant = figures(tmp_path / "o" / "report.html")["curves"][0]["variants"][1]  # type: ignore[index]
    assert variant["curves"]["accuracy"]["whole"] == 3
    assert len(variant["curves"]["accuracy"]["mean"]) == 10


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
        run = folder.run(folder.recipe.compare[1], seed)
        run.note(diverged_at={"round": 5, "client": 2, "what": "the loss is not finite"})
        kept = (
            (run.path / "metrics.jsonl").read_text().splitlines()[: 4 * seed]
        )  # seed 0 has no round at all
        (run.path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in kept))
    text = page_of(tmp_path / "o")
    assert (
        "FedBR: seed 0 diverged in round 5 (client 2: the loss is not finite); seed 1 diverged"
        in text
    )
    assert "diverged: 2 of 3 seeds" in text
    assert "Cross: a run diverged." in text
    variant = figures(tmp_path / "o" / "report.html")["curves"][0]["variants"][1]  # type: ignore[index]
    assert [end["round"] for end in variant["ends"]] == [4]


def test_rounds_without_a_test_and_values_that_are_no_numbers(tmp_path: Path) -> None:
    folder = make(tmp_path / "o", every=3)
    file = folder.run(folder.recipe.compare[0], 0).path / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[4]["loss"] = float("nan")
    lines[5] |= {"accuracy_worst": float("nan"), "accuracy_clients": [float("nan")] * 10}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    check(write_report([folder.path]))
    curve = figures(folder.path / "report.html")["curves"][0]["variants"][0]["curves"]["accuracy"]  # type: ignore[index]
    assert curve["round"] == [3, 6, 9, 10]
    assert curve["megabytes"] == [9, 18, 27, 30]
    assert curve["seconds"][0] == pytest.approx(3 * 0.6)


def test_labels_are_shown_not_run(tmp_path: Path) -> None:
    labels = [
        "<script>alert(1)</script>",
        "</script><img src=x onerror=alert(2)>",
        "a & b $x$ \"c\" 'd'",
    ]
    make(tmp_path / "<b>o", labels=labels)
    text = page_of(tmp_path / "<b>o")
    for label in labels:
        assert label in text
    html = (tmp_path / "<b>o" / "report.html").read_text()
    assert "<script>alert" not in html
    assert "<img" not in html
    variants = figures(tmp_path / "<b>o" / "report.html")["curves"][0]["variants"]
    assert [variant["label"] for variant in variants] == labels  # type: ignore[attr-defined]
    assert "&amp;lt;" not in html
    assert "<b>o" in text


def test_a_stack_that_was_not_tuned_has_a_dagger(tmp_path: Path) -> None:
    folder = make(tmp_path / "o", labels=["FedAvg", "b", "c", "d"], tuned=[None, False, True, None])
    results = only(folder.path).results
    assert [run.get("tuned") for run in results["runs"][::3]] == [None, False, True, None]
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
    assert "train.lr" not in text.split("Settings that differ")[1].split("FedBR reaches")[0]
    assert "stands for the same split" in text
    first = figures(tmp_path / "o" / "report.html")["curves"][0]["variants"]
    assert [s["label"] for s in first][:3] == ["FedAvg · o", "FedBR · o", "FedAvg · p"]  # type: ignore[attr-defined]


def test_folders_with_other_tests_share_no_figure(tmp_path: Path) -> None:
    make(tmp_path / "o")
    make(tmp_path / "p", holdout=0.2)
    write_report([tmp_path / "o", tmp_path / "p"])
    assert len(figures(tmp_path / "o" / "report.html")["curves"]) == 2


def test_clients_few_many_and_too_many(tmp_path: Path) -> None:
    few = clients(only(make(tmp_path / "few").path))
    assert few is not None
    assert few["seeds"][0]["accuracy"][0][1] is None  # not tested, and shown so
    assert few["seeds"][0]["counts"][3] == [0, 0, 0, 20, 0, 0, 0, 0, 0, 0]
    hundred = clients(only(make(tmp_path / "hundred", clients=100, rounds=1).path))
    assert hundred is not None
    assert len(hundred["seeds"][0]["accuracy"][0]) == 100
    assert not hundred["sorted"]
    many = clients(only(make(tmp_path / "many", clients=1000, rounds=1, seeds=[0]).path))
    assert many is not None
    assert many["sorted"]
    row = many["seeds"][0]["accuracy"][0]
    assert len(row) == 100
    assert row == sorted(row)
    assert len(many["seeds"][0]["sizes"]) == 200


def test_older_runs_do_not_say_who_has_which_classes(tmp_path: Path) -> None:
    folder = make(tmp_path / "o")
    for file in (folder.path / "runs").rglob("run.json"):
        told = json.loads(file.read_text())
        del told["classes"]
        file.write_text(json.dumps(told))
    assert "how many classes a client has in effect" in page_of(folder.path)


def test_costs_are_relative_and_up_to_the_target(tmp_path: Path) -> None:
    header, (avg, br) = costs.cost_table(only(make(tmp_path / "o").path))
    assert header[5] == "MB to 50 %"
    assert avg[1:5] == ["3.00", "1.0", "0.60", "1.0"]
    assert avg[5:] == ["23.0 ± 1.7", "4.6 ± 0.5"]  # rounds 8, 8 and 7
    assert br[5] == "12.0 ± 0.0"


def test_parameters_that_were_there_before_are_not_repeated(tmp_path: Path) -> None:
    folder = make(tmp_path / "o", labels=["FedAvg", "b", "c"])
    recipe = folder.recipe.model_dump(exclude_none=True)
    recipe["compare"][2]["methods"] = [{**recipe["compare"][1]["methods"][0], "mu": 9.0}]
    comparison = only(folder.path)
    comparison.results["recipe"] = recipe
    _, cells = settings.of_variants(comparison)
    assert cells[0] == ["FedAvg", "none (FedAvg)", ""]
    assert cells[2] == ["c", "fedprox", "mu = 9"]


def test_fifteen_methods_with_three_seeds_stay_small(tmp_path: Path) -> None:
    make(tmp_path / "o", labels=[f"variant {i}" for i in range(15)], rounds=500, clients=3)
    page = write_report([tmp_path / "o"])
    check(page)
    assert page.stat().st_size < 6_000_000


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    make(tmp_path / "o")
    with pytest.raises(InputError, match="cannot write there"):
        write_report([tmp_path / "o"], tmp_path / "no" / "such" / "page.html")


def test_a_run_says_who_has_which_classes_of_its_first_clients() -> None:
    y = np.arange(600) % 3
    few = fedbr.Federation.from_arrays(
        y[:, None] * 1.0, y, y[:, None] * 1.0, y, clients=4, partition="lda"
    )
    told = few.classes()
    counted = [sum(int(pair.split(":")[1]) for pair in text.split()) for text in told["counts"]]
    assert (told["number"], counted) == (3, few.sizes)
    many = fedbr.Federation.from_arrays(
        y[:, None] * 1.0, y, y[:, None] * 1.0, y, clients=300, partition="iid"
    )
    assert len(many.classes()["counts"]) == 200


def test_local_models_beside_the_aggregated_one(tmp_path: Path) -> None:
    folder = make(tmp_path / "o", seeds=[0, 1])
    assert "Local models" not in page_of(tmp_path / "o")
    for variant in folder.recipe.compare:
        for seed in (0, 1):
            file = folder.run(variant, seed).path / "metrics.jsonl"
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            bias = {
                "accuracy_aggregated": 0.5 + seed / 10,
                "cosine": None,
                "layers": {"w": {"cosine": None}},
            }
            for line in lines[4::5]:
                line |= {"accuracy_local": 0.2 + seed / 10 + line["round"] / 100, "bias": bias}
            file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = page_of(tmp_path / "o")
    assert "Local models FedAvg" not in text
    assert "35.0 ± 7.1" in text  # of the last round that was looked at: 30 % and 40 %
    assert "55.0 ± 7.1" in text
    assert [run["accuracy_local"] for run in folder.results()["runs"]] == pytest.approx(
        [0.3, 0.4] * 2
    )
    write_csv(folder.path)
    (head, *rounds), (names, *runs) = (
        [row.split(",") for row in (folder.path / name).read_text().splitlines()]
        for name in ("rounds.csv", "runs.csv")
    )
    columns = ["accuracy_local", "accuracy_aggregated", "bias_cosine"]
    assert [[row[head.index(name)] for name in columns] for row in rounds[3:5]] == [
        ["", "", ""],
        ["0.25", "0.5", ""],
    ]
    assert not any("layers" in name for name in head)
    assert [float(row[names.index("accuracy_local")]) for row in runs] == pytest.approx(
        [0.3, 0.4] * 2
    )
    folder.run(folder.recipe.compare[1], 0).note(
        diverged_at={"round": 10, "client": 0, "what": "x"}
    )
    assert "65.0" not in text
    assert "60.0" in page_of(tmp_path / "o")  # the other seed alone
