"""Opens the session that a stage's notebook runs, with every check that `k3 run` makes."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from k3lib.errors import RecordError, SpecError
from k3lib.record.lock import CampaignLock
from k3lib.record.parameters import find_places
from k3lib.record.paths import SessionPaths
from k3lib.record.redactor import redact_model
from k3lib.record.sessions import name_session, read_plan
from k3lib.spec.session import SESSION_MODELS, SessionSpec, stage_of
from k3lib.spec.validation import load_model, nearest
from k3lib.spec.vocabulary import StageName
from k3lib.workbook.compatibility_stage import CompatibilityStage
from k3lib.workbook.lifecycle import begin_session
from k3lib.workbook.prepare import prepare_session
from k3lib.workbook.scene_stage import SceneStage
from k3lib.workbook.stage import Stage
from k3lib.workbook.trial_stage import TrialStage

STAGES: dict[StageName, type[Stage]] = {
    StageName.SCENE: SceneStage,
    StageName.COMPATIBILITY: CompatibilityStage,
    StageName.MINIMAL_START: TrialStage,
    StageName.SINGLE_REQUEST: TrialStage,
}
"""What a notebook of each stage gets; a stage that is not here gets the common part."""

SESSION_VARIABLE = "K3_SESSION"
"""Names the folder that the batch runner made; without it a notebook makes its own."""


def open_stage(name: str, **parameters: Any) -> Stage:
    """
    The session that a stage's notebook runs.

    Run by `k3 run`, the session's folder is there already; run by plain papermill or by hand in
    JupyterLab, this makes it, with the same checks.

    Args:
        name: The notebook's name without its ending.
        parameters: The notebook's parameters, all of them.

    Returns:
        The open stage.

    Raises:
        SpecError: An unknown or wrong parameter, or more than one change.
        GateClosed: The stage before has not passed.
        LaunchError: No program, no model, or the port is taken; nothing was started.
        BusyError: Another run holds the campaign.
    """
    stage = stage_of(name)
    model = SESSION_MODELS.get(stage, SessionSpec)
    _refuse_unknown_names(name, set(model.model_fields))
    places = find_places()
    spec = load_model(model, parameters, source=f"the parameters of {name}")
    folder = os.environ.get(SESSION_VARIABLE)
    prepared = prepare_session(places, stage, spec, source=f"the parameters of {name}")
    if folder:
        paths = SessionPaths(Path(folder))
        if read_plan(paths).spec != redact_model(spec):
            raise RecordError(
                f"the folder of {paths.name} was made for other parameters",
                expected="the parameters that the runner passed",
                evidence=f"{redact_model(spec)}",
                next=f"unset {SESSION_VARIABLE}, or run with `k3 run`",
            )
        return STAGES.get(stage, Stage)(prepared, paths, lock=None)
    session = name_session(stage.value)
    lock = CampaignLock(places.outputs / prepared.plan.campaign.name, session).acquire()
    return STAGES.get(stage, Stage)(prepared, begin_session(prepared, session), lock)


def _refuse_unknown_names(notebook: str, known: set[str]) -> None:
    """
    Names that papermill injected and the notebook does not have; plain papermill only logs them.

    papermill's cell begins with a comment that names it, and IPython keeps every cell that ran.
    """
    for source in _history():
        if not source.lstrip().startswith("# Parameters"):
            continue
        for statement in ast.parse(source).body:
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            for target in targets:
                if isinstance(target, ast.Name) and target.id not in known:
                    meant = nearest(target.id, known)
                    raise SpecError(
                        f"{notebook} has no parameter {target.id}",
                        expected=meant or f"one of {', '.join(sorted(known))}",
                        evidence=ast.unparse(statement),
                        next=f"write {meant}" if meant else "take it out of the parameter file",
                    )


def _history() -> list[str]:
    import IPython

    get_shell: Callable[[], Any] = IPython.get_ipython
    shell = get_shell()
    return list(shell.user_ns.get("In", [])) if shell is not None else []
