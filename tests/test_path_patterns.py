from __future__ import annotations

import time

import pytest

from phalanx.path_patterns import is_model_file, matches, pattern_steps


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.pt", "model.pt"),
        ("*.pt", "deep/in/model.pt"),
        ("lightning_logs/**", "lightning_logs/version_0/checkpoints/a.ckpt"),
        ("lightning_logs/", "lightning_logs/x"),
        ("lightning_logs", "lightning_logs/x"),
        ("./out/*.csv", "out/a.csv"),
        ("**/best.ckpt", "best.ckpt"),
        ("**/best.ckpt", "a/b/best.ckpt"),
        ("a/**/z", "a/z"),
        ("a/**/z", "a/b/c/z/below"),
        ("run-?", "run-1/x"),
        ("*", "anything/at/all"),
        ("a[1].pt", "a[1].pt"),
    ],
)
def test_a_pattern_matches(pattern: str, path: str) -> None:
    assert matches(path, [pattern])


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.pt", "model.pth"),
        ("out/*.csv", "a.csv"),
        ("out/*.csv", "out/deep/a.csv"),
        ("/out", "out"),
        ("run-?", "run-12"),
        ("a/b", "a"),
    ],
)
def test_a_pattern_does_not_match(pattern: str, path: str) -> None:
    if pattern.startswith("/"):
        with pytest.raises(ValueError, match="not a pattern"):
            pattern_steps(pattern)
        return
    assert not matches(path, [pattern])


@pytest.mark.parametrize("pattern", ["", "/", "..", "../x", "a/../../b", "~/x", "a\0b"])
def test_a_pattern_stays_in_its_folder(pattern: str) -> None:
    with pytest.raises(ValueError, match="not a pattern"):
        pattern_steps(pattern)


def test_many_stars_take_no_time() -> None:
    began = time.process_time()
    assert not matches("/".join(["a" * 200] * 30), ["**/" * 60 + "b", "*a" * 90 + "*b"])
    assert time.process_time() - began < 0.5


def test_models_are_known_by_their_names() -> None:
    assert all(map(is_model_file, ["a.pt", "x/B.SAFETENSORS", "m/saved_model.pb", "k.keras"]))
    assert not any(map(is_model_file, ["a.py", "pt", "x.ptx", "data.bin"]))
