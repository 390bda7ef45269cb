"""Commands in messages can be copied into a shell."""

from pathlib import Path

import pytest

from whatwhere.run.errors import command_line


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("status", Path("runs/demo")), "whatwhere status runs/demo"),
        (("status", Path("my runs")), "whatwhere status 'my runs'"),
        # A hint had `predict -y`, which the command line reads as an option.
        (("predict", Path("-y"), "--text", "a [MASK]"), "whatwhere predict ./-y --text 'a [MASK]'"),
    ],
)
def test_commands_in_messages_work_in_a_shell(words, command):
    assert command_line(*words) == command
