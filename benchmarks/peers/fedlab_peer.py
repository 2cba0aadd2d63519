"""FedLab (Zeng et al., 2023): the standalone pipeline with its serial SGD trainer."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import torch

from fedbr.bench import Workload
from fedbr.data import Federation

from .common import Logits, Pair, RoundDone, Visits, batches, nothing


class Batches:
    """What FedLab calls a FedDataset."""

    def __init__(self, work: Workload, clients: Federation) -> None:
        self.work = work
        self.samples = clients.train.samples.x, clients.train.samples.y
        self.parts = [
            torch.from_numpy(clients.train.parts[client]) for client in range(work.clients)
        ]
        self.visits = Visits()

    def get_dataloader(self, client: int, batch_size: int) -> Iterator[Pair]:
        return batches(
            self.work, self.samples, self.parts[client], self.visits.next(client), client
        )


def rounds(work: Workload, clients: Federation, round_done: RoundDone = nothing) -> None:
    """Train with the framework's server handler, serial trainer and aggregator."""
    fedavg = import_module("fedlab.contrib.algorithm.fedavg")
    net = Logits(work)
    handler = fedavg.FedAvgServerHandler(net, work.rounds, work.in_round / work.clients)
    trainer = fedavg.FedAvgSerialClientTrainer(net, work.clients)
    trainer.setup_dataset(Batches(work, clients))
    trainer.setup_optim(
        1, work.batch_size, work.lr
    )  # one epoch: as many batches as there are steps
    pipeline = import_module("fedlab.core.standalone").StandalonePipeline(handler, trainer)
    pipeline.evaluate = round_done  # FedLab leaves it to its users
    pipeline.main()
