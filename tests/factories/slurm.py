"""A SLURM of one machine: the controller and a node, in a folder of their own."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from dask_cluster import wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd")
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory}
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def lacks() -> str:
    """What this machine lacks to run SLURM; empty where it can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian: slurm-wlm, munge)"
    return "" if os.getuid() == 0 else "needs root"


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Run SLURM for the block; yield the environment of its commands."""
    host = socket.gethostname().split(".")[0]
    ports = [_free_port() for _ in range(2)]
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    memory = psutil.virtual_memory().total >> 20
    names = {"host": host, "folder": folder, "cores": os.cpu_count(), "memory": memory}
    names |= {"port": ports[0], "node_port": ports[1]}
    (folder / "slurm.conf").write_text(CONFIG.format(**names))
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o600)
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    socket_of_munge = folder / "munge.socket"
    files = [f"--{kind}-file={folder}/munge.{kind}" for kind in ("log", "pid", "seed")]
    munge = ["munged", "--foreground", "--force", f"--socket={socket_of_munge}", f"--key-file={folder}/key", *files]
    begun: list[subprocess.Popen[bytes]] = []
    try:
        for words in (munge, ["slurmctld", "-D"], ["slurmd", "-D"]):
            with (folder / f"{words[0]}.printed").open("wb") as log:
                begun.append(subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT))
            if words is munge:
                wait_for(socket_of_munge.exists)
        wait_for(lambda: b"idle" in subprocess.run(["sinfo"], env=environment, capture_output=True).stdout)
        yield environment
    finally:
        subprocess.run(["scancel", "--user", "root"], env=environment, capture_output=True)
        wait_for(lambda: not subprocess.run(["squeue", "-h"], env=environment, capture_output=True).stdout)
        for process in reversed(begun):
            process.terminate()
            process.wait(60)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
