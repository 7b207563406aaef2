"""The tests can be collected, and skip what they must, on a Python without torch."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from optional import OF_TORCH, OPTIONAL, SOURCE, Absent, library
from subprocesses import python

TESTS = Path(__file__).parents[1]


def imported_at_once(path):
    """What a file imports while it is itself imported: not inside of functions."""
    names, nodes = set(), [ast.parse(path.read_text())]
    while nodes:
        for node in ast.iter_child_nodes(nodes.pop()):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                continue
            elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                nodes.append(node)
    return names


def needs_torch(name):
    module = name.replace(".", "/") + ".py"
    return name.split(".")[0] in OPTIONAL or module in [f"hotmax/{own}" for own in OF_TORCH]


def test_nothing_that_is_collected_imports_torch_at_once():
    """`from optional import torch` does instead, and `library` for the rest."""
    modules = [path for path in TESTS.rglob("*.py") if path.name != "optional.py"]
    assert len(modules) > 40
    for path in modules:
        assert not list(filter(needs_torch, imported_at_once(path))), path
    for path in SOURCE.rglob("*.py"):
        found = any(map(needs_torch, imported_at_once(path)))
        assert found == (path.relative_to(SOURCE).as_posix() in OF_TORCH), path


def test_what_stands_for_a_library_that_is_absent():
    torch = Absent("torch")
    with pytest.raises(pytest.skip.Exception, match=r"needs torch\.nn\.functional\.softmax"):
        torch.nn.functional.softmax([1.0, 2.0])
    assert not isinstance(1.0, torch.Tensor)
    assert repr([torch.float16]) == "[torch.float16]"
    with pytest.raises(ModuleNotFoundError):
        library("no_such_library")


EXAMPLE = """
import pytest
from optional import library, torch

ROWS = torch.tensor([1.0, 2.0])
Loss = library("hotmax.torch").CrossEntropyLoss

class Module(torch.nn.Module):
    pass

@pytest.mark.torch
def test_marked():
    assert ROWS.sum() == 3

@pytest.mark.parametrize("make", [list, torch.tensor, (1, torch.float16), "torch, generic"])
def test_parameters(make):
    assert make is list

def test_use():
    Loss()

def test_neither():
    assert not isinstance(ROWS, torch.Tensor)
"""


def test_tests_without_torch(tmp_path):
    """Collected, they are skipped by mark, by parameter or at the first use; the others run."""
    example = tmp_path / "test_example.py"
    example.write_text(EXAMPLE)
    settings = str(TESTS.parent / "pyproject.toml")
    done = python(
        f"""
        import os, sys
        del os.environ["PYTEST_CURRENT_TEST"]  # of the test that started this
        sys.modules.update(dict.fromkeys({OPTIONAL}))  # None: as if not installed
        sys.path.insert(0, {str(TESTS)!r})
        import pytest
        options = "-q", "-p", "conftest", "-p", "no:cacheprovider", "-c", {settings!r}
        pytest.main([{str(example)!r}, *options])
        """
    )
    assert "2 passed, 5 skipped" in done.stdout, done.stdout + done.stderr
