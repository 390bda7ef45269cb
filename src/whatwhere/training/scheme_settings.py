"""Settings of runs that may name a position scheme of the user's; its code runs only where the user gave it.

Code that gets settings from the user calls `use_scheme` before it makes a configuration of them, as the command line
does. Code that reads saved settings calls `load_saved`, which runs the run's copy if the user gave its text. Jobs are
done inside a `scheme_context`. Other functions that take a configuration load no scheme, but for `run_geometry`.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

from ..encoder.carry import check_imports
from ..encoder.registry import forget_schemes_afterwards, is_loaded, load_scheme
from ..run.errors import UntrustedScheme
from ..run.folder import RunFolder
from .training_keys import SchemeKeys, check_scheme_file

SCHEME = "scheme.py"  # the copy of an own scheme in a run's folder


def scheme_context(path: str | None) -> Callable[[], AbstractContextManager[None]]:
    """Return the function that makes the context of a job: the block has the scheme that the file has now, or None.

    It can be pickled. Its context raises `UntrustedScheme` where the file has another text by then.
    """
    return partial(_with_scheme, path, None if path is None else _read_text(Path(path)))


@contextmanager
def _with_scheme(path: str | None, text: str | None) -> Iterator[None]:
    """Load a scheme for the block, and forget it after: a process may do other jobs later."""
    if path is not None and _read_text(Path(path)) != text:
        raise UntrustedScheme(f"{path} has changed since the command began. Undo the change, and give it again.")
    with forget_schemes_afterwards():
        use_scheme(path)
        yield


def use_scheme(path: Any, named_by: Path | None = None) -> None:
    """Run a file that registers a scheme, unless its text is loaded already; None does nothing.

    Args:
        path: Python file.
        named_by: File of settings that names it. It may come from elsewhere, so its text must be loaded already, as the
            user gave it then. None: the user gives it now.

    Raises:
        UntrustedScheme: the user gave no scheme of the text that `named_by` names.
        ValueError: the file does not run, registers a name that is taken, or could not travel with a saved model.
    """
    if not isinstance(path, str | Path):
        return
    if named_by is not None and Path(path).is_file() and not is_loaded(_read_text(Path(path))):
        raise UntrustedScheme(f"{named_by} names a scheme. Read {path}, then add --scheme {path}.")
    try:
        check_scheme_file(path)
        text = Path(path).read_text(encoding="utf-8")
        check_imports(text)  # else a training would fail when it saves its model
        if not is_loaded(text):
            try:
                load_scheme(path)
            except SystemExit as error:
                problem = f"it ends the program (exit status {error.code})"
                raise ValueError(f"{problem}; a scheme only registers its parts.") from None
    except SyntaxError as error:
        raise ValueError(
            f"The scheme {path} is not valid Python: line {error.lineno}: {error.msg}. Correct it."
        ) from None
    except ValueError as error:
        line = " ".join(str(error).split())
        raise ValueError(line if str(path) in line else f"The scheme {path}: {line}") from None


def _read_text(path: Path) -> str:
    """Return the text of a scheme; bytes that are no text differ from every text."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


class ConfigWithScheme(SchemeKeys):
    """Configuration that may name a scheme of the user's, beside the file that names it or in the current directory."""

    def save_in(self, run: RunFolder, name: str) -> Self:
        """Write the settings of a run together with the scheme, so that nothing outside the folder is needed to resume.

        Returns:
            The settings, which name the run's copy of the scheme: the user may then change or delete the own file.
        """
        if self.scheme is None:
            return super().save_in(run, name)
        run.write(SCHEME, Path(self.scheme).read_text(encoding="utf-8"))
        run.write(name, {**self.model_dump(mode="json"), "scheme": SCHEME})
        return self._with_copy_of(run)

    def merge_with_saved(
        self, run: RunFolder, name: str, *, changeable: Iterable[str] = (), saved: Self | None = None
    ) -> Self:
        """Return the settings with which a command goes on in a run; they name the run's copy of the scheme.

        A run that has a scheme refuses another text (`check_same_scheme`). A command that gives none is refused as the
        saved settings are read (`load_saved`): the user must give a scheme to each process that runs it.
        """
        return super().merge_with_saved(run, name, changeable=changeable, saved=saved)._with_copy_of(run)

    def resume_arguments(self, out: Path) -> str:
        """Return the arguments that suffice to resume a run, with its scheme: a folder alone runs no code."""
        arguments = super().resume_arguments(out)
        return f"{arguments} --scheme {shlex.quote(self.scheme)}" if arguments and self.scheme else arguments

    def load_to_resume(self, run: RunFolder, name: str) -> Self:
        """Return the saved settings of a run, after comparing the scheme of this command with the run's copy.

        Raises:
            ValueError: the scheme differs from the run's copy, or as `load_verified`.
        """
        self.check_same_scheme(run.path)
        return self.load_verified(run, name)

    def _with_copy_of(self, run: RunFolder) -> Self:
        """Return these settings with the run's copy of the scheme in place of the user's file."""
        copy = run.path / SCHEME
        has_copy = self.scheme is not None and copy.is_file()
        return self.model_copy(update={"scheme": str(copy)}) if has_copy else self

    def has_same_content(self, key: str, out: Path) -> bool:
        """Return True for the key `scheme` if the run has a copy, which `load_to_resume` has compared; else False."""
        return key == "scheme" and self.scheme is not None and (out / SCHEME).is_file()

    @classmethod
    def load_verified(cls, run: RunFolder, name: str) -> Self:
        """Return the saved settings of a run, after comparing the hashes of their file and of the run's scheme.

        Raises:
            ValueError: as every configuration.
            UntrustedScheme: as `load_saved`.
        """
        run.check(SCHEME)  # passes where the run has none
        return super().load_verified(run, name)

    @classmethod
    def load_saved(cls, path: Path) -> Self:
        """Run the scheme of the folder, then return the settings that `save_in` wrote; no hash is compared.

        Raises:
            UntrustedScheme: the user did not give this process the scheme of the folder.
        """
        merged = cls.merge_values(path)
        use_scheme(merged.get("scheme"), named_by=path)
        return cls.parse(merged, path=path)

    def check_same_scheme(self, out: Path) -> None:
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
