"""Help, the version and mistakes are answered before anything compiled is imported."""

from __future__ import annotations

import pytest
from subprocesses import python

COMMANDS = (
    *("softmax", "sweep", "sample", "report", "calibrate", "apply", "evaluate", "compare"),
    *("decide", "explore", "explain", "tour", "laws", "bench", "compile", "doctor"),
)
SLOW = ("numba", "llvmlite", "scipy", "sklearn", "matplotlib", "torch", "jax", "dask")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["--wrong"], 2),
        (["nonsense"], 2),
        *(([command, "--help"], 0) for command in ("softmax", "calibrate", "report")),
    ],
)
def test_nothing_slow_is_imported(arguments, code):
    done = python(
        f"""
        import sys
        import hotmax_command
        sys.argv = ["hotmax", *{arguments!r}]
        code = hotmax_command.main()
        print(code, sorted(set(sys.modules) & set({SLOW!r})))
        """
    )
    assert done.stdout.splitlines()[-1] == f"{code} []", done.stderr


def test_the_version_needs_no_command():
    done = python(
        """
        import sys
        import hotmax_command
        sys.argv = ["hotmax", "--version"]
        code = hotmax_command.main()
        print(code, sorted(set(sys.modules) & {"numpy", "cyclopts", "rich"}))
        """
    )
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr


def test_nor_by_a_wrong_option_of_any_command():
    done = python(
        f"""
        import sys
        import hotmax_command
        hotmax_command.defer("hotmax")
        from hotmax.view.cli import main
        codes = {{main([command, "--wrong"]) for command in {COMMANDS!r}}}
        print(codes, sorted(set(sys.modules) & set({SLOW!r})))
        """
    )
    assert done.stdout.splitlines()[-1] == "{2} []", done.stderr
    assert done.stderr.count("Unknown option") == len(COMMANDS), done.stderr


def test_these_are_all_commands():
    from hotmax.view.cli.app import COMMANDS as found

    assert tuple(command.__name__ for command in found) == COMMANDS


def test_what_is_deferred_is_imported_when_it_is_needed():
    done = python(
        """
        import sys
        import hotmax_command
        hotmax_command.defer("hotmax")
        import hotmax
        import hotmax._core.reading
        assert "numba" not in sys.modules
        assert not hasattr(hotmax, "__wrong__")
        assert "numba" not in sys.modules
        assert hotmax.softmax([0.0, 0.0]).tolist() == [0.5, 0.5]
        assert {*hotmax.__all__} <= {*dir(hotmax)}
        assert hotmax is sys.modules["hotmax"] and type(hotmax) is type(sys)
        hotmax_command.defer("hotmax")  # which is imported already
        assert hotmax is sys.modules["hotmax"]
        try:
            hotmax.softmaxx
        except AttributeError as error:
            print(error)
        """
    )
    assert done.stdout == "module 'hotmax' has no attribute 'softmaxx'\n", done.stderr


def test_a_command_finds_all_functions():
    done = python(
        """
        import sys
        import hotmax_command
        sys.argv = ["hotmax", "softmax", "1", "1", "--json"]
        assert hotmax_command.main() == 0
        from hotmax._backends.operation import OPERATIONS
        assert {"softmax", "attention_vjp", "sample"} <= {*OPERATIONS}
        """
    )
    assert done.returncode == 0, done.stderr
