"""pfl-research (Granqvist et al., 2024): FederatedAveraging on a SimulatedBackend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedbr.bench import Workload
from fedbr.data import Federation

from .common import Logits, Pair, RoundDone, Visits, batches, nothing


class Net(Logits):
    """What pfl asks of a module: a loss, and metrics (never called here)."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        raise NotImplementedError


def rounds(work: Workload, clients: Federation, round_done: RoundDone = nothing) -> None:
    """Train with the framework's algorithm, backend and aggregator."""
    dataset = import_module("pfl.data.dataset")
    federated_dataset = import_module("pfl.data.federated_dataset")
    sampling = import_module("pfl.data.sampling")
    algorithm = import_module("pfl.algorithm.federated_averaging")
    callback = import_module("pfl.callback.base")
    hyperparam = import_module("pfl.hyperparam")
    metrics = import_module("pfl.metrics")

    samples = clients.train.samples.x, clients.train.samples.y
    visits = Visits()

    # pfl has no types to subclass in what follows, hence the exceptions for mypy.
    class User(dataset.Dataset):  # type: ignore[misc, name-defined]
        """Steps instead of epochs: pfl's own datasets end after one pass, which is fewer steps than
        asked for.
        """

        def iter(self, batch_size: int | None) -> Iterator[Pair]:
            client = int(self.user_id)
            return batches(work, samples, self.raw_data[0], visits.next(client), client)

    class FedAvg(algorithm.FederatedAveraging):  # type: ignore[misc, name-defined]
        """Without the evaluation of every client before and after training that pfl does in its
        first round.
        """

        def get_next_central_contexts(self, *args: Any, **kwargs: Any) -> Any:
            contexts, model, metrics = super().get_next_central_contexts(*args, **kwargs)
            return (
                contexts and tuple(replace(c, do_evaluation=False) for c in contexts),
                model,
                metrics,
            )

    class Watch(callback.TrainingProcessCallback):  # type: ignore[misc, name-defined]
        def after_central_iteration(self, *args: Any, **kwargs: Any) -> Any:
            round_done()
            return False, metrics.Metrics()

    def user(client: str) -> Any:
        return User(raw_data=(torch.from_numpy(clients.train.parts[int(client)]),), user_id=client)

    names = [str(client) for client in range(work.clients)]
    users = federated_dataset.FederatedDataset(
        user, sampling.get_user_sampler("minimize_reuse", names)
    )
    net = Net(work)
    model = import_module("pfl.model.pytorch").PyTorchModel(
        net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    simulate = import_module("pfl.aggregate.simulate")
    FedAvg().run(
        algorithm_params=import_module("pfl.algorithm.base").NNAlgorithmParams(
            central_num_iterations=work.rounds,
            evaluation_frequency=work.rounds + 1,
            train_cohort_size=work.in_round,
            val_cohort_size=None,
        ),
        backend=simulate.SimulatedBackend(training_data=users, val_data=None),
        model=model,
        model_train_params=hyperparam.NNTrainHyperParams(
            local_num_epochs=None,
            local_num_steps=work.local_steps,
            local_learning_rate=work.lr,
            local_batch_size=work.batch_size,
        ),
        callbacks=[Watch()],
        send_metrics_to_platform=False,
    )
