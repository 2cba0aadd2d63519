"""One round with made-up samples: what clients will send and receive, before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from ..backends.serial import SerialBackend
from ..core.rng import stream
from ..core.samples import Samples, TrainData
from ..core.server import Server
from ..core.setup import Setup
from ..core.spec import CPU
from ..core.wire import SHARED, Payload
from ..util.processes import one_thread

SAMPLES = 256


@dataclass(frozen=True)
class Rehearsal:
    """What one client sends, receives and remembers."""

    contributed: dict[int, Payload]  # 0: before training, 1: in every round
    received: Payload
    replied: Payload
    remembered: Payload


def rehearse(setup: Setup) -> Rehearsal:
    """Let one client that never existed do one step; the shapes are those of a real one."""
    spec = replace(setup.spec, local_steps=1, device=CPU, amp=False)
    rng = stream(spec.seed, "rehearsal")
    x = torch.from_numpy(rng.random((SAMPLES, *spec.shape), dtype=np.float32))
    y = torch.arange(SAMPLES) % spec.num_classes
    data = TrainData(Samples(x, y), {0: np.arange(SAMPLES)}, spec.num_classes)
    setup = Setup(setup.methods, setup.model, spec)
    server, backend = Server(setup), SerialBackend(setup, data, [], 1)
    contributed: dict[int, Payload] = {}
    with one_thread():
        for when in (0, 1):
            replies = backend.run(server.contribute_tasks(when, [0]))
            server.absorb_contributions(when, replies)
            contributed[when] = replies[0].payload if replies else {}
        (task,) = server.train_tasks(1, [0])
        (reply,) = backend.run([task])
    received = {k: v for k, v in task.payload.items() if not k.startswith(SHARED)} | server.shared
    return Rehearsal(contributed, received, reply.payload, dict(backend.states.get(0, {})))
