"""The path to another device, walked without one: on torch's meta device, which has shapes but no
values.

There, whatever mixes devices raises, and so does every look at a value: what passes would not wait
for a GPU either.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import fedbr
from fedbr.core import client, device
from fedbr.core.evaluation import Exam, Piece
from fedbr.core.server import Server
from fedbr.methods import METHODS
from fedbr.recipe.schema import TrainConfig
from fedbr.run.setup import assemble, connect
from fedbr.util.errors import InputError

META = torch.device("meta")
MODELS = {
    "cnn": lambda: fedbr.models.build("cnn", {"width": 0.1}, (1, 8, 8), 4),
    "mlp": lambda: fedbr.models.build("mlp", {"hidden": [6]}, (1, 8, 8), 4),
    "dropout": lambda: fedbr.FedModel(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Dropout()), 6, 4
    ),
}
STACKS = [[], *([name] for name in METHODS), ["mixup", "fedbr", "fedcm"]]


@pytest.mark.parametrize("names", STACKS, ids=lambda names: "+".join(names) or "fedavg")
@pytest.mark.parametrize(
    ("clients_at_once", "model"), [(1, "cnn"), (3, "cnn"), (3, "mlp"), (3, "dropout")]
)
def test_no_step_looks_at_a_value_or_mixes_devices(
    names: list[str], clients_at_once: int, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds of images: contributions, training with all hooks, testing; only the end of a
    round looks.
    """
    x = torch.randint(0, 256, (60, 1, 8, 8), dtype=torch.uint8)
    clients = fedbr.Federation.from_clients(
        [(x[i::3], torch.arange(60)[i::3] % 4) for i in range(3)], test=(x, torch.arange(60) % 4)
    )
    settings = TrainConfig(local_steps=3, batch_size=4, clients_at_once=clients_at_once)
    this = assemble(MODELS[model](), [METHODS[n]() for n in names], clients, settings, 0)
    server, there = Server(this), replace(this, spec=replace(this.spec, device=META))
    backend = connect(there, clients.train, clients.test_plan(None, 0), clients_at_once)
    monkeypatch.setattr(
        client, "_summary", lambda losses, _: [{"loss": 0.0, "bad_step": -1.0}] * len(losses[0][0])
    )
    looked: list[torch.device] = []
    looks: list[int] = []
    monkeypatch.setattr(
        torch.Tensor, "__bool__", lambda _: not looks.append(1)
    )  # Moon: did anybody train before?
    monkeypatch.setattr(client, "to_device", lambda payload, where: _moved(payload, where, looked))
    for round in (1, 2):
        for when in (round, 0) if round == 1 else (round,):
            question = server.ask(when, range(3))
            contributed = [] if question is None else backend.run(question)
            server.absorb_contributions(when, contributed)
        for reply in backend.run(server.broadcast(round, range(3))):
            assert reply.payload or names == ["local"]
        server.last = dict.fromkeys(range(3), round)
    assert META in looked
    assert (
        len(looks) <= 2 * 3 // clients_at_once
    )  # at most once for each clients_at_once and round, never in a step
    if "local" not in names:
        with pytest.raises(NotImplementedError, match="meta tensor"):  # only the sum is looked at
            backend.test([Exam(server.params, [Piece(0, 0, 60)], ("right",))])


def _moved(
    payload: client.Payload, where: torch.device, looked: list[torch.device]
) -> client.Payload:
    """As on a GPU, but what comes back from nowhere is zero."""
    looked.append(where)
    back = where.type == "cpu"
    return {
        s: {
            k: torch.zeros(v.shape, dtype=v.dtype) if back and v.is_meta else v.to(where)
            for k, v in state.items()
        }
        for s, state in payload.items()
    }


def test_choosing_a_device() -> None:
    assert device.choose("cpu") == torch.device("cpu")
    assert device.choose("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for wrong in ("gpu", "xpu:7"):
        with pytest.raises(InputError, match=rf"^train.device = '{wrong}': .* 'auto' or 'cpu'$"):
            device.choose(wrong)


def test_the_probe_reports_how_a_child_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    endings = {
        "import os; os.kill(os.getpid(), 4)": "a trial was killed by signal 4",
        "raise RuntimeError('no bfloat16')": "RuntimeError: no bfloat16",
        "print('works')": "",
        "print('gives nonsense')": "a trial gives nonsense",
    }
    for number, (program, words) in enumerate(endings.items()):
        monkeypatch.setattr(device, "PROBE", program)
        assert device.bfloat16_obstacle.__wrapped__(f"cpu:{number}") == words


def test_mixed_precision_works_or_is_refused(federation: fedbr.Federation) -> None:
    """Which of the two is a matter of the machine: the probe decides, and it must be right."""
    settings = {"rounds": 3, "local_steps": 10, "lr": 0.1, "hidden": (16,), "device": "cpu"}
    if device.bfloat16_obstacle("cpu"):
        with pytest.raises(
            InputError, match=r"^train.amp = true: bfloat16 does not work on cpu here \("
        ):
            fedbr.train(federation, "mlp", [fedbr.FedBR()], amp=True, **settings)
        return
    mixed, plain = (
        fedbr.train(federation, "mlp", [fedbr.FedBR()], amp=amp, **settings)
        for amp in (True, False)
    )
    assert mixed.loss != plain.loss
    assert mixed.loss == pytest.approx(plain.loss, rel=0.05)
    assert all(v.dtype == torch.float32 for v in mixed.model.state_dict().values())
