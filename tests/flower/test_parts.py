"""Messages, settings, keys, rehearsal and the command line of a federation, each by itself."""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedbr
from fedbr.backends.serial import SerialBackend
from fedbr.cli.app import call
from fedbr.core.server import Server
from fedbr.core.wire import Reply
from fedbr.flower import desk
from fedbr.flower.app_dir import write_app
from fedbr.flower.audit import audit
from fedbr.flower.launch import check_address, node_config, workshop
from fedbr.flower.messages import answer, ranges, read_answer
from fedbr.flower.rehearsal import Rehearsal, rehearse
from fedbr.flower.settings import RUN, node_settings, read_ids, run_settings
from fedbr.flower.sites import in_common, well_formed
from fedbr.flower.states import StateFiles
from fedbr.flower.validate import objection
from fedbr.methods import METHODS, build
from fedbr.models import build as build_model
from fedbr.recipe import load as config
from fedbr.recipe.schema import TrainConfig
from fedbr.run.setup import assemble
from fedbr.util.errors import InputError

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
    seen, server = rehearse(setup), Server(setup)
    real = SerialBackend(setup, federation.train, [], 2)
    for when in (0, 1):
        replies = real.run(server.contribute_tasks(when, range(6)))
        assert [objection(reply, "contribute", seen) for reply in replies] == [None] * len(replies)
        server.absorb_contributions(when, replies)
    replies = real.run(server.train_tasks(1, range(6)))
    assert [objection(reply, "train", seen) for reply in replies] == [None] * 6


def test_answers_carry_replies_and_refuse_nonsense() -> None:
    reply = Reply(3, 10, {"model": {"w": torch.arange(3.0)}}, {"loss": 0.5})
    header, (found,) = read_answer(answer({"round": 2}, [reply]))
    assert header == {"round": 2}
    assert (found.client, found.num_examples, found.metrics) == (3, 10, {"loss": 0.5})
    assert torch.equal(found.payload["model"]["w"], reply.payload["model"]["w"])


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
    ("given", "word"),
    [
        ({"min-share": 1.5}, "min-share"), ({"wait": 0}, "wait"), ({"reply-timeout": "soon"}, "reply-timeout"),
        ({"fresh": "yes"}, "fresh"), ({"recipe": "no\nrecipe"}, "not TOML"), ({"rounds": 3}, "run config"),
        ({"set": "train.rounds=0"}, "train.rounds"),
    ],
)  # fmt: skip
def test_a_strange_run_config_is_refused_in_one_line(given: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word) as error:
        run_settings(given)
    assert "\n" not in str(error.value)


def test_node_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    assert node_settings({"partition-id": 4, "num-partitions": 9}).clients == (4,)
    assert node_settings({"ids": "0-3"}).state_dir == tmp_path / "fedbr" / "clients-0-3"
    for strange in (
        {},
        {"ids": "0", "data-path": str(tmp_path / "none")},
        {"ids": "0", "workers": 0},
        {"id": 3},
    ):
        with pytest.raises(InputError):
            node_settings(strange)


def test_states_keep_the_round_they_started_from(tmp_path: Path) -> None:
    files = StateFiles(tmp_path, "abc")
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
    one = {"shape": [1, 8, 8], "dtype": "uint8", "classes": ["2", "10"]}
    assert in_common({0: one, 1: one | {"classes": ["cat", "1"]}})["classes"] == [
        "1",
        "2",
        "10",
        "cat",
    ]
    with pytest.raises(InputError, match=r"client 1: samples of shape \[3, 8, 8\]"):
        in_common({0: one, 1: one | {"shape": [3, 8, 8]}})


def test_the_app_is_one_file_that_holds_the_recipe(tmp_path: Path) -> None:
    recipe = config.load("digits", ["train.rounds=3"])
    values = tomllib.loads(write_app(tmp_path / "app", recipe).read_text())
    written = values["tool"]["flwr"]["app"]["config"]
    assert written.keys() == RUN.keys()
    assert run_settings(written).recipe == recipe
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(InputError, match="somebody else"):
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
    monkeypatch.setenv(desk.SOCKET, "s")
    process = subprocess.Popen([sys.executable, "-m", "fedbr.flower.desk", "s"])
    try:
        while not Path("s").exists():
            assert process.poll() is None
        header, _ = read_answer(desk.at_desk({"ask": b"nonsense"}, {"ids": "3"}, dict))
        assert header["clients"] == [3]
        assert "error" in header
    finally:
        process.kill()
        process.wait()
    assert desk.at_desk({"ask": b""}, {}, lambda: {"answer": b"here"}) == {"answer": b"here"}


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
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1


def test_the_core_works_without_flower(tmp_path: Path) -> None:
    """With flwr and what comes with it out of reach, all but its own commands is imported and runs."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['flwr', 'cryptography']))\n"
        "import fedbr.flower.server, fedbr.flower.site, fedbr.flower.launch\n"
        "from fedbr.cli.app import call\n"
        "run = 'run digits --methods fedbr --workers 1 --out o --set train.rounds=1 train.local_steps=1 fedbr.lazy=4'\n"
        "assert call(run.split()) == 0\n"
        "assert call(['flower', 'audit', 'digits']) == 0\n"
        "assert call(['flower', 'keys', 'k']) == 2"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert (
        done.stderr
        == "fedbr: fedbr flower: cryptography is not installed; pip install 'fedbr[flower]'\n"
    )


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a child of its parent's death"
)
def test_what_is_started_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from fedbr.flower.processes import Processes\n"
        "own = Processes(Path('home'))\n"
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
    with workshop(tmp_path):
        pass
    assert sorted(file.name for file in tmp_path.rglob("*") if file.is_file()) == [
        "client-0.1",
        "run.log",
    ]


def test_a_contribution_must_be_of_the_same_samples_throughout() -> None:
    def reply(x: int, y: int) -> Reply:
        return Reply(0, 5, {"naivemix": {"x": torch.zeros(x, 2), "y": torch.zeros(y, 3)}})

    seen = Rehearsal({0: reply(4, 4).payload, 1: {}}, {}, {}, {})
    assert objection(reply(7, 7), "contribute", seen) is None
    assert objection(reply(7, 6), "contribute", seen) == "naivemix: has 7 of x, 6 of y"
    assert objection(reply(0, 0), "contribute", seen) == "naivemix: has 0 of x, 0 of y"


def test_a_node_whose_file_is_gone_says_so(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="pip install 'fedbr[flower]'")
    from fedbr.flower.app import reply_here

    header, _ = read_answer(reply_here({}, {"ids": "0", "data-path": str(tmp_path / "none.npz")}))
    assert header["error"].startswith("data-path = ")


def test_facts_of_sites_have_bounds() -> None:
    told = {
        "samples": 5,
        "distinct": 5,
        "test_samples": 1,
        "effective_classes": 1.0,
        "content": "c",
    }
    facts = {"shape": [1, 8, 8], "dtype": "uint8", "classes": ["0", "²"], "by_client": {"0": told}}
    assert well_formed(facts, [0])
    assert in_common({0: facts})["classes"] == ["0", "²"]
    for strange in (
        {"shape": [10**6] * 9}, {"shape": [0]}, {"classes": []}, {"classes": ["x" * 10**6]}, {"dtype": "int8"},
        {"by_client": {"0": told | {"samples": 0}}},
    ):  # fmt: skip
        assert not well_formed(facts | strange, [0])


def test_a_path_that_flower_cannot_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="quotation marks"):
        node_config("0", "", tmp_path / 'a "b"' / "state")


def test_own_samples_with_many_clients_must_name_them(tmp_path: Path) -> None:
    from fedbr.flower.site import OwnSite

    np.savez(tmp_path / "s.npz", x=np.random.default_rng(0).random((40, 5)), y=np.arange(40) % 2)
    site = OwnSite(
        node_settings(
            {"ids": "0-3", "data-path": str(tmp_path / "s.npz"), "state-dir": str(tmp_path)}
        )
    )
    with pytest.raises(InputError, match="the data of this site name none"):
        site.facts({"recipe": config.load("digits").model_dump()})
