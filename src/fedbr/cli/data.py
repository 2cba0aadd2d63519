"""fedbr data: get, check and show data sets."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from ..core.samples import Index, Samples
    from ..data import DataOptions, Federation
    from ..data.published import Published
    from ..data.source import Source
    from ..recipe.schema import Recipe
    from ..util.errors import InputError

app = typer.Typer(help="Get, check and show data sets.", no_args_is_help=True)

SHOWN = 20  # lines of clients, names of classes

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
    """Download the official files of a data set (mnist, cifar10, cifar100) and verify them; resumes
    when stopped.
    """
    from ..data import download
    from ..data.files import choose_folder
    from .progress import Progress

    published = _published(name)
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
    """Read a data set, compare it with what is published, and say what is in it: counts, classes,
    clients, a hash.
    """
    from ..data import DATASETS

    if name not in DATASETS:
        raise _unknown(name)
    dataset, options = DATASETS[name], _recipe(name, path=path, size=size, unseen=unseen).data
    source = dataset.load(options)
    print(f"{name}: {dataset.summary}")
    if dataset.published is not None:
        print(f"  files   {dataset.published.verdict(options.path, source)}")
    print(f"  train   {_contents(source.train, source.num_classes)}")
    print(f"  test    {_contents(source.test, source.num_classes)}")
    if source.class_names is not None:
        print(f"  classes {_listed(source.class_names)}")
    if source.owner is not None:
        print(f"  clients {_owners(source, source.owner)}")
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
    from ..report.gallery import labels, title
    from ..report.split_picture import draw_split
    from ..util.errors import InputError
    from ..util.imports import require

    recipe = _recipe(
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
    options, seed = recipe.data, recipe.train.seeds[0] if seed is None else seed
    target = out or Path(f"{recipe.name}.png")
    if target.suffix not in (".png", ".svg"):
        raise InputError(f"--out {target}: a name that ends in .png or .svg")
    if not target.parent.is_dir():
        raise InputError(f"--out {target}: there is no folder {target.parent}")
    require("matplotlib", extra="report", wanted_by="fedbr data show")
    if proxy is None and not options.proxy:
        federation = _load_with_photos(options, seed)
    else:
        federation = data.load(options, seed)
    heading, names = title(options, federation, seed), labels(options, federation)
    draw_split(federation, target, heading, names)
    _print_split(federation, heading, names)
    print(f"Picture: {target}")
    return 0


def _print_split(federation: Federation, heading: str, names: Sequence[str]) -> None:
    split = federation.census.split
    print(f"{heading}; split {split.hash}")
    width = max(map(len, names[:SHOWN]))
    rows = list(zip(names, split.sizes, split.effective_classes, strict=True))
    for label, count, effective in rows[:SHOWN]:
        print(f"  {label:<{width}} {count:>8,} samples, {effective:.1f} effective classes")
    if len(rows) > SHOWN:
        print(f"  ... and {len(rows) - SHOWN:,} more")


def _recipe(name: str, **given: Any) -> Recipe:
    """Make a recipe of a data set's name, or take a recipe's data.

    given: what goes before what the recipe says.
    """
    from ..data import DATASETS
    from ..recipe import load as config

    values: dict[str, Any] = {"name": name, "compare": [{"label": "FedAvg", "methods": []}]}
    base: dict[str, Any] = {"name": name}
    if name not in DATASETS:
        if name not in config.list_shipped() and not name.endswith(".toml"):
            raise _unknown(name, config.list_shipped())
        recipe = config.load(name)
        values |= {"name": recipe.name, "train": {"seeds": recipe.train.seeds}}
        base = recipe.data.model_dump(exclude_none=True)
    elif name in ("npz", "folder") and given["path"]:
        place = Path(given["path"]).resolve()
        values["name"] = config.make_name(place.name if place.is_dir() else place.stem)
    if given.get("partition") == "domains":
        base.pop("clients", None)  # the data say how many
    base |= {key: value for key, value in given.items() if value is not None}
    return config.parse(values | {"data": base})


def _published(name: str) -> Published:
    """Return the files of a data set, by its name or by what they are called."""
    from ..data import DATASETS
    from ..util.errors import InputError, unknown

    if name in DATASETS:
        published = DATASETS[name].published
        if published is None:
            whose = "is yours" if name in ("npz", "folder") else "comes with scikit-learn"
            raise InputError(f"data = {name!r}: {name} {whose}: nothing to download")
        return published
    known = [dataset.published for dataset in DATASETS.values()]
    by_name = {published.name: published for published in known if published is not None}
    if name not in by_name:
        raise unknown("data set", name, by_name)
    return by_name[name]


def _unknown(name: str, recipes: Sequence[str] = ()) -> InputError:
    """Refuse a name; that of files is explained."""
    from ..data import DATASETS
    from ..util.errors import InputError, unknown

    made = sorted(known for known, dataset in DATASETS.items() if dataset.files == name)
    if made:
        return InputError(f"data = {name!r}: {name} is read as {' or '.join(made)}")
    return unknown("data", name, {*DATASETS, *recipes})


def _load_with_photos(options: DataOptions, seed: int) -> Federation:
    """Load with public photographs for Mixture, unless the samples are no images."""
    from .. import data
    from ..util.errors import InputError

    try:
        return data.load(options.model_copy(update={"proxy": "photos"}), seed)
    except InputError as error:
        if "data.proxy" not in str(error):
            raise
        return data.load(options, seed)


def _contents(samples: Samples, num_classes: int) -> str:
    """Say how many samples of which classes there are, and of which form."""
    counts = samples.y.bincount(minlength=num_classes)
    shape = " x ".join(map(str, samples.x.shape[1:]))
    form = str(samples.x.dtype).removeprefix("torch.")
    each = " to ".join(f"{n:,}" for n in sorted({int(counts.min()), int(counts.max())}))
    present = int((counts > 0).sum())
    return (
        f"{len(samples):>7,} samples of {shape} ({form}), {present} of {num_classes} classes, "
        f"{each} each, sha256 {_hash(samples)}"
    )


def _owners(source: Source, owner: Index) -> str:
    """Name the natural clients and the sizes of each."""
    import numpy as np

    sizes = [int(count) for count in np.bincount(owner)]
    names = source.client_names or [f"client {i}" for i in range(len(sizes))]
    owners = [f"{name} ({size:,})" for name, size in zip(names, sizes, strict=True)]
    return f"{len(sizes)} of its own (partition domains): {_listed(owners)}"


def _listed(names: Sequence[str]) -> str:
    more = f", ... and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _hash(samples: Samples) -> str:
    digest = sha256(samples.x.numpy().tobytes())
    digest.update(samples.y.numpy().tobytes())
    return digest.hexdigest()[:16]
