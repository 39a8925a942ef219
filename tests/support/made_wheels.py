"""Wheels that pip can install, without what their namesakes hold."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_wheel(folder: Path, name: str, version: str, files: dict[str, bytes]) -> None:
    """Writes a pure wheel; its metadata are among the files, or made."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    made = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    content = made | files
    content[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in content).encode()
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for path, data in content.items():
            wheel.writestr(path, data)
