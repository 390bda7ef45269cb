"""`python -m whatwhere`, and what `accelerate launch -m whatwhere` starts."""

from .cli import main

main()
