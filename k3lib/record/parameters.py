"""
Reads what people write: campaigns, sessions and frozen requests.

A campaign is named by its folder under `params/`, by a path to that folder, or by one under
`outputs/` (which is called the same).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from k3lib.errors import SpecError
from k3lib.record.files import is_file
from k3lib.spec.campaign import Campaign
from k3lib.spec.request import FrozenRequest
from k3lib.spec.session import SESSION_MODELS, SessionSpec, stage_of
from k3lib.spec.strict_yaml import parse_yaml
from k3lib.spec.validation import load_model


@dataclass(frozen=True)
class Places:
    """
    Where the workbook's folders are.

    Args:
        root: The folder that holds params/ and notebooks/.
        outputs: The folder of the archives.
    """

    root: Path
    outputs: Path

    @property
    def params(self) -> Path:
        """The campaigns."""
        return self.root / "params"

    @property
    def notebooks(self) -> Path:
        """The stage notebooks, without outputs."""
        return self.root / "notebooks"


def find_places(start: Path | None = None) -> Places:
    """
    The workbook's folders, found from the current folder upwards, else beside the package.

    papermill runs a notebook where its caller stands and nbval in the notebook's own folder, so the
    current folder alone says nothing. `K3_ROOT` and `K3_OUTPUTS` win where they are set.

    Raises:
        SpecError: No folder holds both params/ and notebooks/.
    """
    outputs = os.environ.get("K3_OUTPUTS")
    given = os.environ.get("K3_ROOT")
    here = (start or Path.cwd()).resolve()
    beside = Path(__file__).resolve().parents[2]
    for folder in [Path(given).resolve()] if given else [here, *here.parents, beside]:
        if (folder / "params").is_dir() and (folder / "notebooks").is_dir():
            return Places(folder, Path(outputs).resolve() if outputs else folder / "outputs")
    raise SpecError(
        "the workbook's folder was not found",
        expected="a folder with params/ and notebooks/ here or above",
        evidence=f"looked from {given or here} upwards",
        next="go into the workbook's folder, or set K3_ROOT to it",
    )


def read_campaign(places: Places, name: str) -> tuple[Campaign, Path]:
    """
    A campaign and its folder.

    Args:
        places: Where to look.
        name: Name or path.

    Raises:
        SpecError: No such campaign (with the nearest name), or its file is not right.
    """
    folder = _campaign_folder(places, name)
    file = folder / "campaign.yaml"
    campaign = load_model(Campaign, parse_yaml(_read(file), _shown(places, file)), source=_shown(places, file))
    if campaign.name != folder.name:
        raise SpecError(
            f"{_shown(places, file)} is called {campaign.name}, its folder {folder.name}",
            expected="the same name, so that its sessions are found again",
            evidence=f"name: {campaign.name}",
            next=f"write name: {folder.name}",
        )
    return campaign, folder


def read_session(places: Places, file: Path) -> SessionSpec:
    """
    The session that a file describes, checked as strictly as a campaign.

    Raises:
        SpecError: It is not right, or it stands in one campaign's folder and names another: a copied campaign
            whose session files still run the original.
    """
    model = SESSION_MODELS.get(stage_of(file.name), SessionSpec)
    spec = load_model(model, parse_yaml(_read(file), _shown(places, file)), source=_shown(places, file))
    folder = file.resolve().parent
    if not (folder / "campaign.yaml").is_file() or _campaign_folder(places, spec.campaign) == folder:
        return spec
    raise SpecError(
        f"{_shown(places, file)} belongs to the campaign {spec.campaign}, and lies in the folder of {folder.name}",
        expected=f"campaign: {folder.name}",
        evidence=f"campaign: {spec.campaign}",
        next=f"write campaign: {folder.name}, or move the file",
    )


def read_request(places: Places, name: str) -> FrozenRequest:
    """The frozen request `params/requests/<name>`; raises SpecError with the nearest name."""
    folder = places.params / "requests"
    file = folder / name
    if not is_file(file):
        raise _missing(f"no frozen request {name}", name, sorted(p.name for p in folder.glob("*.yaml")))
    return load_model(FrozenRequest, parse_yaml(_read(file), _shown(places, file)), source=_shown(places, file))


def list_session_files(folder: Path) -> list[Path]:
    """The calendar of a campaign: its session files, in the order of their numbers."""
    return sorted(folder.glob("[0-9][0-9]_*.yaml"), key=lambda file: file.stem)


def _campaign_folder(places: Places, name: str) -> Path:
    given = Path(name)
    by_path = [given, places.root / given] if len(given.parts) > 1 else []
    for folder in [*by_path, places.params / given.name]:
        if is_file(folder / "campaign.yaml"):
            return folder.resolve()
    names = sorted(p.parent.name for p in places.params.glob("*/campaign.yaml"))
    raise _missing(f"no campaign {name}", given.name, names)


def _missing(what: str, name: str, names: list[str]) -> SpecError:
    near = get_close_matches(name, names, n=1)
    return SpecError(
        what,
        expected=f"one of {', '.join(names) or 'none yet'}",
        evidence=f"asked for {name}",
        next=f"did you mean {near[0]}?" if near else "check the name, or write one under params/",
    )


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise SpecError(
            f"{file} cannot be read",
            expected="a readable UTF-8 file",
            evidence=str(problem),
            next="check the path and its permissions",
        ) from None


def _shown(places: Places, file: Path) -> str:
    file = file.resolve()
    return str(file.relative_to(places.root)) if file.is_relative_to(places.root) else str(file)
