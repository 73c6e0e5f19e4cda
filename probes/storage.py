"""What kind of storage the current folder is on."""

from __future__ import annotations

import posixpath
import re

from autotune.probes.cgroup import Mount, parse_mounts
from autotune.probes.facts import Storage
from autotune.probes.system import System

_NETWORK = frozenset(
    "nfs nfs4 cifs smb3 smbfs lustre gpfs beegfs ceph afs glusterfs panfs wekafs pvfs2 orangefs daos 9p".split()
)
_NETWORK_FUSE = tuple(f"fuse.{name}" for name in "sshfs s3 gcs gluster ceph rclone juicefs blob".split())
_MEMORY = frozenset({"tmpfs", "ramfs"})


def probe(system: System) -> Storage:
    """Return the storage under the current folder."""
    path = system.resolve(system.cwd())
    space = system.space(path)
    mount = mount_of(parse_mounts(system.read("/proc/self/mountinfo") or ""), path)
    if mount is None:
        return Storage("unknown", "unknown", space.free if space else None)
    return Storage(_kind(system, mount), mount.filesystem, space.free if space else None)


def mount_of(mounts: tuple[Mount, ...], path: str) -> Mount | None:
    """Return the mount that holds the path: the deepest, and the last if several lie on one point."""
    holding = [m for m in mounts if m.point == "/" or path == m.point or path.startswith(m.point + "/")]
    return max(reversed(holding), key=lambda mount: len(mount.point), default=None)


def _kind(system: System, mount: Mount) -> str:
    if mount.filesystem in _MEMORY:
        return "memory"
    if mount.filesystem in _NETWORK or mount.filesystem.startswith(_NETWORK_FUSE):
        return "network"
    if mount.filesystem == "virtiofs":
        return "virtual"
    if system.exists(f"/sys/dev/block/{mount.device}/uevent"):
        return _disk_kind(system, f"/sys/dev/block/{mount.device}")
    if mount.source.startswith("/dev/"):  # btrfs gives its mounts device numbers of their own
        return _disk_kind(system, f"/sys/class/block/{posixpath.basename(mount.source)}")
    return "unknown"


def _disk_kind(system: System, folder: str) -> str:
    """Go by the driver's device name, then by the rotational flag; flags of virtual disks mean nothing."""
    below = system.list(f"{folder}/slaves")
    if below:  # encrypted, logical or striped: what lies under it decides
        return _disk_kind(system, f"{folder}/slaves/{below[0]}")
    if system.exists(f"{folder}/partition"):
        folder = f"{folder}/.."
    match = re.search(r"^DEVNAME=(.+)$", system.read(f"{folder}/uevent") or "", re.MULTILINE)
    name = match[1] if match else ""
    if name.startswith("nvme"):
        return "nvme"
    if name.startswith(("vd", "xvd", "nbd", "loop")):
        return "virtual"
    if name.startswith(("zram", "ram")):
        return "memory"
    return {"0": "ssd", "1": "hdd"}.get(system.read(f"{folder}/queue/rotational") or "", "unknown")
