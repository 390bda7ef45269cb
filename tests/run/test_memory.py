"""Peak memory of a process, where Linux's /proc is missing."""

import resource
from types import SimpleNamespace

import torch

from whatwhere.run import memory


def test_macos_counts_peak_memory_in_bytes(monkeypatch):
    """The peak was 1,024 times too large on macOS, whose ru_maxrss is in bytes, not kibibytes."""
    monkeypatch.setattr(memory.Path, "read_text", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError()))
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_maxrss=4096))
    peaks = {}
    for system in ("Darwin", "Linux"):
        monkeypatch.setattr(memory.platform, "system", lambda name=system: name)
        peaks[system] = memory.peak_memory(torch.device("cpu"))
    assert peaks == {"Darwin": 4096, "Linux": 4096 * 1024}
