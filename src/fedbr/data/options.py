"""What a recipe may say of its data: the fields of its [data] section."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class DataOptions(BaseModel):
    """Which data set, and how it is split.

    >>> DataOptions(name="digits", clients=5).partition  # empty: the data set's own
    ''
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)

    name: str = Field("digits", description="data set")
    path: str = Field(
        "",
        description="where its files are; default: $FEDBR_DATA, or where fedbr data get puts them",
    )
    clients: int | None = Field(
        None, ge=1, description="number of clients; with domains the data say it"
    )
    partition: str = Field(
        "", description="how samples are dealt to clients; default: the data set's own"
    )
    alpha: float = Field(0.1, gt=0, description="lda, lda-prior, quantity: concentration")
    shards_per_client: int = Field(2, ge=1, description="shards: how many each client gets")
    rotation: float = Field(
        0.1, gt=0, description="rotated-cifar10: concentration of a client's angles"
    )
    unseen: str = Field("", description="pacs: the domain to test on, in which nobody trains")
    size: int = Field(32, ge=1, description="folder, pacs: images are scaled to size x size")
    shrink: int = Field(
        1, ge=1, description="average so many pixels each way into one: smaller images, faster runs"
    )
    proxy: str = Field("", description="public samples for mixtures: photos or noise")
    holdout: float = Field(
        0.0, ge=0, lt=1, description="tune on this share of the training samples, not on the test"
    )
