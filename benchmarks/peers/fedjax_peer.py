"""FedJAX (Ro et al., 2021): its federated averaging, clients one by one in compiled steps."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from torch import nn

from fedbr.bench import Workload
from fedbr.data import Federation

from .common import Logits, RoundDone, nothing

# One thread, as for all others; read when jax is imported, which is later.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def rounds(work: Workload, clients: Federation, round_done: RoundDone = nothing) -> None:
    """Train with the framework's algorithm, client sampler and batches (shuffled and repeated)."""
    fedjax, jax = import_module("fedjax"), import_module("jax")

    x, y = clients.train.samples.x.numpy(), clients.train.samples.y.numpy().astype("int32")
    if x.ndim == 4:
        x = x.transpose(0, 2, 3, 1)  # channels last, as convolutions on the CPU want them in JAX
    users = {
        b"%06d" % who: {"x": x[part], "y": y[part]} for who, part in clients.train.parts.items()
    }
    federated = fedjax.InMemoryFederatedData(users)
    sampler = fedjax.client_samplers.UniformGetClientSampler(federated, work.in_round, seed=0)
    model = _model(work, {"x": x[:1], "y": y[:1]})
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(work.lr),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(
            work.batch_size, num_epochs=None, num_steps=work.local_steps
        ),
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    for _ in range(work.rounds):
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
        round_done()


def _model(work: Workload, example: dict[str, Any]) -> Any:
    """Translate the layers of the bare loop's model."""
    fedjax, hk = import_module("fedjax"), import_module("haiku")
    torch_model = Logits(work).model
    layers = [*torch_model.encoder.children(), torch_model.classifier]

    def forward(batch: Any) -> Any:
        return hk.Sequential([_layer(layer) for layer in layers])(batch["x"])

    return fedjax.create_model_from_haiku(
        hk.transform(forward),
        example,
        lambda batch, logits: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits),
    )


def _layer(layer: nn.Module) -> Any:
    hk, jax = import_module("haiku"), import_module("jax")
    match layer:
        case nn.Linear():
            return hk.Linear(layer.out_features)
        case nn.Conv2d():
            padding = [(int(p), int(p)) for p in layer.padding]
            return hk.Conv2D(layer.out_channels, layer.kernel_size, layer.stride, padding=padding)
        case nn.GroupNorm():
            return hk.GroupNorm(layer.num_groups, eps=layer.eps)
        case nn.ReLU():
            return jax.nn.relu
        case nn.AdaptiveAvgPool2d():
            return lambda x: x.mean((1, 2))
        case nn.Flatten():
            return hk.Flatten()
        case _:
            raise NotImplementedError(f"no translation of {layer}")
