"""What sites say of their samples, and the JSON of it: figures, never a sample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from ..util.errors import InputError

PIXELS = "uint8"
TYPES = (PIXELS, "float16", "float32", "float64")
LARGEST = 10**7  # numbers in a sample, and classes
MOST = 10**12  # samples


@dataclass(frozen=True)
class Common:
    """What the samples of a site, or of all sites, are like."""

    shape: tuple[int, ...]
    dtype: str
    classes: tuple[str, ...]  # names, in the order of their numbers

    def to_json(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "dtype": self.dtype, "classes": list(self.classes)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote; ValueError for what cannot be true."""
        shape, dtype, classes = values["shape"], values["dtype"], values["classes"]
        _check(dtype in TYPES, "dtype")
        _check(all(isinstance(size, int) and size > 0 for size in shape), "shape")
        _check(math.prod(shape) <= LARGEST, "shape")
        _check(0 < len(classes) <= LARGEST, "classes")
        _check(all(isinstance(name, str) and len(name) <= 200 for name in classes), "classes")
        return cls(tuple(shape), dtype, tuple(classes))


@dataclass(frozen=True)
class ClientFacts:
    """What is known of one client."""

    samples: int
    distinct: int  # samples that differ
    effective_classes: float
    test_samples: int
    content: str  # a hash of the samples

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read a client's figures; ValueError for what cannot be true."""
        facts = cls(**{field.name: values[field.name] for field in fields(cls)})
        for name in ("samples", "distinct", "test_samples"):
            number = getattr(facts, name)
            _check(isinstance(number, int) and 0 <= number < MOST, name)
        _check(facts.samples > 0, "samples")
        _check(isinstance(facts.content, str), "content")
        return facts


@dataclass(frozen=True)
class SiteFacts:
    """What is known of the samples of one site, or of all of them together.

    >>> common = Common((1, 8, 8), "uint8", ("cat", "dog"))
    >>> facts = SiteFacts(common, {0: ClientFacts(5, 5, 1.5, 2, "c0ffee")})
    >>> SiteFacts.from_json(facts.to_json()) == facts
    True
    """

    common: Common
    clients: Mapping[int, ClientFacts]

    def to_json(self) -> dict[str, Any]:
        clients = {str(client): asdict(facts) for client, facts in self.clients.items()}
        return {"common": self.common.to_json(), "clients": clients}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote; ValueError, KeyError or TypeError for what is no such."""
        common = Common.from_json(values["common"])
        clients = {
            int(client): ClientFacts.from_json(facts) for client, facts in values["clients"].items()
        }
        most = len(common.classes) + 1
        for facts in clients.values():
            _check(0 <= float(facts.effective_classes) < most, "effective_classes")
        return cls(common, clients)


@dataclass(frozen=True)
class NodeFacts:
    """What a node says of its samples."""

    own: bool  # whether they are the site's own; if not, they are those of the recipe
    content: str  # a hash of them
    site: SiteFacts | None = None  # of own samples; None: what it said of them makes no sense

    def to_json(self) -> dict[str, Any]:
        site = {} if self.site is None else self.site.to_json()
        return {"own": self.own, "content": self.content, **site}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what some node wrote.

        Raises InputError if it does not say the least; other errors for what is no table at all.
        """
        own, content = values["own"], values["content"]
        if not isinstance(own, bool) or not isinstance(content, str):
            raise InputError("does not say whose its samples are")
        site = None
        if own:
            try:
                site = SiteFacts.from_json(values)
            except (AttributeError, KeyError, TypeError, ValueError):
                site = None
        return cls(own, content, site)


def in_common(sites: Mapping[int, Common]) -> Common:
    """Return what all sites have in common; refuse those that do not fit together.

    sites: what each client's site said. All names of classes are kept, sorted.

    >>> one = Common((4,), "float32", ("2", "10"))
    >>> in_common({0: one, 1: Common((4,), "float32", ("cat", "1"))}).classes
    ('1', '2', '10', 'cat')
    """
    (first, one), *others = sorted(sites.items())
    for client, other in others:
        for key, here, there in (
            ("shape", list(one.shape), list(other.shape)),
            ("dtype", one.dtype, other.dtype),
        ):
            if here != there:
                raise InputError(
                    f"client {client}: samples of {key} {there}, those of client {first} have "
                    f"{here}; all sites must have the same"
                )
    names = {name for common in sites.values() for name in common.classes}
    return Common(one.shape, one.dtype, tuple(sorted(names, key=_by_number)))


def _by_number(name: str) -> tuple[int, int, str]:
    """Sort names that are numbers by their value, before all others."""
    return (0, int(name), "") if name.isdecimal() else (1, 0, name)


def _check(true: bool, what: str) -> None:
    if not true:
        raise ValueError(f"{what} cannot be right")
