"""Writes arrays as PNG and WAV files, without any library. Standard library only, Python 3.8+.

Arrays are those of numpy, PyTorch, TensorFlow or JAX, or nested lists. Nothing is imported: they convert themselves.
"""

from __future__ import annotations

import array
import struct
import sys
import zlib
from typing import Any, NamedTuple

from phalanx.tracking.values import NotANumber, number, some_of

MOST_PIXELS = 64 << 20
MOST_SAMPLES = 256 << 20
COLORS = {1: 0, 2: 4, 3: 2, 4: 6}  # PNG's number for gray, gray and alpha, RGB, RGBA


class Pixels(NamedTuple):
    height: int
    width: int
    channels: int
    data: bytes  # row by row


def write_png(content: Any, path: str) -> None:
    """Write an image of height x width (x channels), or channels first as PyTorch has it: whole numbers from 0 to 255,
    or fractions from 0 to 1. Raises NotANumber, OSError, and what the library raises."""
    image = pixels_of(content)
    row = image.width * image.channels
    rows = b"".join(b"\0" + image.data[start : start + row] for start in range(0, len(image.data), row))
    head = struct.pack(">IIBBBBB", image.width, image.height, 8, COLORS[image.channels], 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(rows, 3)), (b"IEND", b"")]
    with open(path, "wb") as stream:
        stream.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in parts:
            stream.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))


def pixels_of(content: Any) -> Pixels:
    """Raises NotANumber, and what the library raises."""
    image = _array(content)
    if image is None:
        return _pixels_of_lists(content)
    shape = tuple(int(length) for length in image.shape)
    is_pytorch = callable(getattr(content, "detach", None))  # its images have their channels first
    if len(shape) == 3 and shape[0] in (1, 3, 4) and (is_pytorch or shape[2] not in COLORS):
        image = image.transpose(1, 2, 0)
        shape = (shape[1], shape[2], shape[0])
    _check_shape(shape)
    kind = str(image.dtype)
    if kind == "bool":
        image = image.astype("uint8") * 255
    elif kind != "uint8":
        is_fraction = "float" in kind and float(image.max()) <= 1.0 + 1e-6
        image = (image * 255.0 + 0.5 if is_fraction else image).clip(0, 255)
    return Pixels(shape[0], shape[1], shape[2] if len(shape) == 3 else 1, bytes(image.astype("uint8").tobytes()))


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) not in (2, 3) or 0 in shape or (len(shape) == 3 and shape[2] not in COLORS):
        raise NotANumber(f"an image has height x width, or 1 to 4 channels besides, not {' x '.join(map(str, shape))}")
    if shape[0] * shape[1] > MOST_PIXELS:
        raise NotANumber(f"an image of more than {MOST_PIXELS:,} pixels")


def _pixels_of_lists(content: Any) -> Pixels:
    rows = [some_of(row, MOST_PIXELS) for row in some_of(content, MOST_PIXELS)]
    first = rows[0][0] if rows and rows[0] else None
    channels = len(first) if isinstance(first, (list, tuple)) else 1
    _check_shape((len(rows), len(rows[0]) if rows else 0, channels))
    values = [number(value) for row in rows for cell in row for value in (cell if channels > 1 else _only(cell))]
    if len(values) != len(rows) * len(rows[0]) * channels:
        raise NotANumber("the rows of an image must have the same length")
    scale = 255.0 if any(value % 1 for value in values) and max(values) <= 1.0 else 1.0
    data = bytes(min(255, max(0, int(value * scale + 0.5))) for value in values)
    return Pixels(len(rows), len(rows[0]), channels, data)


def _only(cell: Any) -> Any:
    return cell if isinstance(cell, (list, tuple)) else (cell,)


def _array(content: Any) -> Any:
    """The content as an array of a library, in main memory; None for lists. Other objects have a `detach`, too: it
    would close an open file."""
    if not hasattr(content, "shape"):
        return None
    if callable(getattr(content, "detach", None)):  # PyTorch
        content = content.detach().cpu()
        content = content.float() if str(content.dtype) == "torch.bfloat16" else content  # numpy has no such type
    if not hasattr(content, "astype") and callable(getattr(content, "numpy", None)):  # PyTorch, TensorFlow
        content = content.numpy()
    if not all(hasattr(content, name) for name in ("dtype", "astype", "tobytes", "clip")):
        raise NotANumber(f"a {type(content).__name__} cannot be read as an array")
    return content


def write_wav(content: Any, rate: int, path: str) -> None:
    """Write sound of samples, or samples x channels: fractions from -1 to 1, or 16-bit whole numbers. Raises
    NotANumber, OSError, and what the library raises."""
    import wave

    sound = _array(content)
    channels = 1
    if sound is None:
        values = [number(value) for value in some_of(content, MOST_SAMPLES)]
        scale = 32767.0 if all(-1.0 <= value <= 1.0 for value in values) else 1.0
        samples = array.array("h", (max(-32768, min(32767, int(value * scale))) for value in values))
        if sys.byteorder == "big":
            samples.byteswap()
        data = samples.tobytes()
    else:
        shape = tuple(int(length) for length in sound.shape)
        if len(shape) == 2 and shape[0] <= 8 < shape[1]:  # channels first, as PyTorch has it
            sound, shape = sound.transpose(1, 0), (shape[1], shape[0])
        if len(shape) not in (1, 2) or 0 in shape or (len(shape) == 2 and shape[1] > 8):
            raise NotANumber(f"sound has samples, or samples x channels, not {' x '.join(map(str, shape))}")
        if shape[0] > MOST_SAMPLES:
            raise NotANumber(f"more than {MOST_SAMPLES:,} samples")
        channels = shape[1] if len(shape) == 2 else 1
        sound = sound * 32767.0 if "float" in str(sound.dtype) else sound
        data = bytes(sound.clip(-32768, 32767).astype("<i2").tobytes())
    with wave.open(path, "wb") as stream:
        stream.setnchannels(channels)
        stream.setsampwidth(2)
        stream.setframerate(int(rate))
        stream.writeframes(data)
