"""The process of a node in which its clients train, but what they answer is wrong.

hostile.py SOCKET nan|shape
"""

from __future__ import annotations

import sys
from dataclasses import replace

from fedbr.flower import app as apps
from fedbr.flower import daemon
from fedbr.flower.messages import pack_answer, unpack_answer
from fedbr.flower.types import Blobs, Config

CHANGES = {"nan": lambda v: v * float("nan"), "shape": lambda v: v[:1]}
honest = apps.reply_here


def hostile(blobs: Blobs, config: Config) -> Blobs:
    header, replies = unpack_answer(honest(blobs, config))
    change = CHANGES[sys.argv[2]]
    spoiled = [
        {name: {k: change(v) for k, v in s.items()} for name, s in r.payload.items()}
        for r in replies
    ]
    return pack_answer(
        header, [replace(r, payload=p) for r, p in zip(replies, spoiled, strict=True)]
    )


if __name__ == "__main__":
    apps.reply_here = hostile
    daemon.main(sys.argv[1])
