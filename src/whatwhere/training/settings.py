"""The scheme of your own that settings may name: which one this process may run, and its copy in a run's folder."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from ..encoder.carry import relative_imports
from ..encoder.registry import load_scheme
from ..run.errors import UnknownProgram
from ..run.folder import RunFolder
from .training_keys import SchemeKeys

SCHEME = "scheme.py"  # the copy of an own scheme in a run's folder


_named: set[str] = set()  # texts of the schemes that this process was given by --scheme, or by an argument
_loaded: set[str] = set()  # texts of the schemes that this process has loaded, wherever they stood


def trust_scheme(path: Any) -> None:
    """Remember that this process was given a scheme, so that it may run a folder's copy of the same text.

    Nothing outlives the process: a worker calls this with the scheme of its job.
    """
    if isinstance(path, str | Path) and Path(path).is_file():
        _named.add(_text_of(Path(path)))


def _text_of(path: Path) -> str:
    """Return the text of a scheme; bytes that are no text differ from every text."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def check_trusted(path: Path, named_by: Path) -> None:
    """Refuse a scheme that only a file names, which may have come from elsewhere.

    Raises:
        UnknownProgram: this process was given no scheme of the same text.
    """
    if _text_of(path) not in _named:
        raise UnknownProgram(f"{named_by} needs its scheme: add --scheme {path} after reading it.")


def use_scheme(path: Any) -> None:
    """Load a file that registers an own scheme; no path, and a text that is loaded already, change nothing.

    Raises:
        ValueError: the file does not run, registers what is taken, or could not travel with a saved model.
    """
    if not isinstance(path, str | Path):
        return
    try:
        if (file := Path(path)).suffix != ".py" or not file.is_file():
            raise ValueError("it is no Python file that exists. See examples/kerple.py for one.")
        text = file.read_text(encoding="utf-8")
        if text not in _loaded:
            relative_imports(text)  # else a training would fail when it saves its model
            try:
                load_scheme(file)
            except SystemExit as stop:
                what = f"it ends the program (exit status {stop.code})"
                raise ValueError(f"{what}; a scheme only registers its parts.") from None
            _loaded.add(text)
        _named.add(text)
    except SyntaxError as error:
        raise ValueError(f"The scheme {path} is not valid Python: line {error.lineno}: {error.msg}.") from None
    except ValueError as error:
        line = " ".join(str(error).split())
        raise ValueError(line if str(path) in line else f"The scheme {path}: {line}") from None


class SchemeConfig(SchemeKeys):
    """A configuration that may name an own scheme, beside the file that names it or from the current directory."""

    @classmethod
    def _read(cls, path: Path) -> dict[str, Any]:
        read = super()._read(path)
        if isinstance(scheme := read.get("scheme"), str):
            beside = path.parent / scheme
            read["scheme"] = str(beside) if beside.is_file() else scheme
        return read

    @classmethod
    def merged(cls, path: str | Path | None, settings: Iterable[str] = (), **values: Any) -> dict[str, Any]:
        """Merge a file, values and settings; a scheme that the file names must be given by `values` or to this process.

        Raises:
            ValueError: it is not (`check_trusted`).
        """
        trust_scheme(values.get("scheme"))
        merged = super().merged(path, settings, **values)
        scheme = merged.get("scheme")
        if path is not None and isinstance(scheme, str) and Path(scheme).is_file():
            check_trusted(Path(scheme), Path(path))
        return merged

    def save_in(self, run: RunFolder, name: str) -> None:
        """Write the settings of a run, together with the scheme, so that the folder is enough to go on."""
        saved = self
        if self.scheme is not None:
            trust_scheme(self.scheme)
            run.write(SCHEME, Path(self.scheme).read_text(encoding="utf-8"))
            saved = self.model_copy(update={"scheme": SCHEME})
        run.write(name, saved.model_dump(mode="json"))

    def bind(self, run: RunFolder, name: str, free: Iterable[str] = ()) -> Self:
        """Compare settings with those of the run; of a scheme that both name the text is compared, not the path.

        Raises:
            ValueError: as every configuration, or the scheme differs from the folder's copy.
        """
        self.check_scheme(run.path)
        return super().bind(run, name, free)

    def same_content(self, key: str, out: Path) -> bool:
        """Compare what the settings name; a scheme was compared by `bind`."""
        return key == "scheme" and self.scheme is not None and (out / SCHEME).is_file()

    @classmethod
    def of_run(cls, run: RunFolder, name: str) -> Self:
        """Read the settings of a run; the scheme of the folder is loaded first.

        Raises:
            ValueError: as every configuration.
            UnknownProgram: this process was not given the scheme of the folder.
        """
        run.check(SCHEME, name)
        if (run.path / name).is_file():
            use_scheme(cls.merged(run.path / name).get("scheme"))
        return super().of_run(run, name)

    @classmethod
    def load_run(cls, path: Path) -> Self:
        """Return what `save_in` wrote, the scheme of the folder loaded first: where a process starts on it."""
        merged = cls.merged(path)
        use_scheme(merged.get("scheme"))
        return cls.parse(merged, path=path)

    def check_scheme(self, out: Path) -> None:
        """Refuse to go on in a run's folder with another scheme than it began with.

        Raises:
            ValueError: the scheme differs from the folder's copy.
        """
        kept = out / SCHEME
        if self.scheme is None or not kept.is_file():
            return
        if kept.read_text("utf-8") != Path(self.scheme).read_text("utf-8"):
            raise ValueError(
                f"{self.scheme} is not the scheme that {out} began with (kept as {kept}). Undo the change, or choose "
                "another --out."
            )
