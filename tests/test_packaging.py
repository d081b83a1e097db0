"""What is installed is what the tree holds: every package, its data, and both commands."""

import tomllib
from pathlib import Path

import setuptools

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_of_the_product_is_shipped_and_no_test() -> None:
    named = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    shipped = set(setuptools.find_packages(str(ROOT), include=named))
    held = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("agent", "fakes", "probes")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert shipped == held


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for top in ("agent", "fakes", "probes") for path in (ROOT / top).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_data_files_are_shipped_with_their_package() -> None:
    data = PROJECT["tool"]["setuptools"]["package-data"]
    for file in [
        *(ROOT / "agent").rglob("*.toml"),
        *(ROOT / "agent").rglob("*.json"),
        *(ROOT / "fakes").rglob("*.toml"),
    ]:
        package = ".".join(file.parent.relative_to(ROOT).parts)
        assert any(file.match(pattern) for pattern in data.get(package, ())), file
