# SPDX-License-Identifier: Apache-2.0
"""Which files may bring code into this process: those that nobody but root and the user can change.

Each function returns why a path is refused, or an empty string. ``TORCH_FL_ALLOW_UNSAFE_PLUGINS=1`` allows everything.
What lies inside the torch_fl package is not examined: who can change that runs code here already.
"""

from __future__ import annotations

import os
import stat

VARIABLE = "TORCH_FL_ALLOW_UNSAFE_PLUGINS"
HOW_TO_ALLOW = f"Take the right away (chmod go-w, chown), or set {VARIABLE}=1"
HOW_TO_STAY = f"Keep it in that folder, or set {VARIABLE}=1"

_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def unsafe_allowed() -> bool:
    """Tell whether the user wants no checks."""
    return os.environ.get(VARIABLE) == "1"


def why_not_file(path: str, status: os.stat_result | None = None) -> str:
    """Return who else could change a file, or put another in its place."""
    if unsafe_allowed():
        return ""
    real = os.path.realpath(path)
    if _inside(real, _PACKAGE):
        return ""
    try:
        reason = _why_not_status(status or os.stat(real))
        if reason:
            return f"{real} {reason}"
        return _why_not_folders(os.path.dirname(real))
    except OSError as error:
        return f"{error.filename or real}: {error.strerror}"


def why_not_entry(folder: str, path: str) -> str:
    """Return why what was found in a folder is not taken: a link out of it, or a file that others can change."""
    return leaves(folder, path) or why_not_file(path)


def leaves(folder: str, path: str) -> str:
    """Return where a path leads, if that is outside the folder."""
    if unsafe_allowed():
        return ""
    real = os.path.realpath(path)
    return "" if _inside(real, os.path.realpath(folder)) else f"{path} leads out of the folder {folder}, to {real}"


def _inside(real: str, folder: str) -> bool:
    return real.startswith(folder.rstrip(os.sep) + os.sep)


def _why_not_folders(folder: str) -> str:
    """Examine a folder and those above it. In one above, others may add files if they cannot rename (/tmp)."""
    nearest = True
    while True:
        status = os.stat(folder)
        if nearest or not status.st_mode & stat.S_ISVTX or not _trusted_owner(status.st_uid):
            reason = _why_not_status(status)
            if reason:
                return f"the folder {folder} {reason}"
        parent = os.path.dirname(folder)
        if parent == folder:
            return ""
        folder, nearest = parent, False


def _why_not_status(status: os.stat_result) -> str:
    if not _trusted_owner(status.st_uid):
        return f"belongs to {_user(status.st_uid)}, who is neither root nor you"
    if status.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if status.st_mode & stat.S_IWGRP and not _alone(status.st_gid, status.st_uid):
        return f"can be written by the group {_group(status.st_gid)}"
    return ""


def _trusted_owner(user: int) -> bool:
    return user in (0, os.geteuid()) or user == os.stat(_PACKAGE).st_uid


def _alone(group: int, owner: int) -> bool:
    """Tell whether a group has no members but root and the owner, as the private groups of many systems."""
    import grp
    import pwd

    try:
        names = set(grp.getgrgid(group).gr_mem)
        members = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == group or user.pw_name in names}
        known = {user.pw_name for user in pwd.getpwall()}
    except (KeyError, OSError):
        return False
    return members <= {0, owner} and names <= known


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"the user {number}"


def _group(number: int) -> str:
    import grp

    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
