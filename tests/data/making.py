"""Archives and folders for tests to read, and the one line of a refusal."""

from __future__ import annotations

import io
import tarfile
import zipfile

import pytest

from fedbr.util.errors import InputError


def refusal(function, *arguments, **keywords):
    with pytest.raises(InputError) as error:
        function(*arguments, **keywords)
    assert "\n" not in str(error.value)
    return str(error.value)


def make_zip(content, compression=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, blob in content.items():
            archive.writestr(name, blob)
    return buffer.getvalue()


def make_tar(content, mode="w", more=()):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, blob in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(blob)
            archive.addfile(info, io.BytesIO(blob))
        for name, kind, target in more:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
    return buffer.getvalue()


def put(folder, content):
    for name, blob in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob)
    return folder
