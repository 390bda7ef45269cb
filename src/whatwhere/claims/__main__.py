"""`python -m whatwhere.claims` prints docs/claims.md."""

from .document import as_markdown

if __name__ == "__main__":
    print(as_markdown(), end="")
