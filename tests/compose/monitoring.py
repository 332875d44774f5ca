"""Queries Prometheus about the cluster, over HTTP on the published port."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request

from shell import until


class Prometheus:
    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}"

    def results(self, expression):
        """The current series of an expression, or none if Prometheus does not answer."""
        url = f"{self.base}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]["result"]
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return []

    def query(self, expression):
        return [float(series["value"][1]) for series in self.results(expression)]

    def value(self, selector, since=0.0):
        """The sum over scrapes after `since`, by the system's clock; None if there is none."""
        values = self.query(f"sum({selector} and timestamp({selector}) > {since})")
        return values[0] if values else None

    def until_shows(self, what, counts):
        """Waits until each of these has that value in a future scrape."""
        begun = time.time()
        until(what, lambda: all(self.value(selector, begun) == count for selector, count in counts.items()))

    def advance(self, what, goals, patience=240.0):
        """Waits until each of these has grown by its goal since the next scrape. A counter may restart meanwhile; then its
        growth counts from the restart."""
        begun, floors, left = time.time(), {}, dict(goals)

        def have_grown():
            for selector, by in list(left.items()):
                now = self.value(selector, begun)
                if now is not None:
                    floors[selector] = min(now, floors.get(selector, now))
                    if now >= floors[selector] + by:
                        del left[selector]
            return not left

        until(f"{what} advance", have_grown, patience)

    def training_advances(self):
        goals = {"quiver_learner_frames": 400, "quiver_learner_updates_total": 20, "quiver_learner_weights_version": 20}
        self.advance("frames, updates and weights", goals)

    def counted(self, selector, window="1h"):
        """The final value of a counter in each process of the window. Processes are identified by their start time, not by
        address, which another process may get later. Counts between the last scrape of a process and its end are unknown."""
        begun = {}
        for series in self.results(f"process_start_time_seconds[{window}]"):
            begun.update(((series["metric"]["instance"], at), float(value)) for at, value in series["values"])
        found = {}
        for series in self.results(f"{selector}[{window}]"):
            last = {}
            for at, value in series["values"]:
                process = begun[series["metric"]["instance"], at]
                last[process] = max(last.get(process, 0.0), float(value))
            labels = tuple(sorted(pair for pair in series["metric"].items() if pair[0] != "instance"))
            for process, value in last.items():
                found[process, labels] = max(found.get((process, labels), 0.0), value)
        return list(found.values())
