"""What is shipped: every package and preset, in a wheel as in the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def shipped_files() -> set[str]:
    """Every file of the package, its models and its configs, under the names that the wheel has for them."""
    roots = {"jaxprof": "jaxprof", "models": "jaxprof/models", "configs": "jaxprof/configs"}
    return {
        f"{inside}/{path.relative_to(REPOSITORY / root).as_posix()}"
        for root, inside in roots.items()
        for path in (REPOSITORY / root).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_every_package_is_named_in_pyproject() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    folders = {name.rpartition("/")[0] for name in shipped_files() if name.endswith(".py")}
    assert set(settings["packages"]) == {folder.replace("/", ".") for folder in folders}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no build folder of the source tree is taken for a source."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, tracked.split("\0")):
        if (REPOSITORY / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((REPOSITORY / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", str(out), str(copy)]
    subprocess.run(pip, check=True)
    (built,) = out.glob("jaxprof-*.whl")
    return built


def test_wheel_holds_every_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == shipped_files()
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_installed_wheel_finds_every_preset(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own, which borrows the libraries of this one but not its jaxprof."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    target = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    pip = [sys.executable, "-m", "pip", "--quiet", "install", "--no-deps", "--target", target, str(wheel)]
    subprocess.run(pip, check=True)
    # A path entry, not addsitedir: a .pth of the borrowed folder would bring its editable jaxprof back.
    (Path(target) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    code = (
        "import jaxprof, sys; from jaxprof.cli.main import main\n"
        "print(jaxprof.__file__, file=sys.stderr); sys.exit(main(['configs']))"
    )
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        [python, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert str(tmp_path) in done.stderr
    presets = {path.stem for kind in ("runs", "models") for path in (REPOSITORY / "configs" / kind).glob("*.toml")}
    assert {line.split()[0] for line in done.stdout.splitlines()[1:]} == presets
