"""Scale Adaptive Networks: one meta network, a main network for any input resolution.

    import san_core

    bundle = san_core.load()
    print(bundle.classify("photo.jpg", resolution=160)[0].label)

The paper: Li, Yao, Chen, "Learning to Learn Parameterized Classification Networks for Scalable
Input Images", ECCV 2020.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from san_core.bundle import Bundle, load

__all__ = ["Bundle", "load"]


def __getattr__(name: str) -> Any:
    """`load` and `Bundle`, imported when they are used: torch takes seconds."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from san_core import bundle

    return getattr(bundle, name)
