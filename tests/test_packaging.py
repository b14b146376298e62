"""`make dist` builds wheels that hold what they should and work where nothing else is installed."""

import email
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import statehal
from doc_blocks import ROOT, examples

# One worker builds and installs; the others go on with other tests.
pytestmark = pytest.mark.xdist_group("packaging")

PROJECTS = [
    ROOT / "pyproject.toml",
    *sorted(ROOT.glob("plugins/*/pyproject.toml")),
    *sorted(ROOT.glob("hosts/*/pyproject.toml")),
]


def project_table(pyproject: Path) -> dict[str, str]:
    table: dict[str, str] = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    return table


def wheel_stem(pyproject: Path) -> str:
    table = project_table(pyproject)
    return f"{table['name'].replace('-', '_')}-{table['version']}"


def package_dir(pyproject: Path) -> Path:
    """``core/statehal`` for the root, ``src/<package>`` for the rest."""
    name = project_table(pyproject)["name"].replace("-", "_")
    return ROOT / "core" / name if pyproject.parent == ROOT else pyproject.parent / "src" / name


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STATEHAL_", "MAKE"))}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make dist` filled, run in the present environment."""
    folder = tmp_path_factory.mktemp("dist")
    environment = Path(sys.prefix)
    run("make", "-o", environment / ".installed", f"VENV={environment}", f"DIST={folder}", "dist")
    return folder


def wheel(dist: Path, pyproject: Path) -> Path:
    """Pure Python's tag says so; the wheel of an extension names the Python and the machine that it is for."""
    (found,) = dist.glob(f"{wheel_stem(pyproject)}-*.whl")
    assert found.name.endswith("-py3-none-any.whl") == (pyproject.parent.name != "cpu")
    return found


def test_dist_builds_every_distribution_and_nothing_else(dist: Path) -> None:
    expected = {wheel(dist, project).name for project in PROJECTS}
    expected |= {f"{wheel_stem(project)}.tar.gz" for project in PROJECTS}
    assert {path.name for path in dist.iterdir()} == expected


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.parent.name if path.parent != ROOT else "statehal")
def test_a_wheel_holds_its_package_and_no_stray_file(dist: Path, project: Path) -> None:
    package = package_dir(project)
    sources = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel(dist, project)) as archive:
        held = {name for name in archive.namelist() if not name.startswith(f"{wheel_stem(project)}.dist-info/")}
    extensions = {name for name in held if Path(name).name.startswith("_native.") and name.endswith(".so")}
    assert len(extensions) == (package / "_native.pyi").exists()
    assert held - extensions == sources
    assert f"{package.name}/py.typed" in held
    assert {Path(name).suffix for name in held - extensions} <= {".py", ".typed", ".json", ".pyi"}
    assert not [name for name in held if "tests" in Path(name).parts]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.parent.name if path.parent != ROOT else "statehal")
def test_a_source_archive_holds_all_that_is_compiled_and_imported(dist: Path, project: Path) -> None:
    """Wheels are made from the tree, so that what is compiled already is not compiled again."""
    top = f"{wheel_stem(project)}/"
    with tarfile.open(dist / f"{wheel_stem(project)}.tar.gz") as archive:
        held = {member.name.removeprefix(top) for member in archive.getmembers() if member.isfile()}
    package, native = package_dir(project), project.parent / "native"
    sources = [*package.rglob("*"), *(native.rglob("*") if project.parent != ROOT else ())]
    needed = {path.relative_to(project.parent).as_posix() for path in sources if path.is_file()}
    needed = {name for name in needed if "__pycache__" not in name} | {"pyproject.toml"}
    needed |= {"CMakeLists.txt"} if native.exists() else set()
    assert needed <= held, sorted(needed - held)


def metadata(dist: Path, project: Path, name: str = "METADATA") -> str:
    with zipfile.ZipFile(wheel(dist, project)) as archive:
        return archive.read(f"{wheel_stem(project)}.dist-info/{name}").decode()


def test_the_core_wheels_metadata(dist: Path) -> None:
    root = ROOT / "pyproject.toml"
    message: Message = email.message_from_string(metadata(dist, root))
    assert message["License-Expression"] == "Apache-2.0"
    assert message["Requires-Python"] == ">=3.11"
    assert message["Version"] == statehal.__version__
    assert {"torch>=2.13", "pluggy>=1.5"} <= set(message.get_all("Requires-Dist") or [])
    assert "Apache License" in metadata(dist, root, "licenses/LICENSE")
    assert "[statehal.backends]\nreference = statehal.reference" in metadata(dist, root, "entry_points.txt")


def test_the_wheels_work_where_nothing_else_is_installed(dist: Path, tmp_path: Path) -> None:
    """The README's first example in an empty environment, with the core alone; then every other wheel imports."""
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    install = (python, "-m", "pip", "install", "-q", "--no-compile", "-c", ROOT / "constraints.txt")

    run(*install, wheel(dist, PROJECTS[0]))
    example = examples(ROOT / "README.md")[0]
    assert run(python, "-I", "-c", example.code, cwd=tmp_path) == example.output
    assert "reference" in run(tmp_path / "venv" / "bin" / "statehal", "doctor", cwd=tmp_path)

    run(*install, *(wheel(dist, project) for project in PROJECTS))
    for project in PROJECTS:
        run(python, "-I", "-W", "error", "-c", f"import {package_dir(project).name}", cwd=tmp_path)
