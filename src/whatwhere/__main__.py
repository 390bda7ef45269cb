"""`python -m whatwhere`, and what `torchrun -m whatwhere` starts."""

from .cli import main

main()
