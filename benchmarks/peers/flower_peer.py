"""Flower (Beutel et al., 2020): FedAvg in its simulation with one Ray actor; without Ray, clients
called in turn.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedbr.bench import Workload
from fedbr.data import Federation

from .common import Logits, RoundDone, batches, nothing

# Read when flwr and ray are imported, which is later: nothing is to be sent to anyone.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def has_ray() -> bool:
    """Say whether Flower's own simulation can be used."""
    try:
        import_module("ray")
    except ImportError:
        return False
    return True


def rounds(work: Workload, clients: Federation, round_done: RoundDone = nothing) -> None:
    """Train with the framework's strategy, messages and simulation."""
    strategies = import_module("flwr.serverapp.strategy")
    app = import_module("flwr.app")
    histories: list[Any] = []

    def evaluate(number: int, arrays: Any) -> None:
        if number:  # it is also called before the first round
            round_done()

    def count(replies: list[Any], key: str) -> Any:
        return app.MetricRecord({"replies": len(replies)})

    def serve(grid: Any) -> None:
        strategy = strategies.FedAvg(
            fraction_train=work.in_round / work.clients,
            fraction_evaluate=0.0,
            min_train_nodes=work.in_round,
            min_available_nodes=work.clients,
            train_metrics_aggr_fn=count,
        )
        start = app.ArrayRecord(Logits(work).state_dict())
        histories.append(
            strategy.start(
                grid=grid, initial_arrays=start, num_rounds=work.rounds, evaluate_fn=evaluate
            )
        )

    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "clients.pt")
        parts = [torch.from_numpy(clients.train.parts[who]) for who in range(work.clients)]
        torch.save((clients.train.samples.x, clients.train.samples.y, parts), file)
        try:
            (_simulate if has_ray() else _call_in_turn)(work, client_app(work, file), serve)
        finally:
            _open.cache_clear()
    # A client that fails is only left out by Flower: such a run would look fast.
    replies = []
    for record in histories[0].train_metrics_clientapp.values() if histories else []:
        replies.append(int(record["replies"]))
    if replies != [work.in_round] * work.rounds:
        raise RuntimeError(f"Flower: clients failed, replies by round {replies}")


@cache
def _open(file: str) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Open the samples, once in a process: Flower sends the ClientApp along with every message."""
    x, y, parts = torch.load(file, mmap=True, weights_only=True)
    return x, y, parts


def client_app(work: Workload, file: str) -> Any:
    """Return a ClientApp that trains on the samples of its partition."""
    client = import_module("flwr.clientapp").ClientApp()

    @client.train()  # type: ignore[untyped-decorator]  # flwr is imported by name
    def train(message: Any, context: Any) -> Any:
        app = import_module("flwr.app")
        torch.set_num_threads(1)
        x, y, parts = _open(file)
        number = int(message.content["config"]["server-round"])
        who = int(context.node_config["partition-id"])
        net = Logits(work)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(net.parameters(), lr=work.lr)
        for features, labels in batches(work, (x, y), parts[who], number, who):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(features), labels)
            loss.backward()  # type: ignore[no-untyped-call]  # of torch
            optimizer.step()
        content = {
            "arrays": app.ArrayRecord(net.state_dict()),
            "metrics": app.MetricRecord({"num-examples": len(parts[who])}),
        }
        return app.Message(content=app.RecordDict(content), reply_to=message)

    return client


def _simulate(work: Workload, client: Any, serve: Any) -> None:
    server = import_module("flwr.serverapp").ServerApp()

    @server.main()  # type: ignore[untyped-decorator]  # flwr is imported by name
    def main(grid: Any, context: Any) -> None:
        serve(grid)

    import_module("flwr.simulation").run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=work.clients,
        backend_config={
            "init_args": {"num_cpus": 1, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


def _call_in_turn(work: Workload, client: Any, serve: Any) -> None:
    """Hand the strategy's messages to the ClientApp directly: what Flower costs without Ray."""
    app = import_module("flwr.app")
    identity = import_module("flwr.supercore.task_identity").TaskIdentity
    # Messages carry these; Flower's runners set them.
    identity.task_id = 1
    identity.run_id = 0
    identity.node_id = 0
    contexts = {}
    for client_id in range(work.clients):
        contexts[client_id + 1] = app.Context(
            run_id=0,
            node_id=client_id + 1,
            node_config={"partition-id": client_id},
            state=app.RecordDict(),
            run_config={},
        )

    class Grid:
        def get_node_ids(self) -> Iterable[int]:
            return contexts.keys()

        def send_and_receive(
            self, messages: Iterable[Any], *, timeout: float | None = None
        ) -> Iterable[Any]:
            return [client(message, contexts[message.metadata.dst_node_id]) for message in messages]

    serve(Grid())
