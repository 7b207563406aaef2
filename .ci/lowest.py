"""Print the lowest versions that pyproject.toml allows, as requirements for pip."""

import re
import sys
import tomllib
from pathlib import Path

# Not what hotmax runs with; and PyTorch's version is fixed, since the tests compare with it.
LEFT_OUT = (
    *("hatchling", "ruff", "mypy", "sphinx", "myst-nb", "furo", "sphinx-mathjax-offline"),
    *("torch", "transformers", "torchmetrics"),
)


def main() -> None:
    path = Path(__file__).parents[1] / "pyproject.toml"
    project = tomllib.loads(path.read_text())["project"]
    optional = project["optional-dependencies"]
    lowest: dict[str, str] = {}
    for requirement in sum(optional.values(), project["dependencies"]):
        name, bound, version = re.match(r"([^<>=~;]+)(>=)?([^,;]*)", requirement).groups()
        if bound is None or name in LEFT_OUT:
            continue
        if lowest.setdefault(name, version) != version:
            sys.exit(f"pyproject.toml has two lower bounds of {name}: {lowest[name]}, {version}")
    print(*(f"{name}=={version}" for name, version in sorted(lowest.items())), sep="\n")


if __name__ == "__main__":
    main()
