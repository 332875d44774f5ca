"""The test's own namespaces for network, mounts and processes.

Everything that an engine leaves behind on a machine (bridges, firewall rules, mounts, processes of containers) disappears with
the namespaces, however the test ends. The test does not conflict with another engine on the machine or with its ports."""

import fcntl
import os
import signal
import subprocess
import sys

from shell import WORK, run

INSIDE = "TEST_ISOLATED"


def inside():
    return INSIDE in os.environ


def alone():
    """Waits until no other test uses the same folder. The end of the process releases the lock."""
    WORK.mkdir(parents=True, exist_ok=True)
    lock = os.open(WORK / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)


def enter():
    """Returns in a process inside the namespaces. The outer process waits for it and exits with its exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("received SIGTERM"))
    if inside():
        be_first_process()
        run("ip", "link", "set", "lo", "up")
        return
    # If this process is killed, all processes inside are killed too.
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    # In its own session, so that processes inside receive Ctrl-C only once, forwarded by this process.
    first = subprocess.Popen([*words, sys.executable, *sys.argv], env={**os.environ, INSIDE: "1"}, start_new_session=True)
    sys.exit(waited_for(first))


def waited_for(first):
    """Returns its exit code. Forwards signals to the processes inside, so that they clean up; `unshare` ignores them."""

    def forward(number, _):
        for child in children(first.pid):
            os.kill(child, number)

    for number in [signal.SIGINT, signal.SIGTERM]:
        signal.signal(number, forward)
    return first.wait()


def children(process):
    with open(f"/proc/{process}/task/{process}/children") as file:
        return [int(word) for word in file.read().split()]


def be_first_process():
    """Reaps the orphans of a process namespace, and returns in a child that does the work."""
    worker = os.fork()
    if not worker:
        return
    for number in [signal.SIGINT, signal.SIGTERM]:
        signal.signal(number, lambda number, _: os.kill(worker, number))
    while True:
        ended, status = os.wait()
        if ended == worker:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
