"""Puts the folder of factories on the path of a script of tests, as pytest does by its settings."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "factories"))
