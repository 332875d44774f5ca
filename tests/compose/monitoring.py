"""What Prometheus knows of the cluster, by its HTTP interface on the published port."""

import json
import urllib.error
import urllib.parse
import urllib.request

from shell import until


class Prometheus:
    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}"

    def query(self, expression):
        """The values of an expression now, or none if Prometheus does not answer."""
        url = f"{self.base}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                result = json.load(answer)["data"]["result"]
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return []
        return [float(sample["value"][1]) for sample in result]

    def value(self, expression):
        """One value; None if there is none, or several."""
        values = self.query(expression)
        return values[0] if len(values) == 1 else None

    def counts(self, expression, least):
        return (self.value(expression) or 0) >= least

    def advances(self, what, expression, by):
        """Waits until an expression has grown by so much from where it is now. It may start over on the way: then
        what counts is how far it has come since."""
        floor = until(f"{what} are known", lambda: [v] if (v := self.value(expression)) is not None else None)[0]

        def has_grown():
            nonlocal floor
            now = self.value(expression)
            if now is None:
                return False
            floor = min(floor, now)
            return now >= floor + by

        until(f"{what} advance", has_grown)

    def training_goes_on(self):
        for what, expression, by in [
            ("frames", "learner_frames", 400),
            ("updates", "learner_updates_total", 20),
            ("weights", "learner_weights_version", 20),
        ]:
            self.advances(what, expression, by)
