"""The test's own Docker engine: with its own data, socket and process, which is stopped by its id."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import tools
from shell import WORK, run, say


class Engine:
    """Runs during the `with` block, which then deletes its data unless `keep` is set."""

    def __init__(self, keep=False):
        self.data, self.keep = WORK / "docker", keep

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="quiver-docker-"))
        self.log, config = self.folder / "log", self.folder / "config"
        tools.plugins(config)
        host = f"unix://{self.folder}/docker.sock"
        os.environ.update(DOCKER_HOST=host, DOCKER_CONFIG=str(config), DOCKER_BUILDKIT="1")
        os.environ.pop("DOCKER_CONTEXT", None)
        # Left over from a test that was killed.
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(parents=True)
        # No default bridge: compose creates its own network, and builds need none.
        flags = ["--bridge=none", f"--host={host}", f"--data-root={self.data}", f"--exec-root={self.folder}/exec"]
        flags.append(f"--pidfile={self.folder}/pid")
        # On a busy machine the engine may time out waiting for containerd and must be started again.
        if not any(self.starts(flags) for _ in range(3)):
            raise SystemExit(f"the engine did not start:\n{self.log.read_text()[-4000:]}")
        say(f"the engine answers (process {self.process.pid})")
        return self

    def starts(self, flags):
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(["dockerd", *flags], stdout=log, stderr=log)
        for _ in range(240):
            if self.process.poll() is not None:
                return False
            if run("docker", "info", check=False, quiet=True).returncode == 0:
                return True
            time.sleep(0.5)
        self.stop()
        return False

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __exit__(self, *_):
        self.stop()
        say("the engine has stopped")
        shutil.rmtree(self.folder, ignore_errors=True)
        if not self.keep:
            shutil.rmtree(self.data, ignore_errors=True)
            say("deleted its data")
