"""fedbr data: get, check and show data sets."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

if TYPE_CHECKING:
    from ..core.data import Samples
    from ..data import Dataset

app = typer.Typer(help="Get, check and show data sets.", no_args_is_help=True)

NAME = typer.Argument(...)
PATH = typer.Option("", "--path", help="Folder or archive with the files; default: $FEDBR_DATA, or the cache folder.")
PARTITION = typer.Option("", "--partition", help="How to deal the samples; default: the data set's own.")
ALPHA = typer.Option(0.1, "--alpha", help="Concentration of lda, lda-prior and quantity.")
CLIENTS = typer.Option(None, "--clients", help="Number of clients.")
PROXY = typer.Option("photos", "--proxy", help="Public samples for Mixture: photos, noise, or nothing.")
UNSEEN = typer.Option("", "--unseen", help="PACS: the domain to leave out.")
SEED = typer.Option(0, "--seed", min=0, help="Which split.")
OUT = typer.Option(None, "--out", help="Where the picture goes (.png or .svg).")


@app.command("get")
def get(name: str = NAME, path: str = PATH) -> int:
    """Download the official files of a data set (mnist, cifar10, cifar100) and verify them; resumes when stopped."""
    from ..core.errors import InputError
    from ..data import DATASETS, download
    from ..data.place import place

    files = DATASETS[name].files if name in DATASETS else name
    if not files:
        raise InputError(f"data = {name!r}: needs no files of ours")
    target = place(path)
    console = Console(stderr=True)
    columns = ("[progress.description]{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(files, total=None)
        found = download.get(files, target, lambda done, total: bar.update(task, completed=done, total=total))
    for file in found:
        print(file)
    return 0


@app.command("check")
def check(name: str = NAME, path: str = PATH) -> int:
    """Read a data set and say what is in it: counts, classes, clients of its own, and a hash of the content."""
    from .. import config

    dataset = _known(name)
    stacks = [{"label": "FedAvg", "methods": []}]
    source = dataset.load(config.parse({"data": {"name": name, "path": path}, "compare": stacks}).data)
    print(f"{name}: {dataset.summary}")
    for what, part in (("train", source.train), ("test", source.test)):
        counts = part.y.bincount(minlength=source.num_classes)
        shape = " x ".join(map(str, part.x.shape[1:]))
        print(
            f"  {what:<5} {len(part):>7,} samples of {shape} ({_type(part)}), {int((counts > 0).sum())} of "
            f"{source.num_classes} classes, {int(counts.min()):,} to {int(counts.max()):,} each, sha256 {_hash(part)}"
        )
    if source.owner is not None:
        sizes = [int(n) for n in _counts(source.owner)]
        print(f"  {len(sizes)} clients of its own (partition domains), with {min(sizes):,} to {max(sizes):,} samples")
    return 0


@app.command("show")
def show(
    name: str = NAME,
    path: str = PATH,
    partition: str = PARTITION,
    alpha: float = ALPHA,
    clients: int | None = CLIENTS,
    proxy: str = PROXY,
    unseen: str = UNSEEN,
    seed: int = SEED,
    out: Path | None = OUT,
) -> int:
    """Draw a split: clients and classes, samples as the model sees them, and pseudo-data."""
    from .. import config, data
    from ..core.errors import InputError
    from ..results.gallery import picture

    _known(name)
    values: dict[str, Any] = {"name": name, "path": path, "alpha": alpha, "proxy": proxy, "unseen": unseen}
    values |= {"partition": partition} if partition else {}
    values |= {} if clients is None else {"clients": clients}
    recipe = config.parse({"data": values, "compare": [{"label": "FedAvg", "methods": []}]})
    target = out or Path(f"{name}.png")
    if target.suffix not in (".png", ".svg"):
        raise InputError(f"--out {target}: a name that ends in .png or .svg")
    try:
        federation = data.load(recipe.data, seed)
    except InputError as error:
        if "proxy" not in str(error) or proxy != "photos":
            raise
        federation = data.load(recipe.data.model_copy(update={"proxy": ""}), seed)  # no pictures, no photos
    split = federation.describe()
    how = f"{recipe.data.partition} (alpha {alpha:g})" if "lda" in recipe.data.partition else recipe.data.partition
    title = f"{name}: {len(split['sizes'])} clients, {how}, seed {seed}"
    picture(federation, target, title)
    print(f"{title}; split {split['hash']}")
    shown = list(zip(split["sizes"], split["effective_classes"], strict=True))
    for client, (size, effective) in enumerate(shown[:20]):
        print(f"  client {client:>3}: {size:>6,} samples, {effective:.1f} effective classes")
    if len(shown) > 20:
        print(f"  and {len(shown) - 20} more")
    print(f"Picture: {target}")
    return 0


def _known(name: str) -> Dataset:
    from ..core.errors import unknown
    from ..data import DATASETS

    if name not in DATASETS:
        raise unknown("data", name, DATASETS)
    return DATASETS[name]


def _type(samples: Samples) -> str:
    return str(samples.x.dtype).removeprefix("torch.")


def _hash(samples: Samples) -> str:
    digest = sha256(samples.x.numpy().tobytes())
    digest.update(samples.y.numpy().tobytes())
    return digest.hexdigest()[:16]


def _counts(owner: Any) -> Any:
    import numpy as np

    return np.bincount(owner)
