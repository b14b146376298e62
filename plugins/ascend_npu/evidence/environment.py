"""``python environment.py FOLDER REQUIREMENT...``: an environment on top of the one that runs this.

Packages of the vendor's that would break that one, or take the place of a package of it, lie in FOLDER alone and come
first there; everything else is the running environment's.
"""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path


def main(folder: Path, requirements: list[str]) -> None:
    venv.create(folder, with_pip=True)
    own = next(folder.glob("lib/python*/site-packages"))
    below = sysconfig.get_path("purelib")
    (own / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n", encoding="utf-8")
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, *requirements], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
