"""The command line: wrong input ends with exit status 2 and one line on stderr, never with a traceback.

A signal ends it with status 130 or 143 and a line that says how to resume.
"""

import os
import signal
import sys
from typing import Any

from ..run.signals import Stopped, handle_signals, stop_signal
from ..run.thread_waiting import core_times, cores_used_by_others, set_wait_policy


def main() -> None:
    """Run the command line: turn wrong input into one line and exit status 2, a signal into one line and its status."""
    with handle_signals(ends_process=True):  # before all that takes time
        status = _run()
        _part()
        sys.exit(status)


def _run() -> int:
    """Run the command in `sys.argv` and return its exit status."""
    begin = core_times()
    import typer

    from ..run.files import describe_os_error
    from ..version import VERSION
    from .verbs import program

    if sys.argv[1:] == ["--version"]:
        print(f"whatwhere {VERSION}")
        return 0

    # Newer typer carries its own copy of click: the base of its usage errors is found through a public name.
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    set_wait_policy(cores_used_by_others(begin, core_times()))  # the imports above took long enough to tell
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # without a network huggingface_hub would tell of every try
    try:
        _check_arguments(sys.argv[1:])
        status = program()(sys.argv[1:] or ["--help"], prog_name="whatwhere", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except usage_error as error:
        context = getattr(error, "ctx", None)
        line = f"{_refused(error)} See {context.command_path if context else _verb_typed(program())} --help."
    except (Stopped, typer.Abort) as error:
        return _stopped(str(error))
    except (ValueError, OSError) as error:
        if stop_signal() is not None:  # what it hit on its way out
            return _stopped("")
        if os.environ.get("WHATWHERE_DEBUG"):
            raise
        line = describe_os_error(error) if isinstance(error, OSError) else str(error)
    except RuntimeError as error:
        line = _scheme_problem(error)
        if "by peer" in str(error) and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            line = "Another process of the launcher has ended; its own line says why."
        if not line:
            raise
    except MemoryError as error:
        line = f"There is not enough memory ({error}). Ask for less, or use a machine with more."
    except Exception as error:
        line = _scheme_problem(error)
        if not line:
            raise
    print(f"whatwhere: {' '.join(line.split())}", file=sys.stderr)
    return 2


def _check_arguments(words: list[str]) -> None:
    """Refuse an empty argument, as of an unset variable of the shell: a path of no letters is the current folder.

    Texts may be empty.

    Raises:
        ValueError: names its number.
    """
    for number, (before, word) in enumerate(zip(["", *words], words, strict=False), 1):
        if not word.strip() and before not in ("--text", "--pair"):
            behind = f" behind {before}" if before else ""
            raise ValueError(f"Argument {number}{behind} is empty, as of an unset variable. Give a value.")


def _scheme_problem(error: Exception) -> str:
    """Return the line that refuses a command because a user's scheme fails; empty where the error is none of it."""
    registry = sys.modules.get("whatwhere.encoder.registry")  # without it no scheme is loaded
    place = registry.failing_line(error) if registry is not None else ""
    if not place or os.environ.get("WHATWHERE_DEBUG"):
        return ""
    return f"The scheme fails at {place} ({type(error).__name__}: {error}). Mend it; whatwhere explain tries a scheme."


def _part() -> None:
    """Leave the process group of a launcher, as torch asks for: its threads can abort Python where they outlive it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _verb_typed(command: Any) -> str:
    """Return the words of the command that the arguments begin with; an option without value has no context to ask."""
    words = ["whatwhere"]
    for word in sys.argv[1:]:
        below = getattr(command, "commands", {})
        if word not in below:
            break
        command = below[word]
        words.append(word)
    return " ".join(words)


def _refused(error: Any) -> str:
    """Return what is wrong with an option. Newer typer lets pydantic check it."""
    from pydantic import ValidationError

    from ..run.errors import suggest_name, value_problem

    if isinstance(error.__cause__, ValidationError) and error.param is not None:
        return value_problem(error.param.opts[0], error.__cause__.errors()[0])
    option = getattr(error, "option_name", None)
    if option is None or error.ctx is None:
        line = str(error.format_message())
        line += "" if line.endswith((".", "?", "!")) else "."
        missing = getattr(error, "param", None) if line.startswith("Missing ") else None
        return f"{line} {missing.help}" if missing is not None and missing.help else line
    line = f"No such option: {option}."
    key = option.lstrip("-").replace("-", "_")
    command = error.ctx.command
    takes_keys = any("--set" in parameter.opts for parameter in command.params)
    if takes_keys and any(key in kind.model_fields for kind in getattr(command.callback, "key_classes", ())):
        return f"{line} It is a key of the configuration: --set {key}=."
    if hint := suggest_name(option, error.possibilities or []):
        line += hint
    elif others := _verbs_with(option, error.ctx.find_root().command):
        line += f" It belongs to {', '.join(others[:3])}{' and others' if len(others) > 3 else ''}."
    return line


def _verbs_with(option: str, command: Any, name: str = "whatwhere") -> list[str]:
    """Return the names of the commands, this one and those below it, that have an option."""
    has_it = any(option in [*parameter.opts, *parameter.secondary_opts] for parameter in command.params)
    below = getattr(command, "commands", {}).items()
    return ([name] if has_it else []) + [
        verb for key, one in below for verb in _verbs_with(option, one, f"{name} {key}")
    ]


def _stopped(where: str) -> int:
    """Print how to resume, and return the exit status of the signal that came."""
    stopped = f"stopped {where}" if where else "stopped"
    print(
        f"\nwhatwhere: {stopped}. Give the same command again: it keeps what its folder has finished.", file=sys.stderr
    )
    return 128 + (stop_signal() or signal.SIGINT)
