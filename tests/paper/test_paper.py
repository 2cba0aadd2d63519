"""The paper's tables: every file fits, scales say what they change, and verdicts are what the
figures say.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fedbr.cli.app import call
from fedbr.cli.tables import show
from fedbr.core.records import Divergence, ModelFacts, RoundRecord, Split
from fedbr.paper import scale, table, text
from fedbr.paper.columns import COLUMNS
from fedbr.paper.outcome import DAGGER, judge, make_outcome
from fedbr.recipe.schema import Recipe
from fedbr.report.compare import compare
from fedbr.run import forecast
from fedbr.run.engines import OneByOne
from fedbr.run.folder import make_result
from fedbr.run.plan import Experiment
from fedbr.run.results import Results, RunResult
from fedbr.run.runner import check
from fedbr.run.store import RunStore
from fedbr.util.errors import InputError

TABLES = {name: table.load(name) for name in table.names()}
PAPER = Path(__file__).parents[3] / "shared" / "paper" / "fedbr.tex"


@pytest.fixture(autouse=True)
def _no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDBR_DATA", str(tmp_path / "nothing"))


def test_files_that_are_no_use_are_refused_and_not_replaced_by_digits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    monkeypatch.setenv("FEDBR_DATA", str(tmp_path / "files"))
    assert "has no files of cifar10" in scale.recipes(TABLES["lambda"], "cpu")[0].why
    (tmp_path / "files" / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(bytes(9999))[:-20])
    with pytest.raises(InputError, match=r"cifar-10-binary\.tar\.gz: (ends|damaged)"):
        scale.recipes(TABLES["lambda"], "cpu")


def test_nothing_of_the_users_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = [
        "reproduce",
        "lambda",
        "--seeds",
        "3",
        "--set",
        "train.rounds=1",
        "train.local_steps=1",
    ]
    short += ["--workers", "1", "--out"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "table.md").write_text("precious")
    run = [
        "run",
        "--methods",
        "fedavg",
        "--set",
        "train.rounds=1",
        "model.name=mlp",
        "--out",
        str(tmp_path / "run"),
    ]
    assert call(run) == 0
    for folder in ("mine", "run", "mine/table.md"):
        for fresh in ([], ["--fresh"]):
            assert call([*short, str(tmp_path / folder), *fresh]) == 2
            assert f"{folder}: is not" in capsys.readouterr().err
    assert (tmp_path / "mine" / "table.md").read_text() == "precious"
    for fresh in ([], [], ["--fresh"]):
        assert call([*short, str(tmp_path / "ours"), *fresh]) == 0
    assert (tmp_path / "ours" / "table.md").exists()


def test_all_that_the_paper_shows_is_there() -> None:
    tables = {t.place for t in TABLES.values() if not t.figure}
    assert tables == {f"Table {i}" for i in range(1, 15)}
    assert {name for name, t in TABLES.items() if t.figure} == {
        "convergence", "convergence-time", "projection", "pseudo", "refresh", "rsm-labels",
    }  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_every_table_fits_itself_and_builds_at_both_scales(name: str) -> None:
    paper = TABLES[name]
    labels = [row.label for row in paper.rows]
    assert len(set(labels)) == len(labels)
    for row in paper.rows:
        assert len(row.paper) == (0 if paper.figure else len(paper.parts))
        for part, cells in zip(paper.parts, row.paper, strict=False):
            assert len(cells) in (0, len(part.columns))
    for part in paper.parts:
        assert set(part.columns) <= {*COLUMNS}
        assert sum(
            c.startswith("rounds_to") and not c.endswith("fedavg") for c in part.columns
        ) <= len(part.targets)
    for claim in paper.claims:
        assert {claim.left, claim.right} <= {*labels}
        assert claim.sign in "<>="
        assert any(claim.column in ("", *part.columns) for part in paper.parts)
    assert bool(paper.claim) == bool(paper.figure)
    for size in ("cpu", "paper"):
        for scaled in scale.recipes(paper, size):
            assert len(scaled.recipe.compare) == len(paper.rows)
            assert bool(scaled.changes) == (size == "cpu")
            assert bool(scaled.why) == (size == "cpu")


@pytest.mark.skipif(not PAPER.exists(), reason="../shared/paper is not there")
def test_the_figures_are_the_papers() -> None:
    """The figures of a row (or of a column) stand in one of the paper's rows, in this order."""
    rows = [
        [float(n) for n in re.findall(r"\d+\.\d+|\d+", row)]
        for row in PAPER.read_text("utf-8").split(r"\\")
    ]
    for name, paper in TABLES.items():
        lines = [
            [number(c) for cells in row.paper for c in cells if c not in ("", "-")]
            for row in paper.rows
        ]
        if name in ("cost", "local-models"):  # which the paper has the other way round
            lines = [list(column) for column in zip(*lines, strict=True)]
        for line in lines:
            assert any(in_order(line, row) for row in rows), (name, line)


def number(cell: str | float) -> float:
    match = re.match(r"[\d.]+", str(cell))
    assert match
    return float(match[0])


def in_order(wanted: list[float], there: list[float]) -> bool:
    rest = iter(there)
    return all(number in rest for number in wanted)


def test_paper_scale_is_the_papers_setting() -> None:
    mnist, cifar, cifar100 = (s.recipe for s in scale.recipes(TABLES["main"], "paper"))
    assert (mnist.train.rounds, mnist.train.batch_size, mnist.train.lr) == (1000, 64, 0.001)
    assert (cifar.train.rounds, cifar.train.batch_size, cifar.train.lr, cifar.model.name) == (
        1000,
        32,
        0.01,
        "vgg11",
    )
    assert (cifar100.train.rounds, cifar100.train.momentum, cifar100.model.name) == (
        800,
        0.9,
        "cct",
    )
    lam = [
        next(s for s in r.compare if s.label == "FedBR").methods[0]["lam"]
        for r in (mnist, cifar, cifar100)
    ]
    assert lam == [1.0, 0.1, 1.0]
    (rows,) = [s.recipe.compare for s in scale.recipes(TABLES["lambda"], "paper")]
    assert [row.methods[0]["lam"] for row in rows] == [
        0.1,
        0.5,
        1.0,
    ]  # a row's own value is not the setting's
    both = scale.recipes(TABLES["combine"], "cpu")[1].recipe.compare
    assert all(
        variant.methods[0]["name"] == "mixup" for variant in both
    )  # the backbone on CIFAR100


def test_what_methods_have_other_than_in_the_paper_is_said_and_who_was_not_tuned_is_marked() -> (
    None
):
    mnist, cifar, _ = scale.recipes(TABLES["main"], "cpu")  # on rotated-digits and digits
    assert "fedprox.mu 0.001 (default 0.1)" in cifar.changes
    assert "moon.weight 0.01 (default 1)" in cifar.changes
    assert cifar.untuned == {"GroupDRO", "FedBR", "FedAvg + Mixup", "FedBR + Mixup"}
    assert mnist.untuned == cifar.untuned
    with_mixup = scale.recipes(TABLES["cost"], "cpu")[
        1
    ]  # which all rows have, so that it tells them not apart
    assert with_mixup.untuned == {"FedBR", "FedCM", "VHL"}
    assert all(not s.untuned for s in scale.recipes(TABLES["main"], "paper"))


def test_seeds_are_read_and_refused() -> None:
    assert scale.parse_seeds("3, 5") == [3, 5]
    assert scale.parse_seeds(None) is None
    for bad in ("", "a", "1,1", "-1"):
        with pytest.raises(InputError, match="--seeds"):
            scale.parse_seeds(bad)
    with pytest.raises(InputError, match="main"):
        table.load("mian")


def results_of(recipe: Recipe, curves: Mapping[str, Sequence[Sequence[float]]]) -> Results:
    """Make the results of runs with such accuracies, one curve for every seed of a variant."""
    runs = []
    for variant in recipe.compare:
        for seed, accuracies in enumerate(curves[variant.label]):
            run = RunStore(len(accuracies))
            run.note(split=Split("h", (1,), (1.0,)), model=ModelFacts("cnn", 1, "f"))
            for round, accuracy in enumerate(accuracies, 1):
                run.append(record(round, accuracy))
            runs.append(make_result(recipe, variant, seed, run))
    return Results(recipe, {}, runs)


def record(round: int, accuracy: float, seconds: float = 2.0, worst: float = 0.0) -> RoundRecord:
    return RoundRecord(
        round=round,
        clients=(0, 1),
        loss=1.0,
        accuracy=accuracy,
        accuracy_worst=worst or accuracy / 2,
        bytes_up=8_000_000,
        seconds_train=seconds,
    )


def test_figures_and_verdicts_by_hand() -> None:
    paper = TABLES["error-bars"]  # FedAvg, DANN +1.89, Mixup -0.40, GroupDRO -2.13, FedBR +4.27
    scaled = scale.recipes(paper, "cpu", [0, 1, 2])[0]
    curves = {
        "FedAvg": ([0.2, 0.3, 0.4], [0.1, 0.2, 0.3], [0.2, 0.3, 0.4]),
        "DANN": ([0.1, 0.2, 0.3], [0.0, 0.1, 0.2], [0.1, 0.2, 0.3]),  # 10 points below, always
        "Mixup": ([0.2, 0.3, 0.1], [0.2, 0.1, 0.3], [0.0, 0.0, 0.0]),  # -10, 0 and -20
        "GroupDRO": ([0.0, 0.0, 0.1], [0.0, 0.0, 0.0], [0.0, 0.0, 0.1]),
        "FedBR": ([0.3, 0.5, 0.7], [0.3, 0.5, 0.7], [0.3, 0.5, 0.7]),
    }
    results = results_of(scaled.recipe, curves)
    made = make_outcome(paper, 0, scaled, results)
    by_label = {entry.label.removesuffix(DAGGER): entry for entry in made.entries}
    judged = {label: entry.judgement for label, entry in by_label.items()}
    assert by_label["FedAvg"].ours == ["26.7 ± 5.8", "2 ± 1"]  # rounds 2, 3 and 2 to 30 %
    assert by_label["FedAvg"].paper == ["82.78 ± 0.38", "821"]
    assert judged["FedAvg"] is None
    assert str(judged["DANN"]) == (
        "behind, −10.0 (95 % interval −10.0 to −10.0; ahead on 0 of 3 seeds)"
    )
    assert judged["DANN"].direction == "opposite sign"
    assert str(judged["Mixup"]).startswith("undecided, −13.3 (95 % interval −51.3 to 24.6")
    assert judged["Mixup"].direction == "same sign"
    assert str(judged["FedBR"]).startswith("ahead, +23.3 (95 % interval 9.0 to 37.7; ahead on 3")
    assert judged["FedBR"].direction == "same sign"
    assert [str(claim) for claim in made.claims] == [
        "FedBR > FedAvg: ahead, +23.3 (95 % interval 9.0 to 37.7; ahead on 3 of 3 seeds); same sign"
    ]
    assert by_label["GroupDRO"].ours[1] == "-"
    comparison = compare(results)
    for label in ("DANN", "Mixup", "GroupDRO", "FedBR"):
        assert judged[label].difference == comparison.pair(label).top5  # the one judge's


def test_a_run_that_diverged_has_no_figure() -> None:
    paper = TABLES["error-bars"]
    scaled = scale.recipes(paper, "cpu", [0, 1, 2])[0]
    labels = [variant.label for variant in scaled.recipe.compare]
    results = results_of(scaled.recipe, dict.fromkeys(labels, [[0.3, 0.5]] * 3))
    lost = next(run for run in results.runs if run.label == "FedBR" and run.seed == 1)
    at = replace(lost.record, diverged_at=Divergence(2, 0, "x"))
    runs = [replace(run, record=at) if run is lost else run for run in results.runs]
    made = make_outcome(paper, 0, scaled, replace(results, runs=runs))
    assert made.entries[-1].ours == ["40.0 ± 0.0 (2 of 3)", "1 ± 0 (2 of 3)"]


def test_who_diverged_on_some_seed_is_not_ahead_in_the_table_either() -> None:
    paper = TABLES["error-bars"]
    scaled = scale.recipes(paper, "cpu", [0, 1, 2])[0]
    curves = {variant.label: [[0.5], [0.5], [0.5]] for variant in scaled.recipe.compare}
    curves["FedBR"] = [[0.7], [0.71], [0.72]]
    results = results_of(scaled.recipe, curves)
    lost = next(run for run in results.runs if run.label == "FedBR" and run.seed == 2)
    at = replace(lost.record, diverged_at=Divergence(2, 0, "x"))
    runs = [replace(run, record=at) if run is lost else run for run in results.runs]
    fedbr = make_outcome(paper, 0, scaled, replace(results, runs=runs)).entries[-1]
    assert str(fedbr.judgement).startswith("diverged on 1 of 3 seeds, +20.5 (95 % interval")


def test_three_seeds_with_gains_20_5_and_10_are_undecided_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal's last lines, the page and ``reproduce`` give one verdict and one interval."""
    paper = TABLES["error-bars"]
    scaled = scale.recipes(paper, "cpu", [0, 1, 2])[0]
    curves = {variant.label: [[0.5], [0.5], [0.5]] for variant in scaled.recipe.compare}
    curves["FedBR"] = [[0.7], [0.55], [0.6]]
    results = results_of(scaled.recipe, curves)
    fedbr = make_outcome(paper, 0, scaled, results).entries[-1]
    assert str(fedbr.judgement) == (
        "undecided, +11.7 (95 % interval −7.3 to 30.6; ahead on 3 of 3 seeds)"
    )
    assert fedbr.judgement is not None
    assert fedbr.judgement.direction == "same sign"
    show(compare(results))
    assert (
        "FedBR † against FedAvg is undecided: +11.7 points in the 5 best rounds (95 % interval "
        "−7.3 to 30.6; ahead on 3 of 3 seeds)."
    ) in capsys.readouterr().out


def judged(sign: str, gains: tuple[float, ...], column: str = "top5", base: float = 50.0) -> str:
    left = {seed: base + gain for seed, gain in enumerate(gains)}
    right = dict.fromkeys(range(len(gains)), base)
    judgement = judge(sign, COLUMNS[column], left, right)
    return f"{judgement.verdict}, {judgement.direction}"


@pytest.mark.parametrize(
    ("sign", "gains", "said"),
    [
        (">", (2.0,), "undecided, same sign"),
        (">", (2.0, 2.1), "ahead, same sign"),
        ("<", (2.0, 2.1), "ahead, opposite sign"),
        (">", (2.0, 3.5, 0.5), "undecided, same sign"),  # the interval is -1.7 to 5.7
        (">", (-2.0, -4.0, 1.0), "undecided, opposite sign"),
        (">", (0.0, 0.0, 0.0), "undecided, level"),
        ("=", (0.2, 0.2, 0.2), "ahead, within"),
        ("=", (-40.0, 10.0, 60.0), "undecided, open"),
        ("=", (5.0, 5.1, 5.2), "ahead, outside"),
        ("=", (0.0,), "undecided, open"),
    ],
)
def test_the_interval_decides_and_the_sign_is_a_word_of_its_own(
    sign: str, gains: tuple[float, ...], said: str
) -> None:
    assert judged(sign, gains) == said


def test_of_costs_less_is_ahead_and_a_fifth_is_level() -> None:
    assert judged("=", (0.1, 0.11, 0.12), "step_seconds", 1.0) == "behind, within"
    assert judged("=", (0.4, 0.41, 0.42), "step_seconds", 1.0) == "behind, outside"
    assert judged("<", (-3.0, -3.1, -3.2), "rounds_to") == "ahead, same sign"


def test_other_columns_by_hand() -> None:
    recipe = scale.recipes(TABLES["main"], "cpu")[0].recipe
    own, base = RunStore(2), RunStore(1)
    for store in (own, base):
        store.note(split=Split("h", (1,), (1.0,)), model=ModelFacts("cnn", 1, "f"))
    own.append(record(1, 0.2, 2.0, 0.1))
    own.append(record(2, 0.4, 4.0, 0.3))
    base.append(record(1, 0.3, worst=0.1))
    run, fedavg, empty = (
        make_result(recipe, recipe.compare[0], 0, store) for store in (own, base, RunStore(1))
    )

    def value(column: str, of: RunResult = run) -> float | None:
        return COLUMNS[column].value(of, fedavg, recipe)

    assert value("worst_top5") == pytest.approx(20)
    assert value("rounds_to_fedavg") == 2
    assert value("worst_rounds_to_fedavg") == 1
    assert value("parameters") == 1.0  # 8 MB of two clients: a million numbers each
    assert value("step_seconds") == 3.0 / recipe.train.local_steps
    assert value("local_top5") is None
    assert value("top5", empty) is None


def test_the_command_trains_and_writes_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [
        "reproduce",
        "lambda",
        "--seeds",
        "0",
        "--set",
        "train.rounds=2",
        "train.local_steps=2",
        "--workers",
        "1",
    ]
    assert call([*line, "--out", str(tmp_path / "o")]) == 0
    out = capsys.readouterr().out
    assert "Table 12" in out
    assert "train.rounds 2 (paper 1000)" in out
    assert "data.name digits (paper rotated-cifar10)" in out
    assert "About " in out
    rows = list(csv.DictReader((tmp_path / "o/table.csv").open()))
    assert {row["row"] for row in rows} == {"lambda = 0.1", "lambda = 0.5", "lambda = 1.0"}
    assert "64.92 ± 0.46" in (tmp_path / "o/table.md").read_text("utf-8")
    assert r"64.92 $\pm$ 0.46" in (tmp_path / "o/table.tex").read_text("utf-8")
    assert "64.92 ± 0.46" in (tmp_path / "o/report.html").read_text("utf-8")
    assert (tmp_path / "o/report/accuracy-by-seconds.svg").exists()
    assert call(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in TABLES)
    assert call(["reproduce", "tabel", "--out", str(tmp_path / "p")]) == 2
    assert not (tmp_path / "p").exists()


def test_a_verdict_stands_beside_the_figure_that_it_is_of() -> None:
    paper = TABLES["cost"]
    scaled = scale.recipes(paper, "cpu", [0, 1])[0]
    curves = {}
    for i, variant in enumerate(scaled.recipe.compare):
        curves[variant.label] = [[0.1 * (i + seed), 0.2] for seed in (0, 1)]
    made = make_outcome(paper, 0, scaled, results_of(scaled.recipe, curves))
    assert made.titles[0][1] == "million sent"
    header, rows = text.cells(made, paper.base)
    assert header[-2:] == ["million sent against FedAvg", "beside the paper"]
    assert all(len(row) == len(header) for row in rows)
    lines = list(text._csv_rows(paper, [made]))
    with_verdict = [line for line in lines if line.get("ours") and line["verdict"]]
    assert {line["our column"] for line in with_verdict} == {"million sent"}
    assert any(line["row"] == "FedBR > FedAvg in s/step" and line["verdict"] for line in lines)
    here = f"digits, cnn, width 0.25, {scaled.recipe.train.rounds} rounds, 2 seeds"
    assert lines[0]["ours on"] == here
    written = text._latex(paper, made)
    assert f"(ours: {here})" in written
    assert all(line.startswith("%") for line in written.partition(r"\begin{table}")[0].splitlines())
    assert text.note(paper.base, [made]).startswith("A row is ahead or behind if the 95 %")
    silent = [replace(entry, judgement=None) for entry in made.entries]
    quiet = replace(made, claims=[], entries=silent)
    assert text.note(paper.base, [quiet]).startswith(text.DIVERGED)


def test_what_the_rows_differ_in_cannot_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["reproduce", "lambda", "--set", "fedbr.lam=5"]) == 2
    assert "the rows of lambda say fedbr.lam themselves" in capsys.readouterr().err
    assert scale.recipes(TABLES["lambda"], "cpu", [0], ["fedbr.mu=0.1"])


def mnist(folder: Path, train: int, test: int) -> None:
    """Write IDX files of so many blank digits."""
    for prefix, count in (("train", train), ("t10k", test)):
        header = [0x803, count, 28, 28]
        images = b"".join(n.to_bytes(4, "big") for n in header) + bytes(28 * 28 * count)
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(images)
        labels = bytes(i % 10 for i in range(count))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(
            (0x801).to_bytes(4, "big") + count.to_bytes(4, "big") + labels
        )


def test_files_that_are_not_all_are_said(tmp_path: Path) -> None:
    mnist(tmp_path, 40, 20)
    scaled = scale.recipes(TABLES["tau-component2"], "paper", [0], [f"data.path={tmp_path}"])[0]
    assert scaled.changes == ["files have 40 of 60,000 training and 20 of 10,000 test records"]
    assert scaled.heading == "RotatedMNIST, here rotated-mnist, cnn, width 1, 1,000 rounds, 1 seed"


def test_more_seeds_keep_those_that_are_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o"
    line = [
        "reproduce",
        "lambda",
        "--set",
        "train.rounds=1",
        "train.local_steps=1",
        "--workers",
        "1",
        "--out",
        str(out),
    ]
    assert call([*line, "--seeds", "1"]) == 0
    models = {file: file.stat().st_mtime_ns for file in out.glob("*/runs/*/model.safetensors")}
    assert len(models) == 3
    assert call([*line, "--seeds", "0,1"]) == 0
    assert {file: file.stat().st_mtime_ns for file in models} == models
    assert len(list(out.glob("*/runs/*/model.safetensors"))) == 6
    capsys.readouterr()
    assert call([*line, "--seeds", "0"]) == 2  # which would hide one
    said = capsys.readouterr()
    assert "train.seeds is [0, 1] there, [0] here" in said.err
    assert said.out == ""


def test_a_forecast_grows_with_the_work(tmp_path: Path) -> None:
    (scaled,) = scale.recipes(TABLES["lambda"], "cpu", [0])
    train = scaled.recipe.train.model_copy(update={"rounds": 1000 * scaled.recipe.train.rounds})
    longer = scaled.recipe.model_copy(update={"train": train})
    check([Experiment(scaled.recipe, tmp_path / "o")], OneByOne())
    assert forecast.cpu_seconds(longer) > 10 * forecast.cpu_seconds(scaled.recipe)
    assert forecast.format_duration(59) == "59 seconds"
    assert forecast.format_duration(7200) == "2 hours"
    assert forecast.format_duration(1) == "a second"
