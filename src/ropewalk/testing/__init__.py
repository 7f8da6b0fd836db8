"""The contract that every encoding keeps, for ours and for other people's.

    from ropewalk.testing import check_encoding
    check_encoding(MyEncoding(head_dim=48, heads=8))

A check is a function of an instance that raises AssertionError with a message. Which apply, the instance's traits say.
"""

from collections.abc import Callable

from ropewalk.encoding import Encoding
from ropewalk.testing.behaviour import (
    check_batch,
    check_decoding,
    check_errors,
    check_grid,
    check_groups,
    check_integers,
    check_layers,
    check_prefix,
    check_pure,
    check_score_mod,
    check_settings,
    check_unrotated,
    check_views,
)
from ropewalk.testing.laws import (
    check_axes,
    check_isometric,
    check_matrices,
    check_monotone,
    check_origin,
    check_relative,
    check_traits,
)
from ropewalk.testing.narrowed import check_narrowed
from ropewalk.testing.numerics import check_distinct, check_gradcheck, check_gradients, check_precision
from ropewalk.testing.state import (
    check_autocast,
    check_casts,
    check_config,
    check_copy,
    check_emptied,
    check_meta,
    check_state_dict,
)
from ropewalk.testing.tracing import check_compile, check_export, check_transforms

Check = Callable[[Encoding], None]

ALWAYS: tuple[Check, ...] = (
    check_errors,
    check_pure,
    check_settings,
    check_decoding,
    check_batch,
    check_grid,
    check_prefix,
    check_unrotated,
    check_score_mod,
    check_layers,
    check_groups,
    check_views,
    check_state_dict,
    check_copy,
    check_config,
    check_meta,
    check_emptied,
    check_casts,
    check_autocast,
    check_narrowed,
    check_precision,
    check_distinct,
    check_gradients,
    check_gradcheck,
    check_traits,
    check_relative,
    check_isometric,
    check_monotone,
    check_transforms,
    check_compile,
    check_export,
)
BY_TRAIT: dict[str, tuple[Check, ...]] = {
    "rotary": (check_origin, check_matrices),
}


def checks_for(encoding: Encoding) -> list[Check]:
    """The checks that apply to this instance."""
    traits = encoding.traits
    chosen = [check for trait, checks in BY_TRAIT.items() if getattr(traits, trait) for check in checks]
    by_axes = check_integers if traits.axes == 1 else check_axes
    return [*ALWAYS, by_axes, *chosen]


def check_encoding(encoding: Encoding) -> None:
    """Hold an instance to the whole contract: AssertionError, naming the check, at the first promise it breaks."""
    for check in checks_for(encoding):
        try:
            check(encoding)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
