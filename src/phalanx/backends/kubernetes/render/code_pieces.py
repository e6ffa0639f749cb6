"""The packed code of a run as ConfigMaps, in pieces that `kubectl apply` accepts: it keeps a copy of each object in an
annotation of the object, which Kubernetes limits to 256 KiB. Pods mount all pieces in one folder and join them."""

from __future__ import annotations

from typing import NamedTuple

CODE = "code.tar.gz"
LARGEST_CODE = 700 << 10
PIECE_BYTES = 180 << 10  # 240 KiB as base64: leaves room for names, labels and the key of the annotation
_COUNT = -(-LARGEST_CODE // PIECE_BYTES)


class CodePiece(NamedTuple):
    """`what`: the end of the ConfigMap's name. `file`: its file in the pod."""

    what: str
    file: str
    data: bytes = b""


# Jobs are rendered before the size of the code is known: they mount all pieces that there may be.
PIECES = (CodePiece("code", CODE), *(CodePiece(f"code-{n}", f"{CODE}.{n}") for n in range(1, _COUNT)))


def split(packed: bytes) -> list[CodePiece]:
    """At least one piece, also without code. The caller has checked that it is not too large."""
    starts = range(0, len(packed) or 1, PIECE_BYTES)
    return [
        piece._replace(data=packed[start : start + PIECE_BYTES]) for piece, start in zip(PIECES, starts, strict=False)
    ]
