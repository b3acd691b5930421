"""Files that `torch.load(…, weights_only=True)` opens, without torch: numbers and flat tensors."""

import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

_STORAGES = {"int64": "LongStorage", "bool": "BoolStorage"}


def write_numbers(path: Path, numbers: Mapping[int, int]) -> None:
    """A dict of int to int."""
    items = b"".join(_integer(key) + _integer(value) for key, value in numbers.items())
    _write(path, items, [])


def write_tensors(path: Path, tensors: Mapping[str, npt.NDArray[np.int64 | np.bool_]]) -> None:
    """A dict of names to tensors of one dimension."""
    items = b"".join(
        _text(name) + _tensor(key, array) for key, (name, array) in enumerate(tensors.items())
    )
    _write(path, items, list(tensors.values()))


def _write(path: Path, items: bytes, arrays: list[npt.NDArray[np.int64 | np.bool_]]) -> None:
    """A pickle of a dict beside its storages, stored in a zip as `torch.save` does."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x02}(" + items + b"u.")
        file.writestr("archive/byteorder", "little")
        for key, array in enumerate(arrays):
            file.writestr(f"archive/data/{key}", array.tobytes())
        file.writestr("archive/version", "3\n")


def _tensor(key: int, array: npt.NDArray[np.int64 | np.bool_]) -> bytes:
    """`torch._utils._rebuild_tensor_v2(storage, 0, size, stride, False, OrderedDict())`."""
    length = _integer(len(array))
    storage = b"ctorch\n" + _STORAGES[str(array.dtype)].encode() + b"\n"
    persistent = b"(" + _text("storage") + storage + _text(str(key)) + _text("cpu") + length + b"tQ"
    shape = _integer(0) + b"(" + length + b"t(" + _integer(1) + b"t\x89"
    hooks = b"ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + persistent + shape + hooks + b"tR"


def _text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _integer(value: int) -> bytes:
    """Of 64 bits."""
    return b"\x8a\x08" + struct.pack("<q", value)
