"""The torch that is installed, its devices, and the accelerator extensions that it imports by itself."""

import importlib
import importlib.metadata
import os
import sys
from typing import Any

from statehal.doctor.report import Problem

_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def import_torch(problems: list[Problem]) -> Any:
    """The torch module; ``None``, and a problem, where it cannot be imported.

    An extension that fails makes ``import torch`` fail, and a second attempt in that process can end it with a
    segmentation fault. So torch is imported without its extensions, and they are loaded here, one by one: the rest of
    the diagnosis has a torch, and the extension that fails is named.
    """
    given = os.environ.get(_AUTOLOAD)
    pending = "torch" not in sys.modules and (given or "1") == "1"
    os.environ[_AUTOLOAD] = "0"
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        text = f"torch cannot be imported: {type(error).__name__}: {_one_line(error)}"
        problems.append(Problem("broken", text, "install a build of torch for this machine"))
        return None
    finally:
        if given is None:
            del os.environ[_AUTOLOAD]
        else:
            os.environ[_AUTOLOAD] = given
    if pending:
        _load_extensions(problems)
    return torch


def _load_extensions(problems: list[Problem]) -> None:
    for point in importlib.metadata.entry_points(group="torch.backends"):
        try:
            point.load()()
        except (Exception, SystemExit) as error:
            owner = point.dist.name if point.dist is not None else point.value
            problems.append(
                Problem(
                    "broken",
                    f"import torch fails, because its extension {point.name!r} of {owner} fails: "
                    f"{type(error).__name__}: {_one_line(error)}",
                    f"install what the extension needs, or uninstall {owner}, or set {_AUTOLOAD}=0",
                )
            )


def present_devices(torch: Any) -> list[str]:
    """The host, and every device of the accelerator that torch was built for."""
    found = ["cpu"]
    try:
        accelerator = torch.accelerator.current_accelerator(check_available=True) if torch else None
        if accelerator is not None:
            found += [f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())]
    except Exception:
        # a driver that fails here fails in its backend's probe as well, and that says why
        return found
    return found


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
