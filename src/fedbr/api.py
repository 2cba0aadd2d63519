"""The Python interface: train a model on a federation, in memory."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import safetensors
import torch
from torch import nn

from . import models
from .backends.pool import WorkerPool
from .core.fast.blocks import choose
from .core.method import Method
from .core.model import FedModel
from .core.server import Server
from .core.spec import Spec
from .core.wire import State
from .data import Federation
from .methods import build as build_method
from .recipe.load import rename_train_keys
from .recipe.schema import MetricsConfig, TrainConfig
from .run import loop as experiment
from .run.arguments import check_federation, starting_model
from .run.setup import assemble, connect
from .util.errors import InputError
from .util.processes import one_thread
from .util.validation import validated


@dataclass
class Run:
    """A trained model (with ``Local``, which has none in common, the untrained start) and what was
    measured.
    """

    model: FedModel
    lines: list[dict[str, Any]] = field(
        default_factory=list, repr=False
    )  # one per round, as in metrics.jsonl
    models: list[FedModel] = field(
        default_factory=list, repr=False
    )  # each client's own, where a method keeps them

    @property
    def accuracy(self) -> list[float]:
        """Accuracy of the model, one value per evaluated round."""
        return [line["accuracy"] for line in self.lines if line["accuracy"] is not None]

    @property
    def accuracy_clients(self) -> list[list[float]]:
        """Accuracy for each client, one list per evaluated round."""
        return [line["accuracy_clients"] for line in self.lines if line["accuracy"] is not None]

    @property
    def loss(self) -> list[float]:
        """Training loss, one value a round."""
        return [line["loss"] for line in self.lines]

    @property
    def bias(self) -> list[dict[str, Any]]:
        """How biased the clients' models were before they were averaged, one entry per round that
        was looked at.
        """
        return [
            {"round": line["round"], "accuracy_local": line["accuracy_local"], **line["bias"]}
            for line in self.lines
            if "bias" in line
        ]

    @property
    def seconds_train(self) -> list[float]:
        """Wall time of training, one value a round."""
        return [line["seconds_train"] for line in self.lines]

    @property
    def bytes(self) -> list[tuple[int, int]]:
        """What was sent up and down, one pair a round."""
        return [(line["bytes_up"], line["bytes_down"]) for line in self.lines]


def train(
    federation: Federation,
    model: nn.Module | str = "cnn",
    methods: Sequence[Method] = (),
    *,
    rounds: int = 40,
    local_steps: int = 50,
    batch_size: int = 32,
    lr: float = 0.01,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    clients_per_round: int | None = None,
    aggregate: Literal["uniform", "samples"] = "uniform",
    evaluate_every: int = 1,
    evaluate_samples: int | None = None,
    bias_every: int = 0,
    workers: int = 1,
    seed: int = 0,
    clients_at_once: int | Literal["auto"] = "auto",
    dtype: Literal["float32", "float64"] = "float32",
    device: str = "auto",
    amp: bool = False,
    watch: Callable[[dict[str, Any]], object] | None = None,
    **model_options: Any,
) -> Run:
    """Train one model across the clients of a federation.

    ``model`` is a name of the table (with ``model_options`` such as width=0.25) or a module of
    yours, which is copied and starts from the weights that it has. ``methods`` act in the listed
    order; none is FedAvg. ``bias_every``: rounds between tests of every client's own model, whose
    figures come as ``Run.bias``. ``watch`` is called after every round with its figures, a line of
    ``Run.lines``; what it raises ends the training. With ``workers`` above 1, call it under ``if
    __name__ == "__main__":`` as for every Python process pool. A loss that is no longer finite
    raises ``fedbr.Diverged``.
    """
    given = {name: value for name, value in locals().items() if name in TrainConfig.model_fields}
    if "cohort" in model_options:  # as older versions called it
        given["cohort"] = model_options.pop("cohort")
        del given["clients_at_once"]
    given = rename_train_keys(given, warn=True) | {"seeds": [seed]}
    settings = validated(TrainConfig, given, "train")
    bias_every = validated(MetricsConfig, {"bias_every": bias_every}, "train").bias_every
    check_federation(federation, workers)
    if isinstance(methods, Method) or not isinstance(methods, Sequence):
        raise InputError(f"methods = {methods!r}: must be a list, such as [fedbr.FedBR(lam=0.1)]")
    if watch is not None and not callable(watch):
        raise InputError(
            f"watch = {watch!r}: must be a function of a round's figures, such as print"
        )
    start = starting_model(
        "train", model, model_options, federation, seed, signature(train).parameters
    )
    setup = assemble(start, list(methods), federation, settings, seed)
    with one_thread(), ExitStack() as exits:
        pool = exits.enter_context(WorkerPool(workers)) if workers > 1 else None
        server = Server(setup)
        block_size = choose(setup.model, setup.spec, settings.clients_at_once)
        backend = connect(setup, federation, block_size, pool, settings.evaluate_samples)
        lines = []
        every = (settings.evaluate_every, bias_every)
        for line in experiment.rounds(server, backend, federation, 1, settings.rounds, *every):
            lines.append(line)
            backend.states.tidy()
            if watch is not None:
                watch(line)
    kept = server.models(backend.states)
    _equip(setup.model, federation.seen_as | {"shape": federation.shape})
    own = [] if isinstance(kept, dict) else [_final(setup.model, weights) for weights in kept]
    return Run(_final(setup.model, server.params), lines, own)


def load_model(path: str | Path, client: int | None = None, own_code: bool = False) -> FedModel:
    """Read a ``model.safetensors`` of a result folder.

    client: one of the models that each client kept for itself. own_code: import and call what the
    file names as "package.module:name", a model or methods of one's own; a file from somebody else
    could name anything.
    """
    try:
        if Path(path).is_dir():
            raise IsADirectoryError("a folder")
        with safetensors.safe_open(path, "pt") as file:
            if "fedbr" not in (file.metadata() or {}):
                raise ValueError("it does not say of what model")
            facts = json.loads(file.metadata()["fedbr"])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        raise InputError(
            f"path = {str(path)!r}: not a model.safetensors, as DIR/runs/LABEL-SEED of a result folder has ({error})"
        ) from error
    if personal := sorted(
        {int(name.split(".")[0].removeprefix("client")) for name in weights if name[:6] == "client"}
    ):
        if client not in personal:
            raise InputError(
                f"client = {client}: every client has a model of its own; one of 0 to {personal[-1]}"
            )
        prefix = f"client{client}."
        weights = {
            name.removeprefix(prefix): v for name, v in weights.items() if name.startswith(prefix)
        }
    elif client is not None:
        raise InputError(f"client = {client}: there is one model for all; leave it out")
    named = [facts["name"], *(method["name"] for method in facts["methods"])]
    if not own_code and (code := [name for name in named if ":" in name]):
        raise InputError(
            f"path = {str(path)!r}: names code, {', '.join(code)}, that would be imported and called; "
            "if it is yours, pass own_code=True"
        )
    shape, classes = tuple(map(int, facts["shape"])), int(facts["num_classes"])
    model = models.build(facts["name"], facts["options"], shape, classes)
    spec = Spec(shape, classes, 1, 1, 1, 1, 1.0)
    for method in facts["methods"]:
        model = build_method(
            method["name"], {k: v for k, v in method.items() if k != "name"}
        ).rebuild(model, spec)
    model = model.to(next(iter(weights.values())).dtype)
    model.load_state_dict(weights)
    _equip(model, facts)
    return model.eval()


def _equip(model: FedModel, facts: Mapping[str, Any]) -> None:
    """Let a model see bytes as it did in training, and know what classes are called."""
    scale, shift = (
        torch.tensor(v) if isinstance(v, list) else v for v in (facts["scale"], facts["shift"])
    )
    model.bytes_seen_as, model.class_names = (scale, shift), facts["class_names"]
    model.sample_shape = tuple(map(int, facts["shape"]))


def _final(model: FedModel, weights: State) -> FedModel:
    """Return the model as it is after training, without the modules that methods added."""
    final = copy.deepcopy(model)
    final.set_weights(weights)
    final.extras.clear()
    return final.eval()
