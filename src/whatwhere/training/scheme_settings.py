"""Settings of runs that may name a position scheme of the user's; its code runs only where the user gave it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from ..encoder.carry import check_imports
from ..encoder.registry import forget_schemes_afterwards, is_loaded, load_scheme
from ..run.errors import UntrustedScheme
from ..run.folder import RunFolder
from .training_keys import SchemeKeys, check_scheme_file

SCHEME = "scheme.py"  # the copy of an own scheme in a run's folder


_trusted_texts: set[str] = set()  # of schemes that the user gave this process


def trust_scheme(path: Any) -> None:
    """Remember that the user gave this process a scheme, so that it may run a folder's copy of the same text.

    The process remembers it until it ends; a worker forgets it at the end of its job (`trust_scheme_of_job`).
    """
    if isinstance(path, str | Path) and Path(path).is_file():
        _trusted_texts.add(_text_of(Path(path)))


@contextmanager
def trust_scheme_of_job(text: str | None) -> Iterator[None]:
    """Trust the scheme of a job in the block, by its text, and forget it after: a process may do other jobs later."""
    trusted_before = set(_trusted_texts)
    if text is not None:
        _trusted_texts.add(text)
    try:
        with forget_schemes_afterwards():
            yield
    finally:
        _trusted_texts.clear()
        _trusted_texts.update(trusted_before)


def text_of_scheme(path: Any) -> str | None:
    """Return the text of a scheme that the user gave; None where there is none."""
    return None if path is None else _text_of(Path(path))


def _text_of(path: Path) -> str:
    """Return the text of a scheme; bytes that are no text differ from every text."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def check_trusted(path: Path, named_by: Path) -> None:
    """Refuse a scheme that only a file names, which may have come from elsewhere.

    Raises:
        UntrustedScheme: this process was given no scheme of the same text.
    """
    if _text_of(path) not in _trusted_texts:
        raise UntrustedScheme(f"{named_by} names a scheme. Read {path}, then add --scheme {path}.")


def use_scheme(path: Any) -> None:
    """Load a file that registers a scheme of the user's, and trust its text; None changes nothing.

    A text that is loaded already is only trusted.

    Raises:
        ValueError: the file does not run, registers a name that is taken, or could not travel with a saved model.
    """
    if not isinstance(path, str | Path):
        return
    try:
        check_scheme_file(path)
        text = Path(path).read_text(encoding="utf-8")
        check_imports(text)  # else a training would fail when it saves its model
        if not is_loaded(text):
            try:
                load_scheme(path)
            except SystemExit as stop:
                problem = f"it ends the program (exit status {stop.code})"
                raise ValueError(f"{problem}; a scheme only registers its parts.") from None
        _trusted_texts.add(text)
    except SyntaxError as error:
        raise ValueError(f"The scheme {path} is not valid Python: line {error.lineno}: {error.msg}.") from None
    except ValueError as error:
        line = " ".join(str(error).split())
        raise ValueError(line if str(path) in line else f"The scheme {path}: {line}") from None


class ConfigWithScheme(SchemeKeys):
    """Configuration that may name a scheme of the user's, beside the file that names it or in the current directory."""

    @classmethod
    def merge_values(cls, path: str | Path | None, assignments: Iterable[str] = (), **values: Any) -> dict[str, Any]:
        """Merge a file, values, assignments; the user must have given a scheme that the file names (`check_trusted`).

        Raises:
            ValueError: the user gave no scheme of that text.
        """
        assignments = list(assignments)
        trust_scheme(values.get("scheme"))
        for assignment in assignments:  # --set scheme=FILE, typed as well
            if assignment.startswith("scheme="):
                trust_scheme(assignment.removeprefix("scheme="))
        merged = super().merge_values(path, assignments, **values)
        scheme = merged.get("scheme")
        if path is not None and isinstance(scheme, str) and Path(scheme).is_file():
            check_trusted(Path(scheme), Path(path))
        return merged

    def save_in(self, run: RunFolder, name: str) -> None:
        """Write the settings of a run together with the scheme, so that the folder is enough to resume."""
        saved = self
        if self.scheme is not None:
            trust_scheme(self.scheme)
            run.write(SCHEME, Path(self.scheme).read_text(encoding="utf-8"))
            saved = self.model_copy(update={"scheme": SCHEME})
        run.write(name, saved.model_dump(mode="json"))

    def bind(self, run: RunFolder, name: str, *, keep_saved: bool, changeable: Iterable[str] = ()) -> Self:
        """Return the settings to go on with, after comparing the scheme by its text; they name the run's copy of it.

        From here on the copy is read, whatever becomes of the user's file.

        Raises:
            ValueError: as every configuration, or the scheme differs from the run's copy.
        """
        if keep_saved:
            self.check_scheme(run.path)
        settings = super().bind(run, name, keep_saved=keep_saved, changeable=changeable)
        copy = run.path / SCHEME
        is_saved = settings.scheme is not None and copy.is_file()
        return settings.model_copy(update={"scheme": str(copy)}) if is_saved else settings

    def has_same_content(self, key: str, out: Path) -> bool:
        """Return True for a scheme, whose text `bind` has compared."""
        return key == "scheme" and self.scheme is not None and (out / SCHEME).is_file()

    @classmethod
    def load_verified(cls, run: RunFolder, name: str) -> Self:
        """Read the settings of a run, after loading the scheme of its folder.

        Raises:
            ValueError: as every configuration.
            UntrustedScheme: this process was not given the scheme of the folder.
        """
        run.check(SCHEME, name)
        if (run.path / name).is_file():
            use_scheme(cls.merge_values(run.path / name).get("scheme"))
        return super().load_verified(run, name)

    @classmethod
    def load_without_hash_check(cls, path: Path) -> Self:
        """Return what `save_in` wrote, after loading the scheme of the folder.

        The user must have given the scheme here, too. Unlike `load_verified` it compares no hash: for a file that this
        command, or the parent of this process, has compared or written.
        """
        merged = cls.merge_values(path)
        use_scheme(merged.get("scheme"))
        return cls.parse(merged, path=path)

    def check_scheme(self, out: Path) -> None:
        """Refuse to resume a run with another scheme than it began with.

        Raises:
            ValueError: the scheme differs from the folder's copy.
        """
        copy = out / SCHEME
        if self.scheme is None or not copy.is_file():
            return
        if copy.read_text("utf-8") != Path(self.scheme).read_text("utf-8"):
            raise ValueError(
                f"{self.scheme} is not the scheme that {out} began with (kept as {copy}). Undo the change, or choose "
                "another --out."
            )
