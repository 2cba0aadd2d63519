"""One round with made-up samples: what clients will send and receive, before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..backends.serial import SerialBackend
from ..core.evaluation import TestPlan
from ..core.rng import stream
from ..core.round import play_round
from ..core.samples import Samples, TrainData
from ..core.server import Server
from ..core.setup import Setup
from ..core.spec import CPU
from ..core.wire import Payload
from ..util.processes import one_thread

SAMPLES = 256
MAX_LR = 1e-3  # with which nothing diverges


@dataclass(frozen=True)
class Rehearsal:
    """What one client sends, receives and remembers."""

    contributed: Mapping[int, Payload]  # 0: before training, 1: in every round
    received: Payload
    replied: Payload
    remembered: Payload


def rehearse(setup: Setup) -> Rehearsal:
    """Let one made-up client train for one step; the shapes are those of a real one.

    Args:
        setup: the methods and the model; they stay as they are.
    """
    lr = min(setup.spec.lr, MAX_LR)
    spec = replace(setup.spec, local_steps=1, lr=lr, device=CPU, amp=False)
    rng = stream(spec.seed, "rehearsal")
    x = torch.from_numpy(rng.random((SAMPLES, *spec.shape), dtype=np.float32))
    y = torch.arange(SAMPLES) % spec.num_classes
    data = TrainData(Samples(x, y), {0: np.arange(SAMPLES)}, spec.num_classes)
    setup = Setup(setup.methods, setup.model, spec)
    server, backend = Server(setup), SerialBackend(setup, data, TestPlan.empty(), 1)
    with one_thread():
        played = play_round(server, backend, 1, [0], everybody=[0])
    contributed = {
        when: replies[0].payload if replies else {}
        for when, replies in played.contributions.items()
    }
    received = played.broadcast.payload | server.shared
    (reply,) = played.replies
    return Rehearsal(contributed, received, reply.payload, dict(backend.states.get(0, {})))
