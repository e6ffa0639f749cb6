"""Call files and sealed files: what is not exactly what was written is refused before anything is unpickled."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from phalanx.tracking.calls import sealed_files
from phalanx.tracking.calls.rank_call import RankCall, find_call
from phalanx.tracking.calls.sealed_files import UntrustedFile, decode_call, digest_of, encode_call, seal, unseal

KEY = bytes(range(32))
HEADER = {"kind": "result", "run": "abc", "attempt": 1, "rank": 0}
FACTS = {"name": "f", "by_value": False, "python": [3, 11], "paths": []}


def test_a_call_file_has_the_function_and_each_call() -> None:
    data = encode_call(KEY, b"function", [b"first\n", b"", b"third"], FACTS)
    found = decode_call(data, digest_of(data))
    assert found == (KEY, b"function", [b"first\n", b"", b"third"], FACTS)


def test_a_call_file_with_another_content_is_refused() -> None:
    data = encode_call(KEY, b"function", [b"call"], FACTS)
    with pytest.raises(UntrustedFile, match="not the one that was submitted"):
        decode_call(data.replace(b"call", b"cALL"), digest_of(data))
    other = data.replace(b"phalanx-call 1", b"phalanx-call 9")
    with pytest.raises(UntrustedFile, match="another version"):
        decode_call(other, digest_of(other))


def test_a_sealed_file_is_read_with_its_key_and_for_its_place_only() -> None:
    data = seal(KEY, HEADER, b"body\nwith lines")
    assert unseal(KEY, data, run="abc", attempt=1, rank=0) == (HEADER, b"body\nwith lines")
    with pytest.raises(UntrustedFile, match="belongs to rank 0, not 3"):
        unseal(KEY, data, rank=3)
    with pytest.raises(UntrustedFile, match="belongs to run abc, not xyz"):
        unseal(KEY, data, run="xyz")


@pytest.mark.parametrize("position", range(0, 160, 7))
def test_a_sealed_file_with_one_changed_byte_is_refused(position: int) -> None:
    data = bytearray(seal(KEY, HEADER, b"x" * 40))
    data[position] ^= 1
    with pytest.raises(UntrustedFile):
        unseal(KEY, bytes(data))


@pytest.mark.parametrize("data", [b"", b"\n", b"phalanx-sealed 1", b"phalanx-sealed 1 \n{}\n", os.urandom(200)])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(UntrustedFile):
        unseal(KEY, data)
    with pytest.raises(UntrustedFile):
        unseal(bytes(32), seal(KEY, HEADER, b"of another run"))


def environment(outputs: Path) -> dict[str, str]:
    return {"PHALANX_RUN_ID": "abc", "PHALANX_OUTPUTS": str(outputs), "PHALANX_RANK": "0", "PHALANX_ATTEMPT": "1"}


def written(folder: Path, name: str) -> tuple[Path, str]:
    data = encode_call(KEY, b"function", [b"call"], FACTS)
    path = folder / sealed_files.FOLDER / sealed_files.call_name(digest_of(data))
    path.parent.mkdir(parents=True)
    (folder / name).write_bytes(data)
    return path, digest_of(data)


def test_a_rank_follows_no_link_to_a_call_file(tmp_path: Path) -> None:
    path, digest = written(tmp_path, "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        find_call(digest, environment(tmp_path / "outputs"))


def test_a_rank_says_where_it_looked_for_its_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UntrustedFile, match=r"none of these exists: .*/function/call-0000"):
        find_call("0" * 64, environment(tmp_path / "outputs"))


def test_a_rank_refuses_a_checkpoint_that_its_run_did_not_write(tmp_path: Path, capsys: Any) -> None:
    call = sealed_files.CallFile(KEY, b"", [b""], FACTS)
    outputs = tmp_path / "outputs"
    (outputs / sealed_files.FOLDER).mkdir(parents=True)
    forged = seal(bytes(32), {**HEADER, "kind": sealed_files.CHECKPOINT}, b"cos\nsystem\n(S'touch forged'\ntR.")
    (outputs / sealed_files.CHECKPOINT_NAME).write_bytes(forged)
    assert RankCall(call, 0, environment(outputs)).run() == 1
    assert "its seal does not match" in capsys.readouterr().err
    header = json.loads((outputs / sealed_files.result_name(0, 1)).read_bytes().split(b"\n")[1])
    assert (header["kind"], header["type"]) == ("exception", "UntrustedFile")
