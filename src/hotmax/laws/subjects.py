"""Whose softmax: functions, what they take, and the arrays that they take it in."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hotmax.laws import formulas
from hotmax.laws.libraries import ARRAY_LIBRARIES, TYPES, Library

FUNCTIONS = (
    "softmax",
    "log_softmax",
    "logsumexp",
    "logsumexp_gradient",
    "jacobian",
    "cross_entropy_gradient",
)
Function = Callable[..., Any] | str

AXIS_NAMES = ("axis", "dim")
TEMPERATURE_NAMES = ("temperature", "T", "tau")
WHERE_NAMES = ("where", "mask")


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A softmax and its family, and how to call them.

    A function is a callable or its dotted path, such as "scipy.special.softmax". The first three
    take an array and `axis`, `temperature` and `where` by the names given here; None: it takes no
    such thing. Without a temperature the laws divide: x / T, as its users would. The last three
    take one row: `logsumexp_gradient(x)`, `jacobian(x)` and `cross_entropy_gradient(x, label)`.

    Args:
        name: What to call it.
        softmax, log_softmax, logsumexp: The functions; None: not there.
        logsumexp_gradient, jacobian, cross_entropy_gradient: Derivatives, for one row of logits.
        axis: The name of the axis argument, or None for a function of the last axis.
        temperature: The name of the temperature argument, or None.
        where: The name of the mask argument (True: present), or None.
        library: Whose arrays it takes: "numpy", "torch", "jax", "dask" or "array_api_strict".
        dtypes: The types it claims to take, by name; None for all that the library has.

    Example:
        >>> from hotmax import laws
        >>> laws.Subject(name="scipy", softmax="scipy.special.softmax").library
        'numpy'
    """

    name: str
    softmax: Function
    log_softmax: Function | None = None
    logsumexp: Function | None = None
    logsumexp_gradient: Function | None = None
    jacobian: Function | None = None
    cross_entropy_gradient: Function | None = None
    axis: str | None = "axis"
    temperature: str | None = None
    where: str | None = None
    library: str = "numpy"
    dtypes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.library not in ARRAY_LIBRARIES:
            raise ValueError(
                f"library must be one of {', '.join(ARRAY_LIBRARIES)}, got {self.library!r}"
            )
        for name in FUNCTIONS:
            function = getattr(self, name)
            optional = function is None and name != "softmax"
            if not (optional or callable(function) or isinstance(function, str)):
                raise TypeError(f"{name} must be a callable or its dotted path, got {function!r}")
        given = () if self.dtypes is None else self.dtypes
        if isinstance(given, str) or not set(given) <= set(TYPES):
            raise ValueError(
                f"dtypes must be a tuple of names from {', '.join(TYPES)}, got {given!r}"
            )

    @property
    def arrays(self) -> Library:
        return ARRAY_LIBRARIES[self.library]

    def has(self, function: str) -> bool:
        return getattr(self, function) is not None

    def function(self, name: str) -> Callable[..., Any]:
        """The callable, imported if need be."""
        given: Function = getattr(self, name)
        if not isinstance(given, str):
            return given
        module, _, last = given.rpartition(".")
        imported: Callable[..., Any] | None = None
        if module:
            imported = getattr(importlib.import_module(module), last, None)
        if imported is None:
            raise ValueError(f"{name} must be the dotted path of a function, got {given!r}")
        return imported

    def check(self) -> None:
        """Raise if a function is not where its path says, before any law is tried."""
        for name in FUNCTIONS:
            if self.has(name):
                self.function(name)

    def takes(self, dtype: str) -> bool:
        return dtype in (self.arrays.dtypes() if self.dtypes is None else self.dtypes)

    @property
    def version(self) -> str | None:
        """The version of the package that its softmax comes from, where it has one."""
        function = self.softmax
        module = function if isinstance(function, str) else (function.__module__ or "")
        root = module.partition(".")[0]
        if not root or self.softmax in vars(formulas).values():
            return None
        try:
            return importlib.metadata.version(root)
        except importlib.metadata.PackageNotFoundError:
            return None


def spelling(function: Function, role: str) -> tuple[str, str]:
    """(lines that bring a function in, the name to call it by), for code to paste."""
    if isinstance(function, str):
        return f"import {function.rpartition('.')[0]}", function
    name = getattr(function, "__name__", role)
    if getattr(function, "__module__", None) == formulas.__name__:
        source = inspect.getsource(function)
        for annotation, plain in ((": Any", ""), (" -> Any", ""), (": int = ", "="), (": int", "")):
            source = source.replace(annotation, plain)
        return _without_gaps(source), name
    if module := _public_module(function, name):
        return f"import {module}", f"{module}.{name}"
    if complete := _complete_source(function):
        return complete, name
    return f"# {role}: the function that was checked", role


def _public_module(function: Any, name: str) -> str | None:
    """The module of the same package with the shortest public name that holds the function."""
    home = getattr(function, "__module__", None) or ""
    root = home.partition(".")[0]
    if not root or root == "__main__" or not name.isidentifier():
        return None
    modules = list(sys.modules.items())
    found = [m for m, module in modules if _holds(m, module, root, name, function)]
    found = [m for m in found if not any(part.startswith("_") for part in m.split("."))] or found
    return min(found, key=len, default=None)


def _holds(path: str, module: Any, root: str, name: str, function: Any) -> bool:
    if path != root and not path.startswith(root + "."):
        return False
    return vars(module).get(name) is function if hasattr(module, "__dict__") else False


def _complete_source(function: Any) -> str | None:
    """The source of a function that needs nothing around it but np."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_freevars or not function.__name__.isidentifier():
        return None
    if not {name for name in code.co_names if name in function.__globals__} <= {"np"}:
        return None
    try:
        source = inspect.cleandoc("\n" + inspect.getsource(function))
    except (OSError, TypeError):
        return None
    return _without_gaps(source) if source.startswith("def ") else None


def _without_gaps(source: str) -> str:
    """Without empty lines, which would end the function when pasted into a shell."""
    return "\n".join(line for line in source.splitlines() if line.strip())


def subject_of(given: Any) -> Subject:
    """A Subject from one, from a name in SUBJECTS or from a bare softmax."""
    if isinstance(given, Subject):
        return given
    if isinstance(given, str):
        if given not in SUBJECTS:
            raise ValueError(f"subject must be one of {', '.join(SUBJECTS)}, got {given!r}")
        return SUBJECTS[given]
    if not callable(given):
        raise TypeError(
            f"subject must be a callable, a Subject or one of {', '.join(SUBJECTS)}, got {given!r}"
        )
    home = (getattr(given, "__module__", None) or "").partition(".")[0]
    library = home if home in ARRAY_LIBRARIES else "numpy"
    names: Mapping[str, object]
    try:
        names = inspect.signature(given).parameters
    except ValueError:  # a builtin, such as torch.softmax
        names = {"dim" if library == "torch" else "axis": None}

    def first(candidates: tuple[str, ...]) -> str | None:
        return next((candidate for candidate in candidates if candidate in names), None)

    return Subject(
        name=getattr(given, "__name__", type(given).__name__),
        softmax=given,
        axis=first(AXIS_NAMES),
        temperature=first(TEMPERATURE_NAMES),
        where=first(WHERE_NAMES),
        library=library,
    )


SUBJECTS: dict[str, Subject] = {
    subject.name: subject
    for subject in (
        Subject(
            name="naive",
            softmax=formulas.naive_softmax,
            log_softmax=formulas.naive_log_softmax,
            logsumexp=formulas.naive_logsumexp,
        ),
        Subject(
            name="max-shifted",
            softmax=formulas.shifted_softmax,
            log_softmax=formulas.shifted_log_softmax,
            logsumexp=formulas.shifted_logsumexp,
        ),
        Subject(name="divide-by-sum", softmax=formulas.divided_by_the_sum),
        Subject(name="min-shifted-sum", softmax=formulas.divided_after_the_minimum),
        Subject(
            name="scipy",
            softmax="scipy.special.softmax",
            log_softmax="scipy.special.log_softmax",
            logsumexp="scipy.special.logsumexp",
        ),
        Subject(
            name="torch",
            softmax="torch.softmax",
            log_softmax="torch.log_softmax",
            logsumexp="torch.logsumexp",
            logsumexp_gradient=formulas.torch_logsumexp_gradient,
            jacobian=formulas.torch_jacobian,
            cross_entropy_gradient=formulas.torch_cross_entropy_gradient,
            axis="dim",
            library="torch",
        ),
        Subject(
            name="jax",
            softmax="jax.nn.softmax",
            log_softmax="jax.nn.log_softmax",
            logsumexp="jax.scipy.special.logsumexp",
            logsumexp_gradient=formulas.jax_logsumexp_gradient,
            jacobian=formulas.jax_jacobian,
            where="where",
            library="jax",
        ),
    )
}


def _hotmax(
    library: str,
    logsumexp_gradient: Function | None = None,
    jacobian: Function = "hotmax.softmax_jacobian",
    cross_entropy_gradient: Function | None = None,
) -> Subject:
    """hotmax on the arrays of a library."""
    return Subject(
        name="hotmax" if library == "numpy" else f"hotmax-{library}",
        softmax="hotmax.softmax",
        log_softmax="hotmax.log_softmax",
        logsumexp="hotmax.logsumexp",
        logsumexp_gradient=logsumexp_gradient,
        jacobian=jacobian,
        cross_entropy_gradient=cross_entropy_gradient,
        temperature="temperature",
        where="where",
        library=library,
    )


for each in (
    _hotmax("numpy", cross_entropy_gradient=formulas.hotmax_cross_entropy_gradient),
    _hotmax(
        "torch",
        formulas.hotmax_torch_logsumexp_gradient,
        formulas.hotmax_torch_jacobian,
        formulas.hotmax_torch_cross_entropy_gradient,
    ),
    _hotmax(
        "jax",
        formulas.hotmax_jax_logsumexp_gradient,
        formulas.hotmax_jax_jacobian,
        formulas.hotmax_jax_cross_entropy_gradient,
    ),
    _hotmax("dask"),
    _hotmax("array_api_strict"),
):
    SUBJECTS[each.name] = each
