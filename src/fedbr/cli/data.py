"""fedbr data: get, check and show data sets."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:
    from ..core.samples import Samples
    from ..data import DataOptions, Federation
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
    from ..data import DATASETS, download
    from ..data.place import place
    from ..util.errors import InputError

    files = DATASETS[name].files if name in DATASETS else name
    if not files:
        whose = "is yours" if name in ("npz", "folder") else "comes with scikit-learn"
        raise InputError(f"data = {name!r}: {name} {whose}: nothing to download")
    target = place(path)
    console = Console(stderr=True)
    columns = (
        "[progress.description]{task.description}",
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(files, total=None)
        found = download.get(
            files, target, lambda done, total: bar.update(task, completed=done, total=total)
        )
    for file in found:
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
    from ..data.official import verdict

    if name not in DATASETS:
        raise _strange(name)
    dataset, options = DATASETS[name], _recipe(name, path=path, size=size, unseen=unseen).data
    with _plain_warnings():
        source = dataset.load(options)
    print(f"{name}: {dataset.summary}")
    if dataset.files:
        print(f"  files   {verdict(dataset.files, options.path, source)}")
    for what, part in (("train", source.train), ("test", source.test)):
        counts = part.y.bincount(minlength=source.num_classes)
        shape = " x ".join(map(str, part.x.shape[1:]))
        each = " to ".join(f"{n:,}" for n in sorted({int(counts.min()), int(counts.max())}))
        print(
            f"  {what:<7} {len(part):>7,} samples of {shape} ({_type(part)}), {int((counts > 0).sum())} of "
            f"{source.num_classes} classes, {each} each, sha256 {_hash(part)}"
        )
    if source.class_names is not None:
        print(f"  classes {_listed(source.class_names)}")
    if source.owner is not None:
        sizes = _counts(source.owner)
        names = source.client_names or [f"client {i}" for i in range(len(sizes))]
        owners = [f"{owner} ({count:,})" for owner, count in zip(names, sizes, strict=True)]
        print(f"  clients {len(sizes)} of its own (partition domains): {_listed(owners)}")
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
    from ..report.canvas import picture
    from ..report.gallery import labels, title
    from ..util.errors import InputError
    from ..util.imports import require

    recipe = _recipe(
        name, path=path, partition=partition, alpha=alpha, shards_per_client=shards_per_client, clients=clients,
        rotation=rotation, size=size, unseen=unseen, proxy="" if proxy == "none" else proxy,
    )  # fmt: skip
    options, seed = recipe.data, recipe.train.seeds[0] if seed is None else seed
    target = out or Path(f"{recipe.name}.png")
    if target.suffix not in (".png", ".svg"):
        raise InputError(f"--out {target}: a name that ends in .png or .svg")
    if not target.parent.is_dir():
        raise InputError(f"--out {target}: there is no folder {target.parent}")
    require("matplotlib", extra="report", wanted_by="fedbr data show")
    with _plain_warnings():
        federation = (
            _with_photos(options, seed)
            if proxy is None and not options.proxy
            else data.load(options, seed)
        )
        heading, names = title(options, federation, seed), labels(options, federation)
        picture(federation, target, heading, names)
    split = federation.describe()
    print(f"{heading}; split {split['hash']}")
    width = max(map(len, names[:SHOWN]))
    rows = list(zip(names, split["sizes"], split["effective_classes"], strict=True))
    for label, count, effective in rows[:SHOWN]:
        print(f"  {label:<{width}} {count:>8,} samples, {effective:.1f} effective classes")
    if len(rows) > SHOWN:
        print(f"  ... and {len(rows) - SHOWN:,} more")
    print(f"Picture: {target}")
    return 0


def _recipe(name: str, **given: Any) -> Recipe:
    """Make a recipe of a data set's name, or take a recipe's data; what is given goes before what
    it says.
    """
    from ..data import DATASETS
    from ..recipe import load as config

    values: dict[str, Any] = {"name": name, "compare": [{"label": "FedAvg", "methods": []}]}
    base: dict[str, Any] = {"name": name}
    if name not in DATASETS:
        if name not in config.list_shipped() and not name.endswith(".toml"):
            raise _strange(name, config.list_shipped())
        recipe = config.load(name)
        values |= {"name": recipe.name, "train": {"seeds": recipe.train.seeds}}
        base = recipe.data.model_dump(exclude_none=True)
    elif name in ("npz", "folder") and given["path"]:
        place = Path(given["path"]).resolve()
        values["name"] = config.make_name(place.name if place.is_dir() else place.stem)
    if given.get("partition") == "domains":
        base.pop("clients", None)  # the data say how many
    return config.parse(
        values | {"data": base | {key: value for key, value in given.items() if value is not None}}
    )


def _strange(name: str, recipes: Sequence[str] = ()) -> InputError:
    """Refuse a name; that of files is explained."""
    from ..data import DATASETS
    from ..util.errors import InputError, unknown

    made = sorted(known for known, dataset in DATASETS.items() if dataset.files == name)
    if made:
        return InputError(f"data = {name!r}: {name} is read as {' or '.join(made)}")
    return unknown("data", name, {*DATASETS, *recipes})


def _with_photos(options: DataOptions, seed: int) -> Federation:
    """Load with public photographs for Mixture, unless the samples are no images."""
    from .. import data
    from ..util.errors import InputError

    try:
        return data.load(options.model_copy(update={"proxy": "photos"}), seed)
    except InputError as error:
        if "data.proxy" not in str(error):
            raise
        return data.load(options, seed)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print a warning as one line."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print(f"fedbr: {message}", file=sys.stderr)
        yield


def _listed(names: Sequence[str]) -> str:
    more = f", ... and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _type(samples: Samples) -> str:
    return str(samples.x.dtype).removeprefix("torch.")


def _hash(samples: Samples) -> str:
    digest = sha256(samples.x.numpy().tobytes())
    digest.update(samples.y.numpy().tobytes())
    return digest.hexdigest()[:16]


def _counts(owner: Any) -> list[int]:
    import numpy as np

    return [int(count) for count in np.bincount(owner)]
