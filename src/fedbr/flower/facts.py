"""What sites say of their samples, and the JSON of it: numbers and names, never a sample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Self

from ..util.errors import InputError
from ..util.tables import Json

PIXELS = "uint8"
TYPES = (PIXELS, "float16", "float32", "float64")
# What no site can have more of.
MAX_NUMBERS = 10**7  # in one sample
MAX_CLASSES = 10**7
MAX_SAMPLES = 10**12


@dataclass(frozen=True)
class Common:
    """What the samples of a site, or of all sites, are like."""

    shape: tuple[int, ...]
    dtype: str
    classes: tuple[str, ...]  # names, in the order of their numbers

    def to_json(self) -> Json:
        return {"shape": list(self.shape), "dtype": self.dtype, "classes": list(self.classes)}

    @classmethod
    def from_json(cls, values: Json) -> Self:
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: a value cannot be true.
        """
        shape, dtype, classes = values["shape"], values["dtype"], values["classes"]
        _check(dtype in TYPES, "dtype")
        _check(all(isinstance(size, int) and size > 0 for size in shape), "shape")
        _check(math.prod(shape) <= MAX_NUMBERS, "shape")
        _check(0 < len(classes) <= MAX_CLASSES, "classes")
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
    def from_json(cls, values: Json) -> Self:
        """Read a client's facts.

        Raises:
            ValueError: a value cannot be true.
        """
        facts = cls(**{field.name: values[field.name] for field in fields(cls)})
        for name in ("samples", "distinct", "test_samples"):
            number = getattr(facts, name)
            _check(isinstance(number, int) and 0 <= number < MAX_SAMPLES, name)
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

    def to_json(self) -> Json:
        clients = {str(client): asdict(facts) for client, facts in self.clients.items()}
        return {"common": self.common.to_json(), "clients": clients}

    @classmethod
    def from_json(cls, values: Json) -> Self:
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: a value cannot be true.
            AttributeError, KeyError, TypeError: the form is another one.
        """
        common = Common.from_json(values["common"])
        limit = len(common.classes) + 1
        clients = {}
        for client, entry in values["clients"].items():
            facts = ClientFacts.from_json(entry)
            _check(0 <= float(facts.effective_classes) < limit, "effective_classes")
            clients[int(client)] = facts
        return cls(common, clients)


@dataclass(frozen=True)
class NodeFacts:
    """What a node answers when it is asked about its samples."""

    own: bool  # whether they are the site's own; if not, they are those of the recipe
    content: str  # a hash of them
    site: SiteFacts | None = None  # of own samples; None: what it said of them is invalid

    def to_json(self) -> Json:
        site = {} if self.site is None else self.site.to_json()
        return {"own": self.own, "content": self.content, **site}

    @classmethod
    def from_json(cls, values: Json) -> Self:
        """Read what some node wrote.

        Raises:
            InputError: it does not say whose its samples are.
            KeyError, TypeError: the form is another one.
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


def merge_common(sites: Mapping[int, Common]) -> Common:
    """Return what all sites have in common, with the names of all classes, sorted.

    Args:
        sites: what each client's site said.

    Raises:
        InputError: the samples of two sites differ in shape or type.

    >>> one = Common((4,), "float32", ("2", "10"))
    >>> merge_common({0: one, 1: Common((4,), "float32", ("cat", "1"))}).classes
    ('1', '2', '10', 'cat')
    """
    (first_client, first), *others = sorted(sites.items())
    for client, other in others:
        _check_same(client, "shape", list(other.shape), first_client, list(first.shape))
        _check_same(client, "dtype", other.dtype, first_client, first.dtype)
    names = {name for common in sites.values() for name in common.classes}
    return Common(first.shape, first.dtype, tuple(sorted(names, key=_sort_key)))


def _check_same(
    client: int, key: str, value: object, first_client: int, first_value: object
) -> None:
    if value != first_value:
        raise InputError(
            f"client {client}: samples of {key} {value}, those of client {first_client} have "
            f"{first_value}; all sites must have the same"
        )


def _sort_key(name: str) -> tuple[int, int, str]:
    """Sort names that are numbers by their value, before all others."""
    return (0, int(name), "") if name.isdecimal() else (1, 0, name)


def _check(possible: bool, what: str) -> None:
    if not possible:
        raise ValueError(f"{what} cannot be right")
