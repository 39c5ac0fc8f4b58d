"""Makes the package of this tree importable in the environment that runs this, entry points included."""

import site
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> None:
    packages = Path(site.getsitepackages()[0])
    (packages / "graphmill.pth").write_text(f"{REPOSITORY / 'python'}\n")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    about = packages / "graphmill-0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    groups = project["entry-points"].items()
    lines = [line for group, entries in groups for line in (f"[{group}]", *(f"{name} = {at}" for name, at in entries.items()))]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
