"""FedBR (Guo, Tang, Lin, 2023): reduce the bias of local learning with pseudo-data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from ..core.fast.contrast import contrast
from ..core.fast.stacked import cut, join
from ..core.method import Batch, ClientContext, Method, Sharing, soft_cross_entropy
from ..core.model import FedModel, Output
from ..core.spec import Spec
from ..core.wire import State
from ..util.errors import InputError
from .pseudo import mixture
from .pseudo.rsm import sample_means


class FedBR(Method):
    """Balance the classifier on pseudo-data, and draw their features to the global ones.

    Component 1 trains towards equal probabilities of all classes on pseudo-data, which belong to no
    class. Component 2 draws their features to those of the global model, away from those of the
    client's samples; a projector, trained against the model, shows where they differ.

    >>> FedBR(lam=0.5, pseudo="mixture").mean_of
    10
    """

    name: ClassVar[str] = "fedbr"
    paper: ClassVar[str] = (
        "Guo, Tang, Lin. FedBR: Improving Federated Learning on Heterogeneous Data, ICML 2023"
    )

    lam: float = Field(0.1, ge=0, description="weight of component 1, the paper's lambda")
    mu: float = Field(0.5, ge=0, description="weight of component 2")
    tau1: float = Field(2.0, ge=0, description="scales the similarity to global features")
    tau2: float = Field(2.0, ge=0, description="scales the similarity to local features")
    components: Literal["both", 1, 2] = Field("both", description="which components act")
    max_step: bool = Field(True, description="train the projector to show the bias")
    projection: bool = Field(True, description="compare features through the projector")
    hidden: int = Field(256, ge=1, description="width of the projector")
    width: int = Field(128, ge=1, description="outputs of the projector")
    pseudo: Literal["rsm", "mixture"] = Field("rsm", description="where pseudo-data come from")
    size: int | None = Field(None, ge=1, description="pseudo-samples in all; default: a batch")
    per_step: int | None = Field(
        None, ge=1, description="pseudo-samples used in a step; default: all"
    )
    mean_of: int = Field(10, ge=2, description="samples in a mean, the paper's M")
    balanced: bool = Field(False, description="RSM: take a client's classes in turn")
    mix: int = Field(1, ge=0, description="mixture: own samples in each, the paper's K")
    refresh: Literal["round", "once"] = Field("round", description="when pseudo-data are made")
    lazy: int = Field(1, ge=1, description="act every so many steps, scaled up by as much")

    @property
    def _balances(self) -> bool:
        """Whether component 1 acts."""
        return self.components != 2 and self.lam > 0

    @property
    def _contrasts(self) -> bool:
        """Whether component 2 acts."""
        return self.components != 1 and self.mu > 0

    @property
    def _remixes(self) -> bool:
        """Whether pseudo-samples are mixed anew with the client's own in every step."""
        return self.pseudo == "mixture" and self.mix > 0

    @property
    def neutral(self) -> bool:
        return not (self._balances or self._contrasts)

    @property
    def sharing(self) -> Sharing:
        return self.refresh

    @property
    def asks_clients(self) -> bool:
        return self.pseudo == "rsm"

    def check(self, spec: Spec, sizes: Sequence[int]) -> None:
        if self.pseudo == "mixture":
            self._check_proxy(spec)
        elif max(sizes) < self.mean_of:
            raise InputError(
                f"fedbr.mean_of = {self.mean_of}: no client has so many distinct samples (at most "
                f"{max(sizes)}), and a mean of fewer would reveal them; lower it, or set "
                "fedbr.pseudo = 'mixture'"
            )

    def _check_proxy(self, spec: Spec) -> None:
        if spec.proxy is None:
            raise InputError(
                "fedbr.pseudo = 'mixture' needs public samples: data.proxy = 'photos' or "
                "'noise' (Python: proxy=)"
            )
        if len(torch.unique(spec.proxy, dim=0)) < self.mean_of:
            raise InputError(
                f"fedbr.mean_of = {self.mean_of}: there are not so many distinct public samples"
            )

    def extra_module(self, model: FedModel, spec: Spec) -> nn.Module | None:
        if not (self._contrasts and self.projection):
            return None
        sizes = (model.num_features, self.hidden, self.hidden, self.width)
        first, second, third = (nn.Linear(a, b) for a, b in pairwise(sizes))
        return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)

    def contribute(self, x: Tensor, y: Tensor, spec: Spec, rng: np.random.Generator) -> State:
        contributors = spec.num_clients if self.refresh == "once" else spec.clients_per_round
        count = math.ceil((self.size or spec.batch_size) / contributors)
        classes = y if self.balanced else None
        means = sample_means(x, count, self.mean_of, rng, classes)
        return {"x": means} if len(means) else {}

    def share(self, contributions: Sequence[State], spec: Spec, rng: np.random.Generator) -> State:
        size = self.size or spec.batch_size
        if self.pseudo == "mixture":
            assert spec.proxy is not None
            return {"x": sample_means(spec.proxy, size, self.mean_of, rng)}
        if not contributions:
            return {}
        means = torch.cat([contribution["x"] for contribution in contributions])
        chosen = rng.permutation(len(means))[:size]
        return {"x": means[torch.from_numpy(chosen)]}

    def begin(self, ctx: ClientContext) -> None:
        # phi_g(x_p) is constant within the round, unless x_p is mixed anew in every step.
        if self._contrasts and not self._remixes and "x" in ctx.shared:
            ctx.scratch["anchor"] = ctx.model.frozen(ctx.global_params, ctx.shared["x"]).features

    def rests(self, step: int) -> bool:
        # A subclass may do more in ``probe`` and ``loss``.
        unchanged = type(self).probe is FedBR.probe and type(self).loss is FedBR.loss
        return unchanged and step % self.lazy > 0

    def probe(self, ctx: ClientContext, batch: Batch) -> Tensor | None:
        if batch.step % self.lazy or "x" not in ctx.shared:
            return None  # it rests, or nobody could contribute so far: then this is FedAvg
        x, anchor = ctx.shared["x"], ctx.scratch.get("anchor")
        if self.per_step is not None and self.per_step < len(x):
            index = ctx.draw(lambda rng: rng.permutation(len(x))[: self.per_step])
            x = x[index]
            anchor = None if anchor is None else anchor[index]
        y = x.new_full((1, 1, ctx.spec.num_classes), 1 / ctx.spec.num_classes)
        if self._remixes:
            count = x.shape[-len(ctx.spec.shape) - 1]
            own_x, own_y = ctx.local_samples(count, self.mix)
            x, y = mixture.mix(x, own_x, own_y)
            if self._contrasts:
                anchor = ctx.model.frozen(ctx.global_params, x).features
        ctx.scratch["y"] = y
        if anchor is not None:
            ctx.scratch["near"] = anchor
        return x

    def loss(self, ctx: ClientContext, batch: Batch, out: Output) -> Tensor | None:
        if ctx.probed is None:
            return None
        terms = []
        if self._balances:
            terms.append(self.lam * soft_cross_entropy(ctx.probed.logits, ctx.scratch["y"]))
        if self._contrasts:
            anchor = ctx.scratch["near"]
            term = self._contrast(ctx, ctx.probed.features, anchor, out.features)
            terms.append(self.mu * term)
        if not terms:
            return None
        return self.lazy * sum(terms[1:], terms[0])

    def _contrast(
        self, ctx: ClientContext, pseudo: Tensor, anchor: Tensor, local: Tensor
    ) -> Tensor:
        """Return component 2 without its weight: [C].

        Args:
            ctx: the clients.
            pseudo: features of the pseudo-samples, [C, n, d].
            anchor: the global model's features of the same, [C, n, d], or [n, d] for all.
            local: features of the batch, [C, B, d].
        """
        # Pair j compares pseudo-sample j with batch sample j (mod the batch size).
        count = pseudo.shape[1]
        if count > local.shape[1]:
            local = local.repeat(1, math.ceil(count / local.shape[1]), 1)
        local, near = local[:, :count], anchor.expand_as(pseudo)
        if not self.projection:
            return self._l_con(pseudo, local, near)
        pair, halves = join([pseudo, local]), [count, count]
        if self.max_step:
            # theta <- theta + eta * gradient of L_con, on fixed features
            pseudo, local = cut(ctx.model.extra(self.name, pair.detach()), halves)
            shown = ctx.scratch.pop("shown", None)  # P_theta(phi_g), if the last min step left it
            if shown is None:
                shown = ctx.model.extra(self.name, near)
            ctx.descend(-self.lazy * self._l_con(pseudo, local, shown), self.name)
        pseudo, local = cut(ctx.model.extra(self.name, pair), halves)
        return self._l_con(pseudo, local, self._shown(ctx, anchor, near).detach())

    def _shown(self, ctx: ClientContext, anchor: Tensor, near: Tensor) -> Tensor:
        """Return P_theta(phi_g) at the present theta.

        It is kept, with what its gradient needs, as long as neither changes.
        """
        stays = anchor is ctx.scratch.get("anchor")
        if stays and "shown" in ctx.scratch:  # there is no max step
            return ctx.scratch["shown"]
        with torch.set_grad_enabled(stays and self.max_step):  # for the next max step
            shown = ctx.model.extra(self.name, near)
        if stays:
            ctx.scratch["shown"] = shown
        return shown

    def _l_con(self, pseudo: Tensor, local: Tensor, near: Tensor) -> Tensor:
        """Return the paper's L_con: [C].

        It is -log(f1 / (f1 + f2)) with f1 = exp(tau1 sim(p, g)) and f2 = exp(tau2 sim(p, l)), in a
        form that cannot overflow.
        """
        return contrast(pseudo, local, near, self.tau2, self.tau1).mean(dim=1)
