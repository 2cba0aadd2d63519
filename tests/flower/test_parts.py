"""Messages, settings, keys, rehearsal and the command line of a federation, each by itself."""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fedbr
from fedbr.backends.serial import SerialBackend
from fedbr.cli.app import call
from fedbr.core.evaluation import TestPlan
from fedbr.core.records import RoundRecord
from fedbr.core.round import play_round
from fedbr.core.server import Server
from fedbr.core.wire import Reply
from fedbr.flower import daemon
from fedbr.flower.app_dir import write_app
from fedbr.flower.audit import audit
from fedbr.flower.facts import ClientFacts, Common, SiteFacts, merge_common
from fedbr.flower.launch import check_address, node_config
from fedbr.flower.messages import Answer, Assignment, Request, ranges
from fedbr.flower.node_files import NodeFiles
from fedbr.flower.programs import Programs
from fedbr.flower.rehearsal import Rehearsal, rehearse
from fedbr.flower.settings import RUN, read_ids, read_node_settings, read_run_settings
from fedbr.flower.submit import RUN as RUN_NAME
from fedbr.flower.submit import follow, programs_in
from fedbr.flower.validate import find_problem
from fedbr.methods import METHODS, build
from fedbr.models import build as build_model
from fedbr.recipe import load as config
from fedbr.recipe.schema import TrainConfig
from fedbr.run.plan import Experiment, PlannedRun
from fedbr.run.setup import assemble
from fedbr.run.watch import Watcher
from fedbr.util.errors import InputError, RunError
from training import train_recipe

VARIANTS = [
    *(name for name in METHODS if name != "local"),
    "mixup+fedbr+fedcm",
    "fedmix+scaffold+fedntd+groupdro",
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_rehearsal_knows_what_every_method_sends(
    federation: fedbr.Federation, variant: str
) -> None:
    """Real replies, of clients of all sizes, have the names, types and shapes that the rehearsal
    foresaw.
    """
    model = build_model("mlp", {"hidden": (7,)}, federation.shape, federation.num_classes)
    methods = [
        build(name, {"mean_of": 4} if name in ("fedbr", "naivemix", "fedmix") else {})
        for name in variant.split("+")
    ]
    setup = assemble(
        model,
        methods,
        federation,
        TrainConfig(local_steps=2, batch_size=4, dtype="float64"),
        1,
    )
    expected, server = rehearse(setup), Server(setup)
    real = SerialBackend(setup, federation.train, TestPlan.empty(), 2)
    played = play_round(server, real, 1, range(6), everybody=range(6))
    for replies in played.contributions.values():
        refused = [find_problem(reply, "contribute", expected) for reply in replies]
        assert refused == [None] * len(replies)
    assert [find_problem(reply, "train", expected) for reply in played.replies] == [None] * 6


def test_answers_carry_replies_and_refuse_nonsense() -> None:
    reply = Reply(3, 10, {"model": {"w": torch.arange(3.0)}}, {"loss": 0.5})
    answer = Answer((3, 4), round=2, failed={4: "no"}, held=frozenset("a"), replies=[reply])
    again = Answer.read(answer.write())
    (same,) = again.replies
    assert (again.clients, again.round, again.failed, again.held) == ((3, 4), 2, {4: "no"}, {"a"})
    assert (same.client, same.num_examples, same.metrics) == (3, 10, {"loss": 0.5})
    assert torch.equal(same.payload["model"]["w"], reply.payload["model"]["w"])
    assert Answer.read("no answer in time").error == "no answer in time"
    assert "is invalid" in (Answer.read({"answer": b"nonsense"}).error or "")


def test_requests_are_read_as_they_are_written() -> None:
    recipe = config.load("digits", [], ["scaffold"])
    common = Common((1, 8, 8), "float32", ("cat", "dog"))
    run = Assignment("abc", variant=0, seed=3, block_size=4, clients=2, common=common)
    request = Request("train", recipe, run, "c0ffee", 5, {0: 4, 1: 0}, ("x",), (), ("right",))
    assert Request.read(request.write({"payload": b""})) == request
    assert Request.read(Request("who", recipe).write()) == Request("who", recipe)


@pytest.mark.parametrize(
    ("numbers", "text"), [([3], "3"), ([0, 1, 2], "0-2"), ([7, 0, 1], "0-1, 7"), ([], "")]
)
def test_ranges_are_read_as_they_are_written(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text
    if text:
        assert read_ids(text) == tuple(sorted(numbers))


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1", "0-2,1", "0-9999999"])
def test_strange_ids_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="ids = "):
        read_ids(text)


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"min-share": 1.5}, "min-share"),
        ({"wait": 0}, "wait"),
        ({"reply-timeout": "soon"}, "reply-timeout"),
        ({"fresh": "yes"}, "fresh"),
        ({"recipe": "no\nrecipe"}, "not TOML"),
        ({"rounds": 3}, "run config"),
        ({"set": "train.rounds=0"}, "train.rounds"),
    ],
)
def test_a_strange_run_config_is_refused_in_one_line(config: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word) as error:
        read_run_settings(config)
    assert "\n" not in str(error.value)


def test_node_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    assert read_node_settings({"partition-id": 4, "num-partitions": 9}).clients == (4,)
    assert read_node_settings({"ids": "0-3"}).state_dir == tmp_path / "fedbr" / "clients-0-3"
    for strange in (
        {},
        {"ids": "0", "data-path": str(tmp_path / "none")},
        {"ids": "0", "workers": 0},
        {"id": 3},
    ):
        with pytest.raises(InputError):
            read_node_settings(strange)


def test_states_keep_the_round_they_started_from(tmp_path: Path) -> None:
    files = NodeFiles(tmp_path / "abc")
    state = {"m": {"x": torch.arange(4)}}
    for round, before in ((1, 0), (2, 1), (3, 2), (4, 2)):
        files.save(7, round, state, before)
    assert sorted(file.name for file in (tmp_path / "abc").iterdir()) == [
        "client-7.2.safetensors",
        "client-7.4.safetensors",
    ]
    assert files.load(7, 3) is None
    (tmp_path / "abc" / "client-7.4.safetensors").write_bytes(b"half")
    assert files.load(7, 4) is None
    assert files.load(7, 2) is not None


def test_sites_that_do_not_fit_together_are_refused() -> None:
    one = Common((1, 8, 8), "uint8", ("2", "10"))
    other = Common((1, 8, 8), "uint8", ("cat", "1"))
    assert merge_common({0: one, 1: other}).classes == ("1", "2", "10", "cat")
    with pytest.raises(InputError, match=r"client 1: samples of shape \[3, 8, 8\]"):
        merge_common({0: one, 1: Common((3, 8, 8), "uint8", ("2",))})


def test_the_app_is_one_file_that_holds_the_recipe(tmp_path: Path) -> None:
    recipe = config.load("digits", ["train.rounds=3"])
    values = tomllib.loads(write_app(tmp_path / "app", recipe).read_text())
    written = values["tool"]["flwr"]["app"]["config"]
    assert written.keys() == RUN.keys()
    assert read_run_settings(written).recipe == recipe
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(InputError, match="not created by fedbr"):
        write_app(tmp_path / "mine", recipe)


def test_audit_lists_every_byte_that_leaves_a_client() -> None:
    recipe = config.load("digits", [], ["scaffold", "fedbr"])
    scaffold, ours = (audit(recipe, variant) for variant in recipe.compare)
    sent = {(item.when, item.what): item.bytes for item in scaffold.items}
    assert sent["each round", "scaffold"] == sent["each round", "model"] == scaffold.kept
    assert ("each round", "fedbr") in {(item.when, item.what) for item in ours.items}


def test_nobody_listens_to_the_world_by_accident() -> None:
    for host, keys, insecure in (
        ("127.0.0.1", None, False),
        ("0.0.0.0", Path("k"), False),
        ("0.0.0.0", None, True),
    ):
        check_address(host, keys, insecure)
    with pytest.raises(InputError, match="everybody can read and join"):
        check_address("0.0.0.0", None, False)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such sockets")
def test_a_process_that_stays_answers_and_its_death_is_no_loss(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("flwr", reason="pip install 'fedbr[flower]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(daemon.SOCKET, "s")
    process = subprocess.Popen([sys.executable, "-m", "fedbr.flower.daemon", "s"])
    try:
        while not Path("s").exists():
            assert process.poll() is None
        blobs = daemon.reply_in_daemon({"request": b"nonsense"}, {"ids": "3"}, dict)
        answer = Answer.read(blobs)
        assert answer.clients == (3,)
        assert answer.error is not None
    finally:
        process.kill()
        process.wait()
    here = {"answer": b"here"}
    assert daemon.reply_in_daemon({"request": b""}, {}, lambda: here) == here


def test_keys_are_made_once_and_kept_secret(tmp_path: Path) -> None:
    keys = pytest.importorskip("fedbr.flower.keys", reason="pip install 'fedbr[flower]'")
    made = keys.make_keys(tmp_path / "k", ["fl.example.org", "10.0.0.5"], [0, 1])
    assert {"ca.crt", "ca.key", "server.crt", "server.key", "node-0", "node-0.pub"} <= {
        file.name for file in made
    }
    assert [f.name for f in made if f.suffix in (".key", "") and f.stat().st_mode & 0o077] == []
    assert keys.make_keys(tmp_path / "k", [], [0, 1]) == []
    assert {f.name for f in keys.make_keys(tmp_path / "k", [], [2])} == {
        "node-2", "node-2.pub", "node-2.tls.crt", "node-2.tls.key",
    }  # fmt: skip


def test_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(["flower", "init", "app", "--recipe", "digits", "--set", "train.rounds=3"]) == 0
    assert "flwr run app NAME" in capsys.readouterr().out
    own = '[data]\nname = "npz"\nclients = 2\n[[compare]]\nlabel = "FedAvg"\n'
    (tmp_path / "own.toml").write_text(own)
    np.savez(
        tmp_path / "s.npz", x=np.random.default_rng(0).random((40, 1, 8, 8)), y=np.arange(40) % 2
    )
    assert call(["flower", "audit", "own.toml", "--data", "s.npz"]) == 0
    assert "the client's weights after local training" in capsys.readouterr().out
    for line, words in (
        (("server", "--host", "0.0.0.0"), "--keys"),
        (("node",), "--id K"),
        (("node", "--id", "1", "--data", "none.npz"), "there is no such file"),
        (("run", "digits", "--min-share", "2"), "min-share"),
        (("run", "digits", "--methods", "local"), "use fedbr run"),
        (("run", "digits", "--nodes", "11"), "--nodes 11: between 1 and 10"),
        (("run", "own.toml"), "--superlink HOST:PORT says where"),
        (("run", "own.toml", "--set", "metrics.bias_every=5"), "metrics.bias_every = 5: "),
        (("run", "digits", "--superlink", "127.0.0.1:1", "--keys", "none"), "has no ca.crt"),
        (("audit", "own.toml"), "data.path = ''"),
    ):
        assert call(["flower", *line]) == 2
        errors = capsys.readouterr().err
        assert words in errors
        assert errors.count("\n") == 1


def test_the_core_works_without_flower(tmp_path: Path) -> None:
    """With flwr out of reach, all but its own commands is imported and runs."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['flwr', 'cryptography']))\n"
        "import fedbr.flower.server, fedbr.flower.site, fedbr.flower.launch\n"
        "from fedbr.cli.app import call\n"
        "run = 'run digits --methods fedbr --workers 1 --out o --set train.rounds=1 '\n"
        "run += 'train.local_steps=1 fedbr.lazy=4'\n"
        "assert call(run.split()) == 0\n"
        "assert call(['flower', 'audit', 'digits']) == 0\n"
        "assert call(['flower', 'keys', 'k']) == 2"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    missing = "fedbr: fedbr flower: cryptography is not installed; pip install 'fedbr[flower]'"
    progress, last = done.stderr.splitlines()
    assert progress.startswith("FedBR: 1 of 1 rounds")
    assert last == missing


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a child of its parent's death"
)
def test_what_is_started_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from fedbr.flower.programs import Programs\n"
        "own = Programs(Path('home'))\n"
        "own.start('it', [sys.executable, '-c', 'import time; time.sleep(600)'], Path('log'))\n"
        "print(own.running['it'].pid, flush=True); time.sleep(600)"
    )
    line = [sys.executable, "-c", code]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        child = Path("/proc") / process.stdout.readline().strip() / "cmdline"
        assert child.read_bytes()
        process.kill()
    end = time.monotonic() + 30
    while child.exists() and child.read_bytes():  # empty: ended, and not yet buried
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_trial_leaves_what_clients_remember_and_the_logs(tmp_path: Path) -> None:
    for name in (
        "home/config.toml",
        "app/pyproject.toml",
        "state.db",
        "state.db-wal",
        "node-0/x/client-0.1",
        "run.log",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    with programs_in(tmp_path):
        pass
    assert sorted(file.name for file in tmp_path.rglob("*") if file.is_file()) == [
        "client-0.1",
        "run.log",
    ]


class RecordingWatcher(Watcher):
    """Writes down the calls that a watcher gets."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        self.events.append(("planned", len(runs)))

    def resumed(self, run: PlannedRun, rounds: Sequence[RoundRecord]) -> None:
        self.events.append(("resumed", len(rounds)))

    def started(self, run: PlannedRun) -> None:
        self.events.append(("started", run.seed))

    def round_done(self, run: PlannedRun, record: RoundRecord) -> None:
        self.events.append(("round", record.round))

    def finished(self, run: PlannedRun) -> None:
        self.events.append(("finished", run.seed))


def test_rounds_of_another_process_are_seen_as_they_appear(tmp_path: Path) -> None:
    small = ["train.rounds=2", "train.local_steps=1", "train.seeds=0,1"]
    recipe = config.load("digits", small, ["fedavg"])
    train_recipe(config.load("digits", [*small, "train.seeds=0"], ["fedavg"]), tmp_path / "out")

    class Submitted(Programs):
        """A run that trains when somebody looks, and is over."""

        def poll(self) -> int:
            train_recipe(recipe, tmp_path / "out")
            return 0

        def stop(self, name: str) -> None: ...

    programs = Submitted(tmp_path)
    process: Any = SimpleNamespace(poll=programs.poll, returncode=0)
    programs.running[RUN_NAME] = process
    programs.logs[RUN_NAME] = tmp_path / "run.log"
    (tmp_path / "run.log").write_text("Successfully started run 17")
    watcher = RecordingWatcher()
    follow(programs, Experiment(recipe, tmp_path / "out"), watcher)
    assert watcher.events == [
        ("planned", 2), ("resumed", 2), ("started", 1), ("round", 1), ("round", 2), ("finished", 1),
    ]  # fmt: skip
    (tmp_path / "run.log").write_text("Error: no SuperLink")
    with pytest.raises(RunError, match=r"not submitted \(code 0\): Error: no SuperLink"):
        follow(programs, Experiment(recipe, tmp_path / "out"), Watcher())


def test_a_contribution_must_be_of_the_same_samples_throughout() -> None:
    def reply(x: int, y: int) -> Reply:
        return Reply(0, 5, {"naivemix": {"x": torch.zeros(x, 2), "y": torch.zeros(y, 3)}})

    expected = Rehearsal({0: reply(4, 4).payload, 1: {}}, {}, {}, {})
    assert find_problem(reply(7, 7), "contribute", expected) is None
    assert find_problem(reply(7, 6), "contribute", expected) == "naivemix: has 7 of x, 6 of y"
    assert find_problem(reply(0, 0), "contribute", expected) == "naivemix: has 0 of x, 0 of y"


def test_a_node_whose_file_is_gone_says_so(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="pip install 'fedbr[flower]'")
    from fedbr.flower.app import reply_here

    gone = str(tmp_path / "none.npz")
    answer = Answer.read(reply_here({}, {"ids": "0", "data-path": gone}))
    assert (answer.error or "").startswith("data-path = ")


def test_facts_of_sites_have_bounds() -> None:
    one = ClientFacts(5, 5, effective_classes=1.0, test_samples=1, content="c")
    values = SiteFacts(Common((1, 8, 8), "uint8", ("0", "²")), {0: one}).to_json()
    assert SiteFacts.from_json(values).common.classes == ("0", "²")
    for key, strange in (
        ("common", {"shape": [10**6] * 9}), ("common", {"shape": [0]}), ("common", {"classes": []}),
        ("common", {"classes": ["x" * 10**6]}), ("common", {"dtype": "int8"}),
        ("clients", {"0": values["clients"]["0"] | {"samples": 0}}),
        ("clients", {"0": values["clients"]["0"] | {"effective_classes": 4.0}}),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="cannot be right"):
            SiteFacts.from_json(values | {key: values[key] | strange})


def test_a_path_that_flower_cannot_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="quotation marks"):
        node_config("0", "", tmp_path / 'a "b"' / "state")


def test_own_samples_with_many_clients_must_name_them(tmp_path: Path) -> None:
    from fedbr.flower.site import OwnSite

    np.savez(tmp_path / "s.npz", x=np.random.default_rng(0).random((40, 5)), y=np.arange(40) % 2)
    site = OwnSite(
        read_node_settings(
            {"ids": "0-3", "data-path": str(tmp_path / "s.npz"), "state-dir": str(tmp_path)}
        )
    )
    with pytest.raises(InputError, match="the data of this site name none"):
        site.facts(config.load("digits"))
