"""Moving aside what proved corrupt, or lies in the way of what fits."""

import logging
import os
from pathlib import Path

from statehal.portability.store.counts import Tally

logger = logging.getLogger("statehal")


class Quarantine:
    """A folder where files keep their names, out of every reader's way; evictions take them first."""

    def __init__(self, folder: Path, tally: Tally) -> None:
        self._folder = folder
        self._tally = tally

    def take(self, path: str, seen: os.stat_result, namespace: str, why: str) -> bool:
        """Move a file there, unless it was removed or another has taken its place since it was ``seen``.

        Returns:
            Whether it is out of the way. A directory that cannot be written keeps it, and it is a miss again for the
            next reader.
        """
        target = self._folder / namespace / Path(path).name
        try:
            if not _is_there(path, seen):
                return True
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
        except OSError as error:
            logger.warning("%s; it cannot be moved to quarantine: %s", why, error.strerror)
            return False
        self._tally.add("quarantined", "parts")
        logger.warning("%s; moved to %s", why, target)
        return True


def _is_there(path: str, seen: os.stat_result) -> bool:
    try:
        now = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (now.st_ino, now.st_dev) == (seen.st_ino, seen.st_dev)
