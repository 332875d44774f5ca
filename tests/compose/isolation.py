"""Namespaces of the test's own for network, mounts and processes.

What an engine leaves behind on a machine (bridges, firewall rules, mounts, processes of containers) is gone with them,
however the test ends; an engine that the machine runs already and the ports that it uses do not matter."""

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
    """Waits until no other test works in the same folder. The lock is given back by the end of the process."""
    WORK.mkdir(parents=True, exist_ok=True)
    lock = os.open(WORK / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)


def enter():
    """Returns in a process that is inside. The one outside waits for it and exits as it does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    if inside():
        be_first_process()
        run("ip", "link", "set", "lo", "up")
        return
    # If this process is killed, all inside are.
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    # A session of its own: Ctrl-C comes to those inside once, by the hand of this one.
    first = subprocess.Popen([*words, sys.executable, *sys.argv], env={**os.environ, INSIDE: "1"}, start_new_session=True)
    sys.exit(waited_for(first))


def waited_for(first):
    """Its exit code. Those inside have to hear of a signal, and clean up; `unshare` itself is deaf to it."""

    def hand_on(number, _):
        for child in children(first.pid):
            os.kill(child, number)

    for number in [signal.SIGINT, signal.SIGTERM]:
        signal.signal(number, hand_on)
    return first.wait()


def children(process):
    with open(f"/proc/{process}/task/{process}/children") as file:
        return [int(word) for word in file.read().split()]


def be_first_process():
    """Takes in the orphans of a process namespace, and returns in a child that does the work."""
    worker = os.fork()
    if not worker:
        return
    for number in [signal.SIGINT, signal.SIGTERM]:
        signal.signal(number, lambda number, _: os.kill(worker, number))
    while True:
        ended, status = os.wait()
        if ended == worker:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
