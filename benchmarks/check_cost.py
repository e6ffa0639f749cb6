"""What `phalanx check` costs beside a bare `python -c pass`: the floor of any Python tool."""

from __future__ import annotations

from measuring import PHALANX, PYTHON, ROOT, interleaved_s, report

ROUNDS = 25
MOST = 12.0


def main() -> None:
    ordinary = str(ROOT / "examples/quickstart/polyaxonfile.yml")
    medians = interleaved_s(
        {
            "python -c pass": [*PYTHON, "-c", "pass"],
            "phalanx check": [*PHALANX, "check", "-f", ordinary],
            "phalanx check --json": [*PHALANX, "check", "--json", "-f", ordinary],
        },
        ROUNDS,
    )
    floor = medians.pop("python -c pass")
    print(f"floor: python -c pass {floor * 1000:.1f} ms (median of {ROUNDS})")
    for name, seconds in medians.items():
        ratio = seconds / floor
        report(f"{name} ({seconds * 1000:.0f} ms)", f"{ratio:.1f}x floor", f"{MOST:.0f}x", met=ratio <= MOST)


if __name__ == "__main__":
    main()
