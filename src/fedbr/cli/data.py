"""fedbr data: get, check and show data sets."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..core.samples import Index, Samples
    from ..data import DataOptions, Federation
    from ..data.published import Published
    from ..data.source import Source
    from ..recipe.schema import Recipe
    from ..util.errors import InputError

app = typer.Typer(help="Get, check and show data sets.", no_args_is_help=True)

SHOWN = 20  # at most so many clients, or names of classes, are printed

NAME = typer.Argument(...)
TARGET = typer.Option(
    "", "--path", help="Folder to download into; default: $FEDBR_DATA, or our data folder."
)
PATH = typer.Option(
    None, "--path", help="Folder or archive with the files; default: $FEDBR_DATA, then downloads."
)
PARTITION = typer.Option(
    None, "--partition", help="How to deal the samples; default: the data set's own."
)
ALPHA = typer.Option(
    None, "--alpha", help="Concentration of lda, lda-prior and quantity; default: 0.1."
)
SHARDS = typer.Option(
    None, "--shards-per-client", help="shards: how many each client gets; default: 2."
)
CLIENTS = typer.Option(None, "--clients", help="Number of clients.")
ROTATION = typer.Option(
    None, "--rotation", help="rotated-cifar10: concentration of a client's angles; default: 0.1."
)
SIZE = typer.Option(
    None, "--size", help="folder, pacs: images are scaled to size x size; default: 32."
)
PROXY = typer.Option(
    None, "--proxy", help="Public samples for Mixture: photos (default), noise or none."
)
UNSEEN = typer.Option(None, "--unseen", help="pacs: the domain to leave out.")
SEED = typer.Option(
    None, "--seed", min=0, help="Which split; default: the recipe's first seed, or 0."
)
OUT = typer.Option(None, "--out", help="Where the picture goes (.png or .svg).")


@app.command("get")
def get(name: str = NAME, path: str = TARGET) -> int:
    """Download the official files of a data set and verify them.

    NAME is mnist, cifar10 or cifar100. A download that was stopped resumes.
    """
    from ..data import download
    from ..data.files import choose_folder
    from .progress import Progress

    published = _find_published(name)
    with Progress() as progress:
        files = download.get(
            published,
            choose_folder(path),
            lambda done, total: progress.update(published.name, done / 1e6, total / 1e6, "MB"),
        )
    for file in files:
        print(file)
    return 0


@app.command("check")
def check(
    name: str = NAME, path: str | None = PATH, size: int | None = SIZE, unseen: str | None = UNSEEN
) -> int:
    """Read a data set and compare it with what is published.

    Prints the numbers of samples, the classes, the clients and a hash.
    """
    from ..data import DATASETS

    if name not in DATASETS:
        raise _unknown_name(name)
    dataset = DATASETS[name]
    options = _make_recipe(name, path=path, size=size, unseen=unseen).data
    source = dataset.load(options)
    print(f"{name}: {dataset.summary}")
    if dataset.published is not None:
        print(f"  files   {dataset.published.verdict(options.path, source)}")
    print(f"  train   {_describe_samples(source.train, source.num_classes)}")
    print(f"  test    {_describe_samples(source.test, source.num_classes)}")
    if source.class_names is not None:
        print(f"  classes {_join_names(source.class_names)}")
    if source.owner is not None:
        print(f"  clients {_describe_clients(source, source.owner)}")
    return 0


@app.command("show")
def show(
    name: str = NAME,
    path: str | None = PATH,
    partition: str | None = PARTITION,
    alpha: float | None = ALPHA,
    shards_per_client: int | None = SHARDS,
    clients: int | None = CLIENTS,
    rotation: float | None = ROTATION,
    size: int | None = SIZE,
    unseen: str | None = UNSEEN,
    proxy: str | None = PROXY,
    seed: int | None = SEED,
    out: Path | None = OUT,
) -> int:
    """Draw a split: clients and classes, samples as the model sees them, and pseudo-data.

    NAME is a data set (fedbr list data), a shipped recipe or a TOML file.
    """
    from .. import data
    from ..report.gallery import label_clients, title
    from ..report.split_picture import draw_split
    from ..util.errors import InputError
    from ..util.imports import require

    recipe = _make_recipe(
        name,
        path=path,
        partition=partition,
        alpha=alpha,
        shards_per_client=shards_per_client,
        clients=clients,
        rotation=rotation,
        size=size,
        unseen=unseen,
        proxy="" if proxy == "none" else proxy,
    )
    options = recipe.data
    if seed is None:
        seed = recipe.train.seeds[0]
    target = out or Path(f"{recipe.name}.png")
    if target.suffix not in (".png", ".svg"):
        raise InputError(f"--out {target}: expected a name that ends in .png or .svg")
    if not target.parent.is_dir():
        raise InputError(f"--out {target}: there is no folder {target.parent}")
    require("matplotlib", extra="report", needed_by="fedbr data show")
    if proxy is None and not options.proxy:
        federation = _load_with_photos(options, seed)
    else:
        federation = data.load(options, seed)
    heading = title(options, federation, seed)
    names = label_clients(options, federation)
    draw_split(federation, target, heading, names)
    _print_split(federation, heading, names)
    print(f"Picture: {target}")
    return 0


def _print_split(federation: Federation, heading: str, names: Sequence[str]) -> None:
    """Print how many samples and classes each client has."""
    split = federation.census.split
    print(f"{heading}; split {split.hash}")
    width = max(map(len, names[:SHOWN]))
    rows = list(zip(names, split.sizes, split.effective_classes, strict=True))
    for label, count, effective in rows[:SHOWN]:
        print(f"  {label:<{width}} {count:>8,} samples, {effective:.1f} effective classes")
    if len(rows) > SHOWN:
        print(f"  ... and {len(rows) - SHOWN:,} more")


def _make_recipe(name: str, **changes: object) -> Recipe:
    """Make a recipe of a data set's name, or take a recipe's data.

    Args:
        name: a data set, a shipped recipe or a TOML file.
        changes: values of [data] that go before what the recipe says; None: as it says.
    """
    from ..data import DATASETS
    from ..recipe import load as config

    values: dict[str, object] = {"name": name, "compare": [{"label": "FedAvg", "methods": []}]}
    data: dict[str, object] = {"name": name}
    path = changes.get("path")
    if name not in DATASETS:
        shipped = config.list_shipped()
        if name not in shipped and not name.endswith(".toml"):
            raise _unknown_name(name, shipped)
        recipe = config.load(name)
        values |= {"name": recipe.name, "train": {"seeds": recipe.train.seeds}}
        data = recipe.data.model_dump(exclude_none=True)
    elif name in ("npz", "folder") and path:
        place = Path(str(path)).resolve()
        values["name"] = config.make_name(place.name if place.is_dir() else place.stem)
    if changes.get("partition") == "domains":
        data.pop("clients", None)  # the data say how many
    data |= {key: value for key, value in changes.items() if value is not None}
    return config.parse(values | {"data": data})


def _find_published(name: str) -> Published:
    """Return the files of a data set, by its name or by what they are called."""
    from ..data import DATASETS
    from ..util.errors import InputError, unknown

    if name in DATASETS:
        published = DATASETS[name].published
        if published is None:
            whose = "is yours" if name in ("npz", "folder") else "comes with scikit-learn"
            raise InputError(f"data = {name!r}: {name} {whose}: nothing to download")
        return published
    by_name = {}
    for dataset in DATASETS.values():
        if dataset.published is not None:
            by_name[dataset.published.name] = dataset.published
    if name not in by_name:
        raise unknown("data set", name, by_name)
    return by_name[name]


def _unknown_name(name: str, recipes: Sequence[str] = ()) -> InputError:
    """Return the error for a name that is no data set; it explains names of files."""
    from ..data import DATASETS
    from ..util.errors import InputError, unknown

    read_as = sorted(key for key, dataset in DATASETS.items() if dataset.files == name)
    if read_as:
        return InputError(f"data = {name!r}: {name} is read as {' or '.join(read_as)}")
    return unknown("data", name, {*DATASETS, *recipes})


def _load_with_photos(options: DataOptions, seed: int) -> Federation:
    """Load samples with public photographs for Mixture, unless they are no images."""
    from .. import data
    from ..util.errors import InputError

    try:
        return data.load(options.model_copy(update={"proxy": "photos"}), seed)
    except InputError as error:
        if "data.proxy" not in str(error):
            raise
        return data.load(options, seed)


def _describe_samples(samples: Samples, num_classes: int) -> str:
    """Say how many samples of which classes there are, and of which shape and type."""
    counts = samples.y.bincount(minlength=num_classes)
    shape = " x ".join(map(str, samples.x.shape[1:]))
    dtype = str(samples.x.dtype).removeprefix("torch.")
    extremes = sorted({int(counts.min()), int(counts.max())})
    each = " to ".join(f"{count:,}" for count in extremes)
    present = int((counts > 0).sum())
    return (
        f"{len(samples):>7,} samples of {shape} ({dtype}), {present} of {num_classes} classes, "
        f"{each} each, sha256 {_hash(samples)}"
    )


def _describe_clients(source: Source, owner: Index) -> str:
    """Name the natural clients and the sizes of each."""
    import numpy as np

    sizes = [int(count) for count in np.bincount(owner)]
    names = source.client_names or [f"client {i}" for i in range(len(sizes))]
    clients = [f"{name} ({size:,})" for name, size in zip(names, sizes, strict=True)]
    return f"{len(sizes)} of its own (partition domains): {_join_names(clients)}"


def _join_names(names: Sequence[str]) -> str:
    """Join names with commas, and say how many more there are."""
    text = ", ".join(names[:SHOWN])
    more = len(names) - SHOWN
    return f"{text}, ... and {more:,} more" if more > 0 else text


def _hash(samples: Samples) -> str:
    digest = sha256(samples.x.numpy().tobytes())
    digest.update(samples.y.numpy().tobytes())
    return digest.hexdigest()[:16]
