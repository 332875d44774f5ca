"""Computes every number of fig2.csv to fig5.csv again, from Q, action, target and temperature alone.

    python3 crates/paper/tests/check.py paper

Another language, another route: 60 decimal digits and the definitions, differences of log-sum-exp included, where the
Rust code has forms that do not cancel. Needs nothing but Python. A number may differ by 1e-9 times max(1, |V|).
"""

import csv
import pathlib
import sys
from decimal import Decimal, getcontext

getcontext().prec = 60


def soft_value(q, beta):
    top = max(q)
    return top + beta * sum(((x - top) / beta).exp() for x in q).ln()


def policy(q, beta):
    v = soft_value(q, beta)
    return [((x - v) / beta).exp() for x in q]


def computed(row):
    q = [Decimal(float(row[name])) for name in row if name.startswith("q_") and row[name]]
    action = int(row["action"])
    beta, alpha, target = (Decimal(float(row[name])) for name in ("temperature", "alpha", "target"))
    td = target - q[action]
    new = list(q)
    new[action] += alpha * td
    if beta == 0:
        value, value_new = max(q), max(new)
        greedy = q.index(max(q))
        eiv = new[greedy] - q[greedy]
        upper, lower = abs(alpha * td), Decimal(0)
    else:
        value, value_new = soft_value(q, beta), soft_value(new, beta)
        old, changed = policy(q, beta), policy(new, beta)
        eiv = sum(p * (b - a) for p, a, b in zip(old, q, new))
        rho = (old[action], changed[action])
        upper, lower = max(rho) * abs(alpha * td), min(rho) * abs(alpha * td)
    evb = value_new - value
    bars = {"bound": upper, "abs_td": abs(alpha * td)} if "bound" in row else {}
    if bars:
        bars["policy"] = upper / abs(alpha * td)
    return bars | {
        "td": td,
        "change": alpha * td,
        "evb": evb,
        "piv": evb - eiv,
        "eiv": eiv,
        "upper": upper,
        "lower": lower,
        "value": value,
    }


def network_target(row, beta):
    """The target of a row of fig4.csv from the networks' Q(s'): r + discount * V(s')."""
    q = [Decimal(float(row[name])) for name in ("next_q_0", "next_q_1")]
    online = [Decimal(float(row[name])) for name in ("next_online_q_0", "next_online_q_1")]
    if beta != 0:
        value = soft_value(q, beta)
    elif row["double"] == "1":
        value = q[online.index(max(online))]
    else:
        value = max(q)
    failed = row["terminated"] == "1"
    text = row["preset"] == "paper-cartpole"
    expected = {"reward": -5.0 if failed and not text else 1.0, "discount": 0.0 if failed and text else 0.99}
    for column, number in expected.items():
        if float(row[column]) != number:
            sys.exit(f"{column} is {row[column]} and should be {number}: {row}")
    return Decimal(float(row["reward"])) + Decimal(float(row["discount"])) * value


def main(folder):
    worst = 0.0
    for name in ("fig2.csv", "fig3.csv", "fig4.csv", "fig5.csv"):
        path = pathlib.Path(folder) / name
        if not path.is_file():
            print(f"{name}: not there")
            continue
        count = 0
        for row in csv.DictReader(path.open()):
            count += 1
            numbers = computed(row)
            if "next_online_q_0" in row:
                numbers["target"] = network_target(row, Decimal(float(row["temperature"])))
            scale = max(Decimal(1), abs(numbers["value"]))
            for column, number in numbers.items():
                off = float(abs(Decimal(float(row[column])) - number) / scale)
                worst = max(worst, off)
                if not off <= 1e-9:
                    sys.exit(f"{name}, row {count}: {column} is {row[column]} and should be {number:.20e}")
        print(f"{name}: {count} transitions agree")
    print(f"the largest difference is {worst:.1e} times max(1, |V|)")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "paper")
