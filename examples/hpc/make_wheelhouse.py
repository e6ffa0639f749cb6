"""Makes a wheelhouse: a folder with one wheel, `tinynet`. On a real cluster the site has one, with real packages.

Wheels are archives of Python's files beside a few lines about them, so nothing needs to be installed to make one.
"""

import sys
import zipfile
from pathlib import Path

NAME, VERSION = "tinynet", "1.0"
ABOUT = f"{NAME}-{VERSION}.dist-info"
FILES = {
    f"{ABOUT}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n",
    f"{ABOUT}/WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"{NAME}.py": (Path(__file__).parent / "src" / f"{NAME}.py").read_text(), **FILES}
    record = "".join(f"{name},,\n" for name in [*files, f"{ABOUT}/RECORD"])
    wheel = folder / f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {**files, f"{ABOUT}/RECORD": record}.items():
            archive.writestr(name, text)
    print(wheel)


if __name__ == "__main__":
    main()
