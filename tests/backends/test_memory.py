"""What clients remember is what they left, wherever it is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbr
from fedbr.backends import memory
from fedbr.backends.memory import ClientMemory
from fedbr.core.records import RoundRecord
from fedbr.core.wire import Payload, pack, unpack
from fedbr.recipe import load as config
from fedbr.run.plan import PlannedRun
from training import train_recipe


def state(value: int, size: int = 50) -> Payload:
    return {"a": {"x": torch.full((size,), float(value))}, "b": {"n": torch.tensor(value)}}


def value(payload: Payload) -> int:
    assert payload.keys() == {"a", "b"}
    assert (payload["a"]["x"] == payload["b"]["n"]).all()
    return int(payload["b"]["n"])


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LITTLE", 100)


def test_little_stays_in_memory(tmp_path: Path) -> None:
    kept = ClientMemory(tmp_path / "m")
    kept[1] = state(1)
    kept.spill(1)
    assert value(kept[1]) == 1
    assert not (tmp_path / "m").exists()


@pytest.mark.usefixtures("little")
@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.lists(st.integers(0, 12), min_size=1, max_size=6), st.sampled_from(["kill", "drop"])
        )
    )
)
def test_much_goes_to_files_and_comes_back_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[int] | str]
) -> None:
    """Rounds of some clients each.

    A kill goes back to the last checkpoint, as a dictionary would.
    """
    folder = tmp_path_factory.mktemp("m") / "m"
    kept, plain, done = ClientMemory(folder), {}, pack({"here": [], "filed": []}, {})
    saved: dict[int, int] = {}
    for number, clients in enumerate(rounds, 1):
        if clients == "kill":
            header, payloads = unpack(done)
            (folder / ".9.safetensors.new").parent.mkdir(exist_ok=True)
            (folder / ".9.safetensors.new").write_bytes(b"half")
            kept, plain = ClientMemory(folder), dict(saved)
            kept.restore(
                {int(c): p for c, p in payloads.items()}, json.loads(json.dumps(header["filed"]))
            )
        elif clients == "drop":
            for client in list(plain)[:1]:
                del kept[client]
                del plain[client]
        else:
            for client in clients:
                kept[client], plain[client] = state(100 * number + client), 100 * number + client
            kept.spill(number)
            if number % 3:  # the others are killed before they are checkpointed
                header = {"filed": sorted(kept.filed.items())}
                done, saved = pack(header, {str(c): p for c, p in kept.here.items()}), dict(plain)
                kept.tidy()
        assert {c: value(p) for c, p in kept.items()} == plain
        assert len(kept) == len(plain)
        assert 99 not in kept
        assert kept.get(99) is None
    kept.tidy()
    assert set(files(folder)) == {f"client-{c}.{n}.safetensors" for c, n in kept.filed.items()}


@pytest.mark.usefixtures("little")
def test_what_is_stored_stays_within_bounds(tmp_path: Path) -> None:
    """Twenty clients come again and again, twenty once: each has one file and no more."""
    kept = ClientMemory(tmp_path / "m")
    for number in range(40):
        for client in {number % 20, 20 + number} if number < 20 else {number % 20}:
            kept[client] = state(number, 5000)
        kept.spill(number)
        kept.tidy()
    assert len(kept) == 40
    assert len(files(tmp_path / "m")) == 40


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_does_not_notice(
    federation: fedbr.Federation, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    settings = {
        "rounds": 5,
        "local_steps": 2,
        "clients_per_round": 3,
        "hidden": (7,),
    }
    methods = [fedbr.SCAFFOLD(), fedbr.Moon()]
    filed = fedbr.train(federation, "mlp", methods, workers=workers, **settings)
    monkeypatch.setattr(memory, "LITTLE", 2**26)
    held = fedbr.train(federation, "mlp", methods, **settings)
    assert all(
        map(torch.equal, filed.model.state_dict().values(), held.model.state_dict().values())
    )


@pytest.mark.usefixtures("little")
def test_a_run_goes_on_from_files(tmp_path: Path) -> None:
    recipe = config.parse(
        {
            "data": {"name": "digits", "clients": 4},
            "model": {"name": "mlp"},
            "train": {"rounds": 6, "local_steps": 2, "clients_per_round": 2, "seeds": [0]},
            "compare": [{"label": "both", "methods": ["scaffold", "moon"]}],
        }
    )
    train_recipe(recipe, tmp_path / "whole")

    def stop(run: PlannedRun, record: RoundRecord) -> None:
        if record.round not in seen:
            seen.add(record.round)
            raise KeyboardInterrupt

    seen: set[int] = set()
    for _ in range(6):
        with pytest.raises(KeyboardInterrupt):
            train_recipe(recipe, tmp_path / "parts", on_round=stop)
    train_recipe(recipe, tmp_path / "parts", on_round=stop)
    run = tmp_path / "parts" / "runs" / "both-0"
    assert files(run / "memory")
    wanted = (tmp_path / "whole/runs/both-0/model.safetensors").read_bytes()
    assert (run / "model.safetensors").read_bytes() == wanted
    train_recipe(recipe, tmp_path / "parts", fresh=True)
    assert (run / "model.safetensors").read_bytes() == wanted
