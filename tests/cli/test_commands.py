"""The command line as a user meets it: what it prints, what it refuses, what it leaves on disk."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from fedbr.cli.app import call, repeat_options
from fedbr.util.errors import InputError

Command = Callable[..., subprocess.CompletedProcess[str]]
QUICK = ("--set", "train.rounds=2", "train.local_steps=2", "model.width=0.1", "metrics.target=0.1")


def test_run_writes_the_folder_of_the_contract(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "o"
    done = command("run", "digits", *QUICK, "train.seeds=0,3", "--out", str(out), "--workers", "2")
    assert done.returncode == 0, done.stderr
    runs = re.findall(
        r"^(\w+), seed (\d): 2 of 2 rounds, accuracy .* %, ", done.stderr, re.MULTILINE
    )
    assert runs == [("FedAvg", "0"), ("FedBR", "0"), ("FedAvg", "3"), ("FedBR", "3")]
    assert "\x1b" not in done.stderr  # no bar in a pipe
    for word in (
        "FedAvg",
        "FedBR",
        "5 best rounds %",
        "worst client %",
        "rounds to 10 %",
        "speed-up",
        "MB/round",
        "s/round",
    ):
        assert word in done.stdout
    recipe = tomllib.loads((out / "recipe.toml").read_text())
    assert recipe["train"]["rounds"] == 2
    assert recipe["train"]["momentum"] == 0.0  # the whole recipe, defaults included
    assert {"python", "packages", "cores", "threads"} <= json.loads(
        (out / "environment.json").read_text()
    ).keys()
    results = json.loads((out / "results.json").read_text())
    assert results["recipe"] == recipe
    assert "top5" in " ".join(results["metrics"])
    assert [(r["label"], r["seed"]) for r in results["runs"]] == [
        ("FedAvg", 0),
        ("FedAvg", 3),
        ("FedBR", 0),
        ("FedBR", 3),
    ]
    for run in results["runs"]:
        assert run["rounds"] == 2
        assert run["diverged"] is False
        assert run["split"].keys() == {"hash", "effective_classes", "sizes"}
        assert run["model"].keys() == {"name", "parameters", "fingerprint"}
        assert run["accuracy"].keys() == {"top5", "final", "best", "worst_top5"}
        assert run["bytes"].keys() == {"up", "down"}
        assert run["seconds"].keys() == {"train", "evaluate", "total"}
        folder = out / "runs" / f"{run['label']}-{run['seed']}"
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [line["round"] for line in lines] == [1, 2]
        assert lines[0].keys() == {
            "round", "accuracy", "accuracy_worst", "accuracy_clients", "loss", "bytes_up",
            "bytes_down", "seconds_train", "seconds_evaluate", "clients",
        }  # fmt: skip
        assert all(
            k.startswith(("encoder.", "classifier."))
            for k in load_file(folder / "model.safetensors")
        )
        assert json.loads((folder / "checkpoint.json").read_text())["round"] == 2
    same_split = {r["seed"]: r["split"]["hash"] for r in results["runs"]}
    assert all(r["split"]["hash"] == same_split[r["seed"]] for r in results["runs"])
    assert same_split[0] != same_split[3]
    assert not [p for p in out.rglob("*") if p.suffix in (".pkl", ".pt", ".pth")]

    before = (out / "results.json").read_text()
    again = command("run", "digits", *QUICK, "train.seeds=0,3", "--out", str(out))
    assert again.returncode == 0
    assert (out / "results.json").read_text() == before  # nothing was trained again

    page = command("report", str(out))
    assert page.returncode == 0
    html = (out / "report.html").read_text()
    assert html.startswith("<!doctype html>")
    assert "FedBR" in html
    assert 'src="http' not in html


WRONG = [
    (("--set", "train.bach_size=3"), "batch_size"),
    (("--set", "tran.rounds=3"), "'train'"),
    (("--methods", "fedavg", "fedbrr"), "'fedbr'"),
    (("--set", "data.alpha=0"), "data.alpha = 0"),
    (("--set", "data.alpha=-1"), "data.alpha = -1"),
    (("--set", "data.alpha=nan"), "data.alpha = nan"),
    (("--set", "data.clients=5000", "train.clients_per_round=5"), "data.clients = 5000"),
    (("--set", "data.clients=0"), "data.clients = 0"),
    (("--set", "train.batch_size=0"), "train.batch_size = 0"),
    (("--set", "train.rounds=-1"), "train.rounds = -1"),
    (("--set", "train.rounds=many"), "train.rounds = 'many'"),
    (("--set", "train.seeds=1,1"), "duplicate"),
    (("--set", "metrics.extra=foo"), "metrics.extra = 'foo'"),
    (("--set", "fedbr.lam=-1"), "fedbr.lam = -1"),
    (("--set", "fedbr.mean_of=1"), "fedbr.mean_of = 1"),
    (("--set", "fedbr.mean_of=500"), "fedbr.mean_of = 500"),
    (("--set", "fedbr.pseudo=mixture"), "data.proxy"),
    (("--set", "mixup.alpha=1", "--methods", "fedavg"), "mixup"),
    (("--set", "data.partition=ldda"), "'lda'"),
    (("--set", "model.name=cn"), "'cnn'"),
    (("--set", "model.name=no.such:thing"), "no.such:thing"),
    (("--set", "rounds"), "train.rounds=5"),
    (("--set", "name=.."), "name = '..'"),
    (("--set", "train.rounds=true"), "train.rounds = True"),
    (("--set", "train.batch_size=1000000000000000"), "train.batch_size"),
    (("--set", "data.path=here"), "data.path = 'here'"),
    (("--set", "model.name=os:getcwd"), "os:getcwd"),
    (("--set", "model.name=:x"), ":x"),
    (("no-such-recipe",), "digits"),
    (("no-such-file.toml",), "no-such-file.toml"),
    (("--workers", "0"), "0"),
    (("--no-such-option",), "--no-such-option"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=[" ".join(a) for a, _ in WRONG])
def test_wrong_input_gets_one_line_and_exit_code_2_and_writes_nothing(
    arguments: tuple[str, ...],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(["run", *arguments, "--out", "o"]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert len(error.splitlines()) <= 2
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())


def test_a_recipe_that_is_not_toml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.toml").write_text("rounds: 5\n")
    assert call(["run", str(tmp_path / "r.toml"), "--out", str(tmp_path / "o")]) == 2
    assert "not TOML" in capsys.readouterr().err
    (tmp_path / "r.toml").write_bytes(b"\xff\xfe\x00")
    assert call(["run", str(tmp_path / "r.toml"), "--out", str(tmp_path / "o")]) == 2
    (tmp_path / "r.toml").write_text('name = "x"\n')
    assert call(["run", str(tmp_path / "r.toml"), "--out", str(tmp_path / "o")]) == 2
    assert "[[compare]]" in capsys.readouterr().err
    assert call(["run", str(tmp_path), "--out", str(tmp_path / "o")]) == 2
    assert not (tmp_path / "o").exists()


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_folders_that_are_not_for_us(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "o"
    assert call(["run", *QUICK, "--methods", "fedavg", "--out", str(out), "--workers", "1"]) == 0
    before = tree(out)
    assert call(["run", *QUICK, "train.lr=0.5", "--methods", "fedavg", "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "train.lr is 0.01 there, 0.5 here" in error
    assert "--fresh" in error
    assert call(["run", *QUICK, "--methods", "fedbr", "--out", str(out)]) == 2  # other variants
    assert tree(out) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    for fresh in ((), ("--fresh",)):
        assert call(["run", *QUICK, "--out", str(tmp_path / "mine"), *fresh]) == 2
        assert tree(tmp_path / "mine") == {str(tmp_path / "mine" / "thesis.tex"): b"years of work"}
    (tmp_path / "file").write_text("")
    assert call(["run", *QUICK, "--out", str(tmp_path / "file")]) == 2
    assert call(["run", *QUICK, "--out", str(tmp_path / "file" / "below")]) == 2
    assert call(["report", str(tmp_path / "mine")]) == 2
    assert (
        call(
            [
                "run",
                *QUICK,
                "train.lr=0.5",
                "--methods",
                "fedavg",
                "--out",
                str(out),
                "--workers",
                "1",
                "--fresh",
            ]
        )
        == 0
    )
    assert tomllib.loads((out / "recipe.toml").read_text())["train"]["lr"] == 0.5


def test_a_place_where_nothing_can_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/proc/self").exists():
        pytest.skip("needs a file system that refuses even root")
    assert call(["run", *QUICK, "--out", "/proc/self/fedbr"]) == 2
    assert "cannot write" in capsys.readouterr().err


DAMAGES: dict[
    str, tuple[Callable[[Path], object], str]
] = {  # what is done to a run of two rounds, and what is said
    "no checkpoint": (
        lambda run: (run / "checkpoint.safetensors").unlink(),
        r"the 2 rounds .* are lost \(it is not there",
    ),
    "half a checkpoint": (
        lambda run: os.truncate(run / "checkpoint.safetensors", 100),
        "checkpoint.safetensors: cannot",
    ),
    "no rounds": (
        lambda run: (run / "metrics.jsonl").write_text(""),
        "metrics.jsonl lacks rounds before it",
    ),
    "half a round": (
        lambda run: os.truncate(run / "metrics.jsonl", 400),
        "metrics.jsonl lacks rounds before it",
    ),
    "other rounds": (
        lambda run: (run / "metrics.jsonl").write_text('{"a": 1}\n'),
        "metrics.jsonl lacks rounds",
    ),
    "words for a round's numbers": (
        lambda run: (run / "metrics.jsonl").write_text(
            (run / "metrics.jsonl").read_text().replace('"loss": ', '"loss": "x", "was": ')
        ),
        r"metrics.jsonl: cannot be read .*loss = 'x': expected a number",
    ),
    "no facts": (lambda run: (run / "run.json").write_text("{"), "run.json: cannot be read"),
    "no places": (
        lambda run: (run.parents[1] / "environment.json").write_text("{"),
        "environment.json: cannot be read",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_named_and_kept(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o"
    line = ["run", *QUICK, "--methods", "moon", "--out", str(out), "--workers", "1"]
    assert call(line) == 0
    run = out / "runs" / "Moon-0"
    wanted = (run / "model.safetensors").read_bytes()
    harm, said = DAMAGES[damage]
    if "round" not in damage:
        (run / "model.safetensors").unlink()
    harm(run)
    before = {path: path.read_bytes() for path in (run / "metrics.jsonl", *run.glob("checkpoint*"))}
    capsys.readouterr()
    assert call(line) == 1
    (complaint,) = capsys.readouterr().err.splitlines()
    assert re.search(said, complaint)
    assert {path: path.read_bytes() for path in before} == before
    call(["report", str(out)])  # makes the page of what there is, or says the same in one line
    assert len(capsys.readouterr().err.splitlines()) <= 1
    assert call([*line, "--fresh"]) == 0
    assert (run / "model.safetensors").read_bytes() == wanted


def test_a_recipe_of_the_users_is_not_a_result_folder(tmp_path: Path) -> None:
    mine = tmp_path / "exp" / "recipe.toml"
    mine.parent.mkdir()
    mine.write_text('[[compare]]\nlabel = "a"\nmethods = []\n')
    before = tree(tmp_path)
    for fresh in ((), ("--fresh",)):
        assert call(["run", str(mine), "--out", str(mine.parent), *fresh]) == 2
    assert tree(tmp_path) == before


def test_what_a_kill_during_a_fresh_start_may_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o"
    line = ["run", *QUICK, "--methods", "fedavg", "--out", str(out), "--workers", "1"]
    assert call(line) == 0
    (out / "runs" / "notes.txt").write_text("mine")
    run = out / "runs" / "FedAvg-0"
    wanted, unlink = (run / "model.safetensors").read_bytes(), Path.unlink
    kills = 0
    for moment in range(100):
        left = iter(range(moment))

        def killed(path: Path, missing_ok: bool = False, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise SystemError("killed")
            unlink(path, missing_ok)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", killed)
            try:
                call([*line, "--fresh"])
                break
            except SystemError:
                kills += 1
        assert call(line) == 0
        assert (run / "model.safetensors").read_bytes() == wanted
        assert json.loads((out / "results.json").read_text())["runs"][0]["rounds"] == 2
    assert kills > 10
    assert call([*line, "--fresh"]) == 0
    assert (run / "model.safetensors").read_bytes() == wanted
    assert (out / "runs" / "notes.txt").read_text() == "mine"
    (run / "model.safetensors").unlink()
    (run / "metrics.jsonl").unlink()
    capsys.readouterr()
    assert call(line) == 1
    assert "metrics.jsonl lacks rounds" in capsys.readouterr().err
    assert call([*line, "--fresh"]) == 0
    (out / "recipe.toml").write_text((out / "recipe.toml").read_text() + "\nbroken =")
    for again in (line, ["report", str(out)]):
        assert call(again) == 2
        assert "not TOML" in capsys.readouterr().err


def test_labels_with_brackets_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        '[model]\nname = "mlp"\n[train]\nrounds = 1\nlocal_steps = 1\n'
        + "".join(
            f'[[compare]]\nlabel = "{name}"\n'
            for name in ("a[/b]", "[lr=1]", "a/b", "a:b", "a_b", "A_B")
        )
    )
    assert call(["run", str(recipe), "--out", str(tmp_path / "o"), "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "a[/b]" in shown
    assert "[lr=1]" in shown
    folders = [p.name.casefold() for p in (tmp_path / "o" / "runs").iterdir()]
    assert len(set(folders)) == 6


def test_divergence_stops_one_run_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        '[data]\nname = "digits"\n[model]\nname = "mlp"\n'
        "[train]\nrounds = 3\nlocal_steps = 3\nlr = 0.01\n"
        '[[compare]]\nlabel = "explodes"\nmethods = [{ name = "fedbr", lam = 1e30 }]\n'
        '[[compare]]\nlabel = "FedAvg"\nmethods = []\n'
    )
    out = tmp_path / "o"
    for _ in range(2):  # the second time nothing is trained again
        assert call(["run", str(recipe), "--out", str(out), "--workers", "1"]) == 1
        shown = capsys.readouterr().out
        assert "diverged: seed 0, round" in shown
        exploded, fine = json.loads((out / "results.json").read_text())["runs"]
        assert exploded["diverged"] is True
        assert exploded["diverged_at"].keys() == {"round", "client", "what"}
        assert fine["diverged"] is False
        assert fine["rounds"] == 3
    assert call(["report", str(out)]) == 0


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    expected = {
        "methods": ("fedavg", "fedbr", "lam = 0.1", "ICML 2023"),
        "data": ("digits", "rotated-digits"),
        "models": ("cnn", "mlp", "width = 1.0", "package.module:factory"),
        "partitions": ("iid", "lda", "lda-prior", "classwise", "shards", "quantity"),
        "recipes": ("digits", "rotated-digits"),
    }
    for kind, words in expected.items():
        assert call(["list", kind]) == 0
        shown = capsys.readouterr().out
        assert all(word in shown for word in words)
    assert call(["list", "recipes"]) == 0
    keys = capsys.readouterr().out
    for words in (
        "[data]",
        "alpha = 0.1",
        "[model]",
        "fedbr list models",
        "[train]",
        "lr = 0.01",
        "[[compare]]",
        "label",
    ):
        assert words in keys
    assert call(["list", "model"]) == 2
    assert "did you mean 'models'?" in capsys.readouterr().err


def test_help_is_quick_because_torch_waits() -> None:
    code = (
        "import sys; from fedbr.cli.app import call; "
        "call(['--help']); sys.exit('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode
        == 0
    )


def test_several_values_of_one_option() -> None:
    assert repeat_options(["run", "digits", "--methods", "a", "b+c", "--out", "o"]) == [
        "run", "digits", "--methods", "a", "--methods", "b+c", "--out", "o",
    ]  # fmt: skip
    assert repeat_options(["run", "--set", "a=1", "b=2", "digits"]) == [
        "run",
        "--set",
        "a=1",
        "--set",
        "b=2",
        "digits",
    ]
    assert repeat_options(["run", "--set"]) == ["run", "--set"]
    assert repeat_options(["bench", "--workload", "mlp", "cnn"]) == [
        "bench",
        "--workload",
        "mlp",
        "--workload",
        "cnn",
    ]
    with pytest.raises(InputError, match="--set: expected a value before --out"):
        repeat_options(["run", "--set", "--out", "o"])


def test_ctrl_c_while_libraries_load(tmp_path: Path) -> None:
    for wait in (0.3, 0.9, 1.7, 2.6):
        line = [sys.executable, "-m", "fedbr", "run", "--out", "o", "--workers", "1"]
        process = subprocess.Popen(
            line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "Traceback" not in error
        assert "Go on with: fedbr run --out o --workers 1" in error


@pytest.mark.parametrize(
    ("workers", "number"), [("1", signal.SIGINT), ("2", signal.SIGINT), ("2", signal.SIGTERM)]
)
def test_ctrl_c_ends_soon_says_how_to_go_on_and_keeps_everything(
    workers: str, number: int, tmp_path: Path
) -> None:
    line = [
        sys.executable,
        "-m",
        "fedbr",
        "run",
        "--set",
        "train.rounds=1000",
        "--out",
        "o",
        "--workers",
        workers,
    ]
    process = subprocess.Popen(
        line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    metrics = tmp_path / "o" / "runs" / "FedAvg-0" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    start = time.monotonic()
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert time.monotonic() - start < 2
    assert process.returncode == 130
    assert "Traceback" not in error
    assert f"fedbr run --set train.rounds=1000 --out o --workers {workers}" in error
    assert json.loads((tmp_path / "o" / "results.json").read_text())["runs"][0]["rounds"] >= 2


def test_a_second_process_is_kept_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [
        sys.executable,
        "-m",
        "fedbr",
        "run",
        "--set",
        "train.rounds=1000",
        "--out",
        str(tmp_path / "o"),
        "--workers",
        "1",
    ]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        while not (tmp_path / "o" / "recipe.toml").exists():
            time.sleep(0.05)
        assert call([*line[3:]]) == 2
        assert "another fedbr process" in capsys.readouterr().err
        assert call([*line[3:], "--fresh"]) == 2
    finally:
        process.kill()
        process.communicate()


def test_data_check_and_show(command: Command, tmp_path: Path) -> None:
    checked = command("data", "check", "digits")
    assert checked.returncode == 0, checked.stderr
    for word in ("1,438 samples of 1 x 8 x 8", "359 samples", "10 of 10 classes", "sha256"):
        assert word in checked.stdout
    shown = command(
        "data", "show", "rotated-digits", "--clients", "3", "--alpha", "0.5", cwd=tmp_path
    )
    assert shown.returncode == 0, shown.stderr
    assert "rotated-digits: 3 clients, lda-prior (alpha 0.5), seed 0; split " in shown.stdout
    assert "client 1, 15°      479 samples, " in shown.stdout
    assert shown.stdout.count("effective classes") == 3
    assert (tmp_path / "rotated-digits.png").read_bytes().startswith(b"\x89PNG")


def test_data_show_of_many_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [
        "data",
        "show",
        "digits",
        "--clients",
        "1000",
        "--partition",
        "shards",
        "--shards-per-client",
        "1",
    ]
    assert call([*line, "--out", str(tmp_path / "a.svg")]) == 0
    shown = capsys.readouterr().out
    assert "digits: 1,000 clients, shards (1 per client), seed 0" in shown
    assert shown.count("effective classes") == 20
    assert "... and 980 more" in shown
    assert "<!-- of 1,000 -->" in (tmp_path / "a.svg").read_text()


def test_data_show_of_a_recipe_and_of_own_data(
    command: Command,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y = np.array(["cat", "dog", "owl"] * 20)
    client = np.array(["ward a", "ward b"] * 30)
    np.savez(tmp_path / "pets.npz", x=np.random.default_rng(0).random((60, 5)), y=y, client=client)
    (tmp_path / "mine.toml").write_text(
        'data = { name = "npz", path = "pets.npz", partition = "lda", clients = 4, alpha = 3.0 }\n'
        'train = { seeds = [5], clients_per_round = 4 }\n[[compare]]\nlabel = "S"\nmethods = []\n'
    )
    shown = command("data", "show", "mine.toml", "--clients", "3", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "pets.npz: 3 clients, lda (alpha 3), seed 5" in shown.stdout
    assert (tmp_path / "mine.png").exists()
    warning = "these data name 2 clients of their own; lda deals their samples anew"
    assert shown.stderr.startswith(f"fedbr: {warning}")
    assert shown.stderr.count("\n") == 1
    monkeypatch.chdir(tmp_path)
    assert call(["data", "show", "npz", "--path", "pets.npz", "--partition", "domains"]) == 0
    assert "  ward b " in capsys.readouterr().out
    assert (tmp_path / "pets.png").exists()
    assert call(["data", "check", "npz", "--path", "pets.npz"]) == 0
    checked = capsys.readouterr().out
    assert "classes cat, dog, owl" in checked
    assert "ward a (24), ward b (24)" in checked


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("data", "check", "mnits"), "'mnits' is unknown"),
        (("data", "check", "rotated-mnist", "--path", "no/such/folder"), "fedbr data get mnist"),
        (("data", "show", "digits", "--partition", "domains"), "these data name no clients"),
        (("data", "show", "digits", "--alpha", "0"), "data.alpha = 0"),
        (("data", "show", "digits", "--out", "x.txt"), ".png or .svg"),
        (("data", "show", "digits", "--unseen", "photo"), "digits has no use for it"),
        (("data", "get", "pacs"), "<domain>/<class>/<image>"),
        (("data", "get", "nonsense"), "nonsense"),
        (("run", "digits", "--methods", "local+fedbr"), "with 'local' clients train alone"),
        (("run", "digits", "--methods", "mixup+mixup"), "duplicate"),
        (("run", "digits", "--methods", "moon", "--set", "moon.tau=0"), "moon.tau = 0"),
        (("bench", "--methods", "fedbrr"), "fedbrr"),
        (("run", "digits", "--set", "fedbrr.lam=1"), "did you mean 'fedbr'?"),
        (("run", "digits", "--methods", "scaffold", "--set", "scaffold.x=1"), "there are no such"),
        (("data", "check", "digits", "--path", "x"), "has no use for it"),
        (("data", "get", "digits"), "digits comes with scikit-learn: nothing to download"),
    ],
)
def test_wrong_lines_about_methods_and_data(
    command: Command, tmp_path: Path, line: tuple[str, ...], words: str
) -> None:
    done = command(*line, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("data", "check", "cifar10"), "cifar10 is read as clean-cifar10 or rotated-cifar10"),
        (("data", "show", "mnist"), "mnist is read as rotated-mnist"),
        (("data", "show", "tunin"), "did you mean 'tuning'?"),
        (
            ("data", "check", "pacs", "--path", "."),
            "fedbr data get pacs, or say where the files are: data.path or $FED",
        ),
        (("data", "show", "digits", "--proxy", "nothing"), "allowed: noise, photos"),
        (("data", "show", "digits", "--rotation", "1"), "digits has no use for it"),
        (("data", "show", "digits", "--out", "no/such/a.png"), "there is no folder no/such"),
    ],
)
def test_wrong_lines_about_data(
    line: tuple[str, ...],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(line) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_list_methods_has_parameters_bytes_and_papers(command: Command) -> None:
    done = command("list", "methods")
    assert done.returncode == 0
    for words in (
        "mu = 0.1",
        "1.00x FedAvg up, 2.00x down",
        "once 528.0 kB down",
        "paper: Karimireddy et al.",
    ):
        assert words in done.stdout


def test_a_run_with_own_data_and_natural_clients(command: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "mine.npz",
        x=rng.random((60, 5)),
        y=np.arange(60) % 3,
        client=np.arange(60) // 20,
    )
    (tmp_path / "mine.toml").write_text(
        'data = { name = "npz", path = "mine.npz", partition = "domains" }\n'
        'model = { name = "mlp" }\ntrain = { rounds = 2, local_steps = 2 }\n'
        '[[compare]]\nlabel = "S"\nmethods = ["mixup", "scaffold"]\n'
    )
    done = command("run", "mine.toml", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "npz: 48 samples, 3 clients, domains" in done.stdout
    assert command("report", "out", cwd=tmp_path).returncode == 0


def test_methods_may_be_written_as_tables_print_them() -> None:
    from fedbr.recipe import load as config

    assert config.load("digits", variants=["Mixup + FedBR"]) == config.load(
        "digits", variants=["mixup+fedbr"]
    )


def test_other_data_under_the_same_name_are_noticed(command: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 5)), np.arange(60) % 3
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    (tmp_path / "r.toml").write_text(
        'data = { name = "npz", path = "mine.npz" }\nmodel = { name = "mlp" }\n'
        'train = { rounds = 2, local_steps = 2 }\n[[compare]]\nlabel = "S"\nmethods = []\n'
    )
    line = ("run", "r.toml", "--out", "out")
    assert command(*line, cwd=tmp_path).returncode == 0
    np.savez(tmp_path / "mine.npz", x=1 - x, y=y)
    for _ in ("finished", "as if it had been stopped before the end"):
        done = command(*line, cwd=tmp_path)
        assert done.returncode == 2, done.stdout + done.stderr
        assert "began with other data" in done.stderr
        (tmp_path / "out" / "runs" / "S-0" / "model.safetensors").unlink(missing_ok=True)
