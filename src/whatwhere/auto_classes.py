"""Transformers' Auto classes open our folders after `import whatwhere`, which does not itself load transformers.

`whatwhere.encoder` registers its classes with transformers when it is loaded. It is loaded as soon as transformers is:
at once where a program has imported transformers already, else by an import hook, in the same `import transformers`,
before any other line of the program can see that package. A program that never imports transformers (`whatwhere
--help`, `presets`, `claims`, `report`) does not pay for it.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType


class _AfterTransformers:
    """Finds transformers as the other finders do, and has the encoder loaded after it. (`importlib.abc`, for a base
    class, takes most of the time of an import of this package.)"""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "transformers":
            return None
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in others if spec is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_both(module: ModuleType) -> None:
            execute(module)
            # It stays until transformers is there: libraries look for its spec without importing it.
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            import_module(".encoder", __package__)

        spec.loader.exec_module = execute_both  # type: ignore[method-assign]
        return spec


def register_with_transformers() -> None:
    """Make our classes known to transformers' Auto classes, now or when a program imports transformers."""
    if "transformers" in sys.modules:
        import_module(".encoder", __package__)
    else:
        sys.meta_path.insert(0, _AfterTransformers())
