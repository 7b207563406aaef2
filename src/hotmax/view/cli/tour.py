"""tour: the core of hotmax, shown on the terminal."""

from __future__ import annotations

from hotmax.view.cli.options import COMMON, Common


def tour(*, common: Common = COMMON) -> None:
    """Show what hotmax does: temperatures, numbers that break, losses, sampling, attention, speed.

    Example: hotmax tour
    """
    from hotmax.view.tour import main

    if common.json:
        raise ValueError("tour is to be read: it has no --json")
    main()
